//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// canary is data in the arena that the owner of a lock writes. An owner that finds another tag than its own is
// not the only owner.
type canary struct {
	Tag   atomic.Uint64
	Turns atomic.Uint64
	_     [112]byte
}

const tightLocks = 8

type tightParams struct{ Arena string }

func tightName(i int) string { return fmt.Sprintf("tight-%d", i) }

// tightPolicy alternates between the policies, so that the test covers both ways in which the hold of a dead
// process is taken.
func tightPolicy(i int) prims.Policy { return prims.PolicyReport + prims.Policy(i&1) }

func openTight(a *arena.Arena) (locks []*prims.Mutex, board *[tightLocks]canary, err error) {
	for i := range tightLocks {
		m, err := prims.OpenMutex(a, tightName(i), &prims.MutexOptions{Policy: tightPolicy(i)})
		if err != nil {
			return nil, nil, err
		}
		locks = append(locks, m)
	}
	board, err = arena.Value[[tightLocks]canary](a, "board")
	return locks, board, err
}

func init() {
	// The process "tight" starts goroutines on several threads. They lock and unlock until the process is killed. Six
	// of the locks are used by one goroutine each, so their holds become biased. Two goroutines share each of the other
	// locks.
	proctest.Register("tight", func(c *proctest.Child) {
		var p tightParams
		c.Params(&p)
		runtime.GOMAXPROCS(4)
		a, err := arena.Attach(p.Arena, &arena.Options{Label: "victim"})
		if err != nil {
			c.Fatal(err)
		}
		// A hold is biased only if fences work.
		if shmsync.FeatureMembarrier.Have() {
			for !a.Fenced() {
				runtime.Gosched()
			}
		}
		locks, board, err := openTight(a)
		if err != nil {
			c.Fatal(err)
		}
		me := uint64(os.Getpid())
		c.Ready()
		c.Await()
		for g := range tightLocks + 2 {
			i := g % tightLocks
			go func() {
				for {
					if err := locks[i].LockContext(context.Background()); err != nil {
						// The previous process died with the lock, and the test is about to take it.
						runtime.Gosched()
						continue
					}
					board[i].Tag.Store(me)
					for range rand.IntN(8) {
						if tag := board[i].Tag.Load(); tag != me {
							c.Fatalf("lock %d: the tag is %d, not ours (%d): %v", i, tag, me, locks[i])
						}
					}
					board[i].Turns.Add(1)
					locks[i].Unlock()
				}
			}()
		}
		c.Await()
	})
}

// TestMutexNeverTwoOwners: the threads of a process lock and unlock in tight loops. The process is killed, and
// its locks are taken at once. No owner ever finds another owner. The main danger is a late store of a thread
// of the killed process that still runs: it would free the hold of the next owner.
func TestMutexNeverTwoOwners(t *testing.T) {
	rounds := proctest.Rounds(40, 400)
	neverTwoOwners(t, rounds)
}

func neverTwoOwners(t *testing.T, rounds int, env ...string) {
	a := newArena(t, &arena.Options{Label: "survivor"})
	locks, board, err := openTight(a)
	require.NoError(t, err)
	dump := func() string { return words(a) }

	const ahead = 3
	var victims []*proctest.Proc
	spawn := func() {
		victims = append(victims, proctest.Start(t, "tight", proctest.Params(tightParams{nameOf(a)}),
			proctest.Env(env...), proctest.Dump(dump)))
	}
	for range min(ahead, rounds) {
		spawn()
	}
	var dead, free, biased int
	start := time.Now()
	for round := range rounds {
		v := victims[0]
		victims = victims[1:]
		v.Await(t)
		if round+ahead < rounds {
			spawn()
		}
		turns := board[0].Turns.Load()
		v.Send("go")
		eventually(t, "the victim locks", dump, func() bool { return board[0].Turns.Load() > turns+10 })
		for end := time.Now().Add(time.Duration(rand.IntN(300_000))); time.Now().Before(end); {
		}
		v.Signal(t, syscall.SIGKILL)
		for k := range tightLocks {
			i := (round + k) % tightLocks
			m := locks[i]
			if o := m.OwnerWord(); o>>29 == 1 {
				biased++
			}
			ctx, cancel := context.WithTimeout(t.Context(), timeout())
			check := func() error { return solitary(m, &board[i]) }
			switch err := m.LockContext(ctx); {
			case err == nil:
				require.NoError(t, check(), "round %d, lock %d", round, i)
				m.Unlock()
				free++
			case errors.Is(err, shmsync.ErrOwnerDead):
				requireDied(t, err, v.Pid(), "victim")
				require.NoError(t, m.RecoverContext(ctx, check), "round %d, lock %d", round, i)
				dead++
			default:
				t.Fatalf("round %d, lock %d: %v\nwords: %s", round, i, err, words(a))
			}
			cancel()
		}
		v.WaitSignal(t, syscall.SIGKILL)
	}
	t.Logf("%d rounds in %v: %d locks were free or became so, %d recovered, %d found biased",
		rounds, time.Since(start).Round(time.Millisecond), free, dead, biased)
	alone(t, a, 1)
	sound(t, a)
	for i, m := range locks {
		require.True(t, m.TryLock(), "lock %d: %v", i, m)
		m.Unlock()
	}
}

// solitary returns an error if another owner appears while the caller holds m for a while.
func solitary(m *prims.Mutex, c *canary) error {
	me := uint64(os.Getpid())
	c.Tag.Store(me)
	for end := time.Now().Add(40 * time.Microsecond); time.Now().Before(end); {
		if !m.HeldByUs() {
			return fmt.Errorf("%v, while we hold it", m)
		}
		if tag := c.Tag.Load(); tag != me {
			return fmt.Errorf("%d is inside beside us: %v", tag, m)
		}
	}
	return nil
}

// requireDied requires that err names the dead process.
func requireDied(t testing.TB, err error, pid int, label string) {
	t.Helper()
	require.ErrorIs(t, err, shmsync.ErrOwnerDead)
	require.ErrorIs(t, err, syscall.EOWNERDEAD)
	var e *shmsync.Error
	require.ErrorAs(t, err, &e)
	require.NotNil(t, e.Who, "%v", err)
	require.Equal(t, pid, e.Who.PID, "%v", err)
	require.Equal(t, label, e.Who.Label, "%v", err)
	require.Positive(t, e.Who.Slot, "%v", err)
}
