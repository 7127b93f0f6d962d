//go:build linux

package prims_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/prims"
)

// raceExit is the exit status of a program in which the race detector has found a race.
const raceExit = 66

func init() {
	// race makes goroutines use a plain variable: under a lock, in the order that a Futex gives, or unguarded.
	proctest.Register("race", func(c *proctest.Child) {
		var p struct{ Arena, How string }
		c.Params(&p)
		a, err := arena.Attach(p.Arena, nil)
		if err != nil {
			c.Fatal(err)
		}
		var m interface {
			sync.Locker
			TryLock() bool
			LockContext(ctx context.Context) error
		}
		m, err = prims.OpenMutex(a, "m", nil)
		if strings.HasPrefix(p.How, "cohort") {
			m, err = prims.OpenCohortMutex(a, "c", &prims.CohortMutexOptions{Nodes: cohortNodes})
		}
		if err != nil {
			c.Fatal(err)
		}
		f, err := prims.OpenFutex(a, "f", nil)
		if err != nil {
			c.Fatal(err)
		}
		var wg sync.WaitGroup
		plain := 0
		switch p.How {
		case "mutex", "cohort mutex", "unguarded":
			for i := range 4 {
				wg.Go(func() {
					for range 300 {
						switch {
						case p.How == "unguarded":
							plain++
							continue
						case i == 0:
							for !m.TryLock() {
							}
						case i == 1:
							if m.LockContext(context.Background()) != nil {
								c.Fatal("LockContext")
							}
						default:
							m.Lock()
						}
						plain++
						m.Unlock()
					}
				})
			}
		case "futex":
			// The goroutines take turns with the variable, and signal each turn with a Post.
			wg.Go(func() {
				for n := range uint64(300) {
					f.Wait(2*n + 1)
					plain++
					f.Post()
				}
			})
			for n := range uint64(300) {
				plain++
				f.Post()
				if n%2 == 0 {
					f.Wait(2*n + 2)
				} else {
					for f.Get() < 2*n+2 {
					}
				}
			}
		case "futex, too early":
			wg.Go(func() {
				f.Wait(1)
				plain++
			})
			f.Post()
			plain++ // after the Post, so nothing orders the two accesses
		case "another lock":
			other, err := prims.OpenMutex(a, "other", nil)
			if err != nil {
				c.Fatal(err)
			}
			for _, l := range []sync.Locker{m, other} {
				wg.Go(func() {
					for range 300 {
						l.Lock()
						plain++
						l.Unlock()
					}
				})
			}
		}
		wg.Wait()
	})
}

// TestRaceDetector checks that the race detector of Go reports races on variables of a program correctly, although it
// does not see shared memory.
func TestRaceDetector(t *testing.T) {
	if !race.Enabled {
		proctest.Skip(t, "needs -race", "race")
	}
	for how, code := range map[string]int{
		"mutex": 0, "cohort mutex": 0, "futex": 0,
		"unguarded": raceExit, "another lock": raceExit, "futex, too early": raceExit,
	} {
		t.Run(how, func(t *testing.T) {
			a := newArena(t, nil)
			p := proctest.Start(t, "race", proctest.Params(struct{ Arena, How string }{nameOf(a), how}))
			e := p.Wait(t)
			require.Equal(t, code, e.Code, "%v", e)
			if code != 0 {
				require.Contains(t, e.Stderr, "WARNING: DATA RACE")
			}
		})
	}
}
