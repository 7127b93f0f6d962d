//go:build linux

package cinterop

import (
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// multiBlockBucketAt is the offset of the number of the bucket in a block of a MultiLock.
const multiBlockBucketAt = 32

// multiKeys returns n keys that are in the given one of two buckets.
func multiKeys(bucket uint64, n int) (keys []uint64) {
	for key := uint64(0); len(keys) < n; key++ {
		if (key^key>>32)*0x9e3779b97f4a7c15>>63 == bucket {
			keys = append(keys, key)
		}
	}
	return keys
}

// A peer overwrites the number of the bucket in a block of a MultiLock. A process that knew the block before can still
// use the keys of the block. A process that has not found the block yet reports the damage for each key, in every
// bucket.
func TestMultiLockBlockOfNoBucket(t *testing.T) {
	for _, lang := range []string{"go", "c"} {
		t.Run(lang, func(t *testing.T) {
			name := newArena(t)
			knows, x := newAgent(t, "c", name, "knows"), newAgent(t, lang, name, "looks")
			off := knows.do(t, "multi.open", "m", 1, 2)
			keys := multiKeys(0, 7) // three in the bucket itself, and four in a block
			for _, key := range keys {
				knows.do(t, "multi.lock", "m", key)
			}
			asPeer(t, name, off, func(a *arena.Arena, o arenakernel.Object) {
				var blocks []arenakernel.Offset
				k := (*arenakernel.Arena)(a)
				require.NoError(t, k.EachAddedBlock(o, 0, k.SlotRecords(o).Load(), 0, func(b arenakernel.Offset, _ uint64) { blocks = append(blocks, b) }))
				require.Len(t, blocks, 1)
				arena.At[atomic.Uint32](a, blocks[0]+multiBlockBucketAt).Store(2)
			})
			for _, key := range []uint64{keys[0], multiKeys(1, 1)[0]} {
				x.start(t, "multi.lock", "m", key).fails(t, syscall.EPROTO)
				x.start(t, "multi.recover", "m", key).fails(t, syscall.EPROTO)
			}
			for _, key := range keys {
				knows.do(t, "multi.unlock", "m", key)
				knows.do(t, "multi.lock", "m", key)
			}
		})
	}
}
