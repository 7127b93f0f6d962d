//go:build linux

package arenatest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/arenatest"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// TestDeathsBesideSurvivors: victims die while they hold a lock. Meanwhile survivors use the lock,
// inspect all objects, and join and leave.
func TestDeathsBesideSurvivors(t *testing.T) {
	w := arenatest.New(t, nil)
	var wg sync.WaitGroup
	stop := make(chan bool)
	for _, label := range []string{"a", "b"} {
		a := w.Join(label)
		m := first(prims.OpenMutex(a, "m", nil))
		v := first(arena.Value[guarded](a, "v"))
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				switch err := m.LockContext(context.Background()); {
				case err == nil:
					v.N++
					m.Unlock()
				case errors.Is(err, shmsync.ErrOwnerDead):
					m.Recover(func() error {
						v.M = v.N
						return nil
					})
				default:
					panic(err)
				}
				for o := range a.Objects() {
					a.Inspect(o)
				}
				for p := range a.Participants() {
					_ = p.String()
				}
				a.Stats()
			}
		})
	}
	for i := range int(proctest.Rounds(20, 300)) {
		victim := w.JoinVictim(fmt.Sprint("victim ", i))
		m := first(prims.OpenMutex(victim, "m", nil))
		v := first(arena.Value[guarded](victim, "v"))
		for m.LockContext(context.Background()) != nil {
			m.Recover(func() error { return nil })
		}
		v.N++
		w.Kill(victim)
		v.N++
		m.Unlock()
		c := w.Join("guest")
		first(prims.OpenMutex(c, "m", nil))
		must(c.Close())
	}
	close(stop)
	wg.Wait()
}
