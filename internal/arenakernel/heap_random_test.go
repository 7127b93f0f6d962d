//go:build linux && crashpoint

package arenakernel

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/stretchr/testify/require"
)

// TestRandomDeaths: participants call all operations and die at random points, while others recover
// what they leave. In the end the heap contains exactly the blocks that are still allocated.
func TestRandomDeaths(t *testing.T) {
	const members = 5
	rounds := proctest.Rounds(60, 300)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	p := newNeighbours(3<<20, members+1)
	reaper := p.join(members + 1)

	var mu sync.Mutex
	wordPtr := map[Offset]bool{} // the blocks that Alloc has returned to any participant
	slots := map[int]int{}       // slots by goroutine
	var ops atomic.Int64
	var stop atomic.Bool
	var wg sync.WaitGroup
	failed := make(chan string, 100)
	names := []string{"a", "b", "c"}

	live := func(a *Arena, slot int) {
		defer wg.Done()
		mu.Lock()
		slots[goroutine()] = slot
		mu.Unlock()
		rng := rand.New(rand.NewPCG(seed, uint64(a.self)))
		for !stop.Load() {
			ops.Add(1)
			switch rng.IntN(5) {
			case 0:
				size := []uint64{50, 300, 30000, 70000, 200000}[rng.IntN(5)]
				off, err := a.Alloc(size, 0)
				if err != nil && !isAny(err, shmsync.ErrNoSpace) {
					failed <- err.Error()
					return
				}
				if err == nil {
					mu.Lock()
					if wordPtr[off] {
						failed <- "handed out twice: " + off.String()
					}
					wordPtr[off] = true
					mu.Unlock()
				}
			case 1:
				mu.Lock()
				var off Offset
				for off = range wordPtr {
					break
				}
				delete(wordPtr, off)
				mu.Unlock()
				if off != 0 {
					a.Free(off)
				}
			case 2:
				o, _, err := a.OpenObject(spec(names[rng.IntN(3)]))
				if err != nil {
					if !isAny(err, shmsync.ErrNoSpace) {
						failed <- err.Error()
						return
					}
					continue
				}
				if off, err := a.PollerNode(o, a.u64(o.Body), anyNode); err == nil {
					a.ReleasePollerNode(off)
				} else if !isAny(err, shmsync.ErrNoSpace) {
					failed <- err.Error()
				}
				a.CloseObject(o)
			case 3:
				if err := a.Delete(names[rng.IntN(3)]); err != nil && !isAny(err, fs.ErrNotExist, syscall.EBUSY) {
					failed <- err.Error()
					return
				}
			case 4:
				if off, err := a.ClaimNode(); err == nil {
					a.freeNode(off)
				}
			}
		}
	}
	as := map[int]*Arena{}
	start := func(slot int) {
		as[slot] = p.join(slot)
		wg.Add(1)
		go live(as[slot], slot)
	}
	for slot := 1; slot <= members; slot++ {
		start(slot)
	}

	var points []string
	for _, d := range deeds {
		points = append(points, d.points...)
	}
	slices.Sort(points)
	points = append(points, "arena.object.withdrawing")
	deaths := map[string]int{}
	for range rounds {
		point, _ := pointOf(points[rng.IntN(len(points))])
		dead := make(chan int, 1)
		over := false // guarded by mu; the round is over, and no participant dies any more
		crashpoint.ArmFunc(point, 1+rng.IntN(20), func() {
			mu.Lock()
			late := over
			if !late {
				dead <- goroutine()
			}
			mu.Unlock()
			if !late {
				select {}
			}
		})
		begun := ops.Load()
		for len(dead) == 0 && ops.Load() < begun+2000 && len(failed) == 0 {
			runtime.Gosched()
		}
		crashpoint.Disarm()
		mu.Lock()
		over = true
		mu.Unlock()
		if len(failed) > 0 {
			break
		}
		if len(dead) == 0 {
			continue
		}
		deaths[point]++
		mu.Lock()
		slot := slots[<-dead]
		mu.Unlock()
		p.reap(reaper, as[slot].self)
		wg.Done()
		start(slot)
	}
	stop.Store(true)
	wg.Wait()
	close(failed)
	for what := range failed {
		t.Error(what)
	}
	t.Logf("deaths: %v", deaths)
	require.Greater(t, len(deaths), 5)
	for slot := 1; slot <= members; slot++ {
		p.reap(reaper, as[slot].self)
	}
	requireSound(t, reaper)
	for _, name := range names {
		if err := reaper.Delete(name); err != nil {
			require.ErrorIs(t, err, fs.ErrNotExist)
		}
	}
	s := reaper.Stats()
	require.EqualValues(t, len(wordPtr), s.Raw)
	require.Zero(t, s.Claimed+s.Objects+s.Nodes, fmt.Sprintf("%+v", s))
	for off := range wordPtr {
		reaper.Free(off)
	}
	requireSound(t, reaper)
	require.Zero(t, reaper.Stats().BytesUsed)
	sweepAll(reaper)
	for i := range p.geo.chunkCount {
		if w := reaper.loadChunk(i); w.kind() != chunkFree {
			require.True(t, w.slabOf(classNode), "chunk %d: %#x", i, uint64(w))
		}
	}
}
