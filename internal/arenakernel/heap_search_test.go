//go:build linux

package arenakernel

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// usedChunks returns how many chunks are not free.
func usedChunks(a *Arena) uint64 {
	s := a.Stats()
	return s.Chunks - s.FreeChunks
}

// claimers are two ways to use up blocks: wait nodes, whose chunks are never used for anything else,
// and small blocks that stay.
var claimers = map[string]func(a *Arena) error{
	"wait node": func(a *Arena) error {
		_, err := a.ClaimNode()
		return err
	},
	"block": func(a *Arena) error {
		_, err := a.Alloc(64, 0)
		return err
	},
}

// TestCrowdSharesAFreshChunk: if many goroutines need a block and no slab has one, they share one
// fresh chunk. A chunk that is used for wait nodes is lost to everything else.
func TestCrowdSharesAFreshChunk(t *testing.T) {
	for what, claim := range claimers {
		t.Run(what, func(t *testing.T) {
			const crowd = 100
			p := newNeighbours(16<<20, 2)
			a := p.join(1)
			var begun atomic.Int32
			a.reserve = func(off, n uint64) error { // lets other goroutines run, as a system call does
				for begun.Load() < crowd {
					runtime.Gosched()
				}
				for range 100 {
					runtime.Gosched()
				}
				return p.reserve(off, n)
			}
			var wg sync.WaitGroup
			failed := make(chan error, crowd)
			for range crowd {
				wg.Go(func() {
					begun.Add(1)
					failed <- claim(a)
				})
			}
			wg.Wait()
			for range crowd {
				require.NoError(t, <-failed)
			}
			require.EqualValues(t, 1, usedChunks(a))
			requireSound(t, a)
		})
	}
}

// TestShortLivedProcessesShareASlab checks that processes that live one after the other get their blocks from the
// same slab. Each process claims one block, and then leaves or dies. The heap has many other chunks in use.
func TestShortLivedProcessesShareASlab(t *testing.T) {
	for what, claim := range claimers {
		t.Run(what, func(t *testing.T) {
			p := newNeighbours(16<<20, 4)
			a := p.join(1)
			for range 64 * 40 {
				mustAlloc(t, a, 1024, 0)
			}
			mustAlloc(t, a, 100*chunkSize, 0)
			before := usedChunks(a)
			for range 200 {
				v := p.join(2)
				require.NoError(t, claim(v))
				p.reap(a, v.self)
			}
			require.Equal(t, before+1, usedChunks(a))
			requireSound(t, a)
		})
	}
}

// TestBlocksThatAnotherProcessFreesAreUsedAgain: one process allocates, another frees. The first one
// soon uses the blocks again.
func TestBlocksThatAnotherProcessFreesAreUsedAgain(t *testing.T) {
	p := newNeighbours(64<<20, 4)
	a, b := p.join(1), p.join(2)
	const ring = 1000
	var offs []Offset
	for range 200 * ring {
		if offs = append(offs, mustAlloc(t, a, 64, 0)); len(offs) == ring {
			for _, off := range offs {
				b.Free(off)
			}
			offs = offs[:0]
		}
	}
	require.LessOrEqual(t, usedChunks(a), uint64(3))
	requireSound(t, a)
}

// TestNewProcessFindsTheOnlyFreeBlock checks that a process that has just joined finds the only free block of a
// class, whichever slab contains it. The chunk that was claimed last may be any chunk.
func TestNewProcessFindsTheOnlyFreeBlock(t *testing.T) {
	p := newNeighbours(4<<20, 4)
	a := p.join(1)
	var blocks []Offset
	for range 80 {
		blocks = append(blocks, mustAlloc(t, a, 30000, 0))
	}
	var nodes []Offset
	for range 4 * blocksOf(classNode) {
		off, err := a.ClaimNode()
		require.NoError(t, err)
		nodes = append(nodes, off)
	}
	for hint := range a.geo.chunkCount + 1 {
		for i := range blocks {
			a.u64(hdrChunkHint).Store(hint)
			a.Free(blocks[i])
			v := p.join(2)
			require.Equal(t, blocks[i], mustAlloc(t, v, 30000, 0))
			p.kill(v.self)
		}
		for i := 0; i < len(nodes); i += 777 {
			a.u64(hdrChunkHint).Store(hint)
			require.NoError(t, a.freeNode(nodes[i]))
			v := p.join(2)
			off, err := v.ClaimNode()
			require.NoError(t, err)
			require.Equal(t, nodes[i], off)
			p.kill(v.self)
		}
	}
}

// TestSearchIsBounded: after its first pass, a process does not search all full slabs of a large
// heap for each fresh chunk.
func TestSearchIsBounded(t *testing.T) {
	p := newNeighbours(64<<20, 4)
	a := p.join(1)
	const full = 600
	for range 2 * full {
		mustAlloc(t, a, 30000, 0)
	}
	class, _ := classFor(30000, 1)
	s := &a.heap.search[class]
	require.Equal(t, p.geo.chunkCount, s.passed)
	at := s.at
	mustAlloc(t, a, 30000, 0)
	require.EqualValues(t, full, s.end-s.first, "the fresh chunks lie in a row")
	require.EqualValues(t, nearSlabs, (at+full-s.at)%full)
}
