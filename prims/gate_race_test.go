//go:build linux

package prims_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/prims"
)

func init() {
	// gaterace lets goroutines use plain variables beside a WaitGroup, Latch, Barrier or Once. The parameter How says
	// which object they use, and whether it orders the accesses.
	proctest.Register("gaterace", func(c *proctest.Child) {
		var p struct{ Arena, How string }
		c.Params(&p)
		a, err := arena.Attach(p.Arena, nil)
		if err != nil {
			c.Fatal(err)
		}
		must := func(err error) {
			if err != nil {
				c.Fatal(err)
			}
		}
		var plain [4]int
		var wg sync.WaitGroup
		defer wg.Wait()
		each := func(f func(i int)) {
			for i := range plain {
				wg.Go(func() { f(i) })
			}
		}
		sum := func() (n int) {
			for _, v := range plain {
				n += v
			}
			return n
		}
		switch p.How {
		case "waitgroup", "waitgroup, not waited for":
			g, err := prims.OpenWaitGroup(a, "", nil)
			must(err)
			for range 100 {
				g.Add(len(plain))
				each(func(i int) { plain[i]++; g.Done() })
				if p.How == "waitgroup" {
					g.Wait()
				}
				sum()
			}
		case "latch":
			for range 100 {
				l, err := prims.OpenLatch(a, "", int64(len(plain)), nil)
				must(err)
				each(func(i int) { plain[i]++; l.CountDown(1) })
				for i := 0; !l.TryWait() && i < 100; i++ {
				}
				l.Wait()
				sum()
			}
		case "barrier", "barrier, too early":
			total := 0
			b, err := prims.OpenBarrier(a, "", int64(len(plain)), &prims.BarrierOptions{Completion: func() { total = sum() }})
			must(err)
			each(func(i int) {
				for range 100 {
					plain[i]++
					if p.How == "barrier" {
						b.ArriveAndWait()
					} else {
						b.Arrive(1)
					}
					_ = total
					if p.How == "barrier" {
						b.ArriveAndWait()
					}
				}
			})
		case "once":
			for range 100 {
				o, err := prims.OpenOnce(a, "", nil)
				must(err)
				each(func(int) {
					o.Do(func() { plain[0]++ })
					_ = plain[0]
				})
				wg.Wait()
			}
		}
	})
}

// TestRaceDetectorOfGates: a WaitGroup, a Latch, a Barrier or a Once orders accesses of plain
// variables. Go's race detector reports exactly those accesses that the object does not order.
func TestRaceDetectorOfGates(t *testing.T) {
	if !race.Enabled {
		proctest.Skip(t, "needs -race", "gaterace")
	}
	for how, code := range map[string]int{
		"waitgroup": 0, "latch": 0, "barrier": 0, "once": 0,
		"waitgroup, not waited for": raceExit, "barrier, too early": raceExit,
	} {
		t.Run(how, func(t *testing.T) {
			a := newArena(t, nil)
			p := proctest.Start(t, "gaterace", proctest.Params(struct{ Arena, How string }{nameOf(a), how}))
			e := p.Wait(t)
			require.Equal(t, code, e.Code, "%v", e)
		})
	}
}
