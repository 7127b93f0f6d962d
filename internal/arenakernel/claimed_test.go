//go:build linux

package arenakernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
)

// TestClaimedBlocks: other participants see that a claimed block belongs to its owner. The block is
// freed when the owner dies.
func TestClaimedBlocks(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a, b := p.join(1), p.join(2)
	for _, size := range []uint64{0, 8, 100, 3 * chunkSize} {
		off, err := a.ClaimBlock(size)
		require.NoError(t, err)
		mine := a.ClaimedBlock(off, size, a.self)
		require.Len(t, mine, int(size))
		theirs := b.ClaimedBlock(off, size, a.self)
		require.Len(t, theirs, int(size))
		for i := range mine {
			mine[i] = 7
			require.EqualValues(t, 7, theirs[i])
		}
		require.Nil(t, b.ClaimedBlock(off, size, b.self), "another's")
		require.Nil(t, b.ClaimedBlock(off+8, 8, a.self), "no beginning")
		require.Nil(t, b.ClaimedBlock(off, 4*chunkSize, a.self), "too long")
		requireSound(t, b)
		a.UnclaimBlock(off)
		require.Nil(t, b.ClaimedBlock(off, size, a.self), "given back")
	}
	node, err := a.ClaimNode()
	require.NoError(t, err)
	for _, wild := range []Offset{0, 64, node, ^Offset(7), Offset(a.size)} {
		require.Nil(t, a.ClaimedBlock(wild, 8, a.self))
	}
	_, err = a.ClaimBlock(1 << 30)
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
	off, err := a.ClaimBlock(5 * chunkSize)
	require.NoError(t, err)
	small, err := a.ClaimBlock(64)
	require.NoError(t, err)
	b.reclaimBlocks(a.self)
	require.Nil(t, b.ClaimedBlock(off, 8, a.self))
	require.Nil(t, b.ClaimedBlock(small, 8, a.self))
	require.Zero(t, b.Stats().Claimed)
	requireSound(t, b)
}
