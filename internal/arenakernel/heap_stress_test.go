//go:build linux

package arenakernel

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/shmsync/shmsync"
	"github.com/stretchr/testify/require"
)

// TestHeapHammer: participants allocate blocks, write marks into them, pass them to each other and
// free them. Some stop for ever in the middle of an allocation. No two participants may get the
// same block.
func TestHeapHammer(t *testing.T) {
	for _, size := range []uint64{1 << 20, 4 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) { hammerHeap(t, size) })
	}
}

func hammerHeap(t *testing.T, size uint64) {
	const members = 4
	lives, steps := 20, 300
	if testing.Short() {
		lives = 4
	}
	type piece struct {
		off  Offset
		size uint64
		mark byte
	}
	p := newNeighbours(size, members+1)
	reaper := p.join(members + 1)
	var reaping sync.Mutex
	pieces := make(chan piece, 60) // blocks that one participant passes to another
	failed := make(chan string, members)
	sizes := []uint64{30, 64, 200, 1000, 5000, 32768, 40000, 3 * chunkSize}

	live := func(a *Arena, rng *rand.Rand) error {
		free := func(q piece) error {
			b := a.slice(q.off, q.size)
			if n := bytes.Count(b, []byte{q.mark}); n != len(b) {
				return fmt.Errorf("%d bytes of %v have been changed", len(b)-n, q.off)
			}
			a.Free(q.off)
			return nil
		}
		for range steps {
			want := sizes[rng.IntN(len(sizes))]
			off, err := a.Alloc(want, 0)
			if err != nil {
				if !isAny(err, shmsync.ErrNoSpace) {
					return err
				}
				select {
				case q := <-pieces:
					if err := free(q); err != nil {
						return err
					}
				default:
				}
				continue
			}
			q := piece{off, want, byte(rng.IntN(255) + 1)}
			b := a.slice(off, want)
			if n := bytes.Count(b, []byte{0}); n != len(b) {
				return fmt.Errorf("%d bytes of %v are not zero", len(b)-n, off)
			}
			// The stores are atomic, because the memory is on the Go heap, where the race detector
			// checks it. A reaper that found the block claimed may still read the bytes at which an
			// object has its header.
			for k := uint64(0); k < want; k += 8 {
				a.u64(off + Offset(k)).Store(0x0101010101010101 * uint64(q.mark))
			}
			select {
			case pieces <- q:
			default:
				if err := free(q); err != nil {
					return err
				}
			}
		}
		return nil
	}
	var wg sync.WaitGroup
	for slot := 1; slot <= members; slot++ {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(slot), size))
			for range lives {
				a := p.join(slot)
				if err := live(a, rng); err != nil {
					failed <- err.Error()
					return
				}
				a.claim(sizes[rng.IntN(len(sizes))], 1)
				a.claimBlock(classNode, roomOfLinked)
				a.claimChunk(0, roomOfAll)
				reaping.Lock()
				p.reap(reaper, a.self)
				reaping.Unlock()
			}
		})
	}
	wg.Wait()
	close(failed)
	for what := range failed {
		t.Error(what)
	}
	requireSound(t, reaper)
	s := reaper.Stats()
	require.Zero(t, s.Claimed+s.Nodes)
	require.EqualValues(t, len(pieces), s.Raw)
	close(pieces)
	for q := range pieces {
		reaper.Free(q.off)
	}
	require.Zero(t, reaper.Stats().BytesUsed)
}
