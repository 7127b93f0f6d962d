//go:build linux

package arenatest_test

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/arenatest"
	"github.com/shmsync/shmsync/prims"
)

// TestWorldsThatCannotBeMade: if a World cannot be made, the test fails and does not panic.
func TestWorldsThatCannotBeMade(t *testing.T) {
	require.Contains(t, failures(t, func(t testing.TB) { arenatest.New(t, &arena.Options{Size: 1}) }), "arenatest: ")
	require.Contains(t, failures(t, func(t testing.TB) {
		w := arenatest.New(t, &arena.Options{MaxParticipants: 1})
		w.Join("first")
		w.Join("second")
		w.Join("third")
	}), "arenatest: join ")
}

// A report says how many holds are left, and which participants have died.
func TestLeftoversAreCounted(t *testing.T) {
	var said string
	report := failures(t, func(t testing.TB) {
		w := arenatest.New(t, nil)
		victim := w.JoinVictim("victim")
		worker := w.Join("worker")
		first(prims.OpenSemaphore(worker, "limit", 3, nil)).Acquire(2)
		w.Kill(victim)
		lock := first(prims.OpenMutex(worker, "ledger", nil))
		lock.Lock()
		//lint:ignore SA2001 it makes the worker notice the death
		lock.Unlock()
		said = w.String()
	})
	require.Contains(t, report, `"worker" still has limit: permits (2)`)
	require.Contains(t, said, `"worker" has it: permits (2)`)
}

// TestCheckThatAlwaysFails uses a check that returns the same error after every death. The report has the error once,
// and says how many further deaths caused it. A store into memory that belongs to no object is described by its offset
// in the arena.
func TestCheckThatAlwaysFails(t *testing.T) {
	report := failures(t, func(t testing.TB) {
		w := arenatest.New(t, nil)
		a := w.Join("writer")
		words := arena.At[[2]atomic.Uint64](a, first(a.Alloc(16, 8)))
		for !a.Fenced() { // until the participant stores nothing in the background
			runtime.Gosched()
		}
		calls := 0
		w.KillAtEveryStore(func() {
			words[0].Store(1 << 40)
			words[1].Store(3)
		}, func(*arena.Arena) error {
			if calls++; calls == 1 {
				return nil
			}
			return errors.New("lost")
		})
	})
	require.Contains(t, report, "lost")
	// Stores of other threads, such as a death watcher of the World, may be counted, too. So the total is not fixed.
	require.Regexp(t, "right after store 1 of [0-9]+ leaves", report)
	require.Contains(t, report, "of the arena")
	require.Regexp(t, "after [1-9][0-9]* more deaths the check fails", report)
}
