//go:build linux

package arenakernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
)

// claimedBy reports whether owner has claimed the block at off.
func (c *core) claimedBy(off Offset, owner ParticipantID) bool {
	b, ok := c.locate(off)
	return ok && b.load() == makeBlock(blockClaimed, owner)
}

// TestClaimedBlocks: other participants see that a claimed block belongs to its owner. The block is
// freed when the owner dies.
func TestClaimedBlocks(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a, b := p.join(1), p.join(2)
	for _, size := range []uint64{0, 8, 100, 3 * chunkSize} {
		off, err := a.ClaimBlock(size)
		require.NoError(t, err)
		require.True(t, b.claimedBy(off, a.self))
		requireSound(t, b)
		a.UnclaimBlock(off)
		require.False(t, b.claimedBy(off, a.self), "given back")
	}
	_, err := a.ClaimBlock(1 << 30)
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
	off, err := a.ClaimBlock(5 * chunkSize)
	require.NoError(t, err)
	small, err := a.ClaimBlock(64)
	require.NoError(t, err)
	b.reclaimBlocks(a.self)
	require.False(t, b.claimedBy(off, a.self))
	require.False(t, b.claimedBy(small, a.self))
	require.Zero(t, b.Stats().Claimed)
	requireSound(t, b)
}
