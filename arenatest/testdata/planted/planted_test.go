// Package planted has tests with and without a data race on data in an arena. A test of package
// arenatest runs these tests under the race detector.
package planted

import (
	"sync"
	"testing"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/arenatest"
	"github.com/shmsync/shmsync/prims"
)

type ledger struct{ Entries, Sum uint64 }

// enter returns a function that makes an entry in the ledger, under the lock if locked is true.
func enter(t *testing.T, a *arena.Arena, locked bool) func() {
	m, err := prims.OpenMutex(a, "m", nil)
	if err != nil {
		t.Fatal(err)
	}
	v, err := arena.Value[ledger](a, "ledger")
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if locked {
			m.Lock()
			defer m.Unlock()
		}
		v.Entries++
		v.Sum += 10
	}
}

// both calls f and g on two goroutines that do not wait for each other.
func both(f, g func()) {
	var wg sync.WaitGroup
	wg.Go(f)
	wg.Go(g)
	wg.Wait()
}

func TestTwoParticipantsOneWithoutTheLock(t *testing.T) {
	w := arenatest.New(t, nil)
	both(enter(t, w.Join("a"), true), enter(t, w.Join("b"), false))
}

func TestTwoGoroutinesWithoutTheLock(t *testing.T) {
	f := enter(t, arenatest.New(t, nil).JoinVictim("a"), false)
	both(f, f)
}

func TestTwoParticipantsWithTheLock(t *testing.T) {
	w := arenatest.New(t, nil)
	both(enter(t, w.Join("a"), true), enter(t, w.Join("b"), true))
}
