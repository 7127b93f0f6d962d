//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
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

func TestMutexTryLock(t *testing.T) {
	everywhere(t, func(t *testing.T, holder, other *actor, a *arena.Arena) {
		require.True(t, holder.op(t, "trylock", "m").OK)
		require.False(t, other.op(t, "trylock", "m").OK)
		require.False(t, holder.op(t, "trylock", "m").OK, "it is not recursive")
		holder.must(t, order{Op: "unlock", Object: "m"})
		require.True(t, other.op(t, "trylock", "m").OK)
		require.False(t, holder.op(t, "trylock", "m").OK)
		other.must(t, order{Op: "unlock", Object: "m"})
		require.Equal(t, "free", holder.op(t, "state", "m").Text)
	})
}

func TestMutexWaits(t *testing.T) {
	everywhere(t, func(t *testing.T, holder, other *actor, a *arena.Arena) {
		holder.must(t, order{Op: "lock", Object: "m"})
		lock := other.blocked(t, order{Op: "lock", Object: "m"})
		holder.must(t, order{Op: "unlock", Object: "m"})
		require.Empty(t, other.wait(t, lock).Err)
		// Now the other process waits.
		lock = holder.blocked(t, order{Op: "lockctx", Object: "m"})
		other.must(t, order{Op: "unlock", Object: "m"})
		require.Empty(t, holder.wait(t, lock).Err)
		holder.must(t, order{Op: "unlock", Object: "m"})
	})
}

func TestMutexContext(t *testing.T) {
	everywhere(t, func(t *testing.T, holder, other *actor, a *arena.Arena) {
		// A free lock takes precedence over a context that has ended.
		other.must(t, order{Op: "lockctx", Object: "m", Done: true})
		other.must(t, order{Op: "unlock", Object: "m"})

		holder.must(t, order{Op: "lock", Object: "m"})
		r := other.do(t, order{Op: "lockctx", Object: "m", Done: true})
		require.Equal(t, []string{"ctx-canceled"}, r.Is)

		r = other.do(t, order{Op: "lockctx", Object: "m", Limit: 30 * time.Millisecond})
		require.Equal(t, []string{"ctx-deadline"}, r.Is)
		require.GreaterOrEqual(t, r.Took, 30*time.Millisecond)
		require.Less(t, r.Took, timeout())

		id := other.blocked(t, order{Op: "lockctx", Object: "m"})
		other.must(t, order{Op: "cancel", N: id})
		require.Equal(t, []string{"ctx-canceled"}, other.wait(t, id).Is)

		// A waiter that gave up has left nothing behind: the next waiter gets the lock.
		id = other.blocked(t, order{Op: "lockctx", Object: "m"})
		holder.must(t, order{Op: "unlock", Object: "m"})
		require.Empty(t, other.wait(t, id).Err)
		other.must(t, order{Op: "unlock", Object: "m"})
	})
}

// TestMutexCancelPassesOn checks that a waiter gets the lock although the contexts of other waiters end while the
// holder unlocks.
func TestMutexCancelPassesOn(t *testing.T) {
	everywhere(t, func(t *testing.T, holder, other *actor, a *arena.Arena) {
		for range 30 {
			cancelPassesOn(t, holder, other, 3)
		}
	})
}

func cancelPassesOn(t *testing.T, holder, other *actor, waiters int) {
	t.Helper()
	holder.must(t, order{Op: "lock", Object: "m"})
	var leaving []int
	for range waiters {
		leaving = append(leaving, other.blocked(t, order{Op: "lockctx", Object: "m"}))
	}
	stays := other.blocked(t, order{Op: "lockctx", Object: "m", Limit: timeout()})
	// The release races with the cancellations.
	release := holder.start(order{Op: "unlock", Object: "m"})
	for _, id := range leaving {
		other.start(order{Op: "cancel", N: id})
	}
	holder.wait(t, release)
	got := 0
	for _, id := range append(leaving, stays) {
		r := other.wait(t, id)
		if r.Err == "" {
			got++
			other.must(t, order{Op: "unlock", Object: "m"})
		} else {
			require.NotEqual(t, id, stays, "%v", r)
		}
	}
	require.Positive(t, got)
}

func TestMutexUnlockMistakes(t *testing.T) {
	everywhere(t, func(t *testing.T, holder, other *actor, a *arena.Arena) {
		for _, x := range []*actor{holder, other} {
			p := x.op(t, "unlock", "ledger").Panic
			require.Contains(t, p, "ledger")
			require.Contains(t, p, "free")
		}
		holder.must(t, order{Op: "lock", Object: "ledger"})
		if holder.proc != nil { // within a process any goroutine may unlock
			p := other.op(t, "unlock", "ledger").Panic
			require.Contains(t, p, "ledger")
			require.Contains(t, p, "held by")
			require.Contains(t, p, "does not hold")
		}
		require.True(t, holder.op(t, "state", "ledger").OK, "a wrong Unlock has freed it")
		holder.must(t, order{Op: "unlock", Object: "ledger"})
		require.Contains(t, holder.op(t, "unlock", "ledger").Panic, "ledger", "a second Unlock")
		require.True(t, other.op(t, "trylock", "ledger").OK)
	})
}

func TestMutexRecoverHealthy(t *testing.T) {
	everywhere(t, func(t *testing.T, holder, other *actor, a *arena.Arena) {
		r := holder.must(t, order{Op: "recover", Object: "m"})
		require.False(t, r.OK, "the repair of a healthy lock has run")
		require.Equal(t, "free", holder.op(t, "state", "m").Text)
		// Recover waits for the holder of a healthy lock, until ctx ends.
		holder.must(t, order{Op: "lock", Object: "m"})
		require.Equal(t, []string{"ctx-deadline"}, other.do(t, order{Op: "recover", Object: "m", Limit: 20 * time.Millisecond}).Is)
		id := other.blocked(t, order{Op: "recover", Object: "m"})
		holder.must(t, order{Op: "unlock", Object: "m"})
		r = other.wait(t, id)
		require.Empty(t, r.Err)
		require.False(t, r.OK)
		require.True(t, holder.op(t, "trylock", "m").OK)
	})
}

func TestMutexState(t *testing.T) {
	a := newArena(t, &arena.Options{Label: "me"})
	m, err := openActorMutex(a, "m", nil)
	require.NoError(t, err)
	require.Equal(t, prims.MutexState{Word: "free"}, m.State())
	require.Equal(t, "mutex m: free", m.String())
	m.Lock()
	s := m.State()
	require.True(t, s.Held)
	require.False(t, s.Waiting)
	require.NoError(t, s.Err)
	require.Equal(t, os.Getpid(), s.Owner.PID)
	require.Equal(t, "me", s.Owner.Label)
	require.Regexp(t, `^held by 1\.1`, s.Word)
	require.Regexp(t, `^mutex m: held by 1\.1`, m.String())
	done := make(chan struct{})
	go func() {
		m.Lock()
		m.Unlock()
		close(done)
	}()
	eventually(t, "it waits", m.String, func() bool { return m.Waiters() == 1 })
	require.True(t, m.State().Waiting)
	m.Unlock()
	<-done

	anonymous := newMutex(t, a, nil)
	require.Equal(t, "mutex "+anonymous.Offset().String()+": free", anonymous.String())
}

func TestMutexOpen(t *testing.T) {
	a := newArena(t, nil)
	m, err := prims.OpenMutex(a, "m", &prims.MutexOptions{Spin: time.Microsecond})
	require.NoError(t, err)
	require.Equal(t, prims.PolicyReport, m.Policy())
	require.Equal(t, time.Microsecond, m.Spin())
	again, err := prims.OpenMutex(a, "m", nil)
	require.NoError(t, err)
	require.NotSame(t, m, again, "each opening is a handle of its own")
	same, err := prims.OpenMutex(a, "m", &prims.MutexOptions{Policy: prims.PolicyReport})
	require.NoError(t, err)
	require.NotSame(t, m, same)
	at, err := prims.MutexAt(a, m.Offset())
	require.NoError(t, err)
	require.Equal(t, m.Offset(), at.Offset())

	_, err = prims.OpenMutex(a, "m", &prims.MutexOptions{Policy: prims.PolicyRelease})
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.ErrorContains(t, err, "report")
	require.ErrorContains(t, err, "release")
	require.ErrorContains(t, err, `"m"`)
	_, err = prims.OpenFutex(a, "m", nil)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.ErrorContains(t, err, "a Mutex")
	require.ErrorContains(t, err, "a Futex")
	f, err := prims.OpenFutex(a, "f", nil)
	require.NoError(t, err)
	_, err = prims.MutexAt(a, f.Offset())
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.ErrorContains(t, err, "a Futex")
	require.ErrorContains(t, err, "a Mutex")
	_, err = prims.FutexAt(a, m.Offset())
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	for _, off := range []arena.Offset{0, 1, m.Offset() + 64, arena.Offset(a.Size()), ^arena.Offset(0)} {
		_, err = prims.MutexAt(a, off)
		require.Error(t, err, "%v", off)
		_, err = prims.FutexAt(a, off)
		require.Error(t, err, "%v", off)
	}

	// The test has opened four handles and closed four. The opens that failed have left no handle
	// open.
	m.Lock()
	for _, x := range []*prims.Mutex{again, m, at, same} {
		require.ErrorContains(t, a.Delete("m"), "open")
		require.NoError(t, x.Close())
	}
	require.ErrorIs(t, m.Close(), shmsync.ErrClosed)
	// A hold outlives the Close of its handle, and keeps the object from being deleted.
	require.ErrorIs(t, a.Delete("m"), syscall.EBUSY)
	require.ErrorContains(t, a.Delete("m"), "holds it (exclusive)")
	m, err = prims.OpenMutex(a, "m", nil)
	require.NoError(t, err)
	require.True(t, m.State().Held)
	m.Unlock()
	require.NoError(t, m.Close())
	require.NoError(t, a.Delete("m"))
	require.NoError(t, f.Close())
	require.ErrorIs(t, f.Close(), shmsync.ErrClosed)
	require.NoError(t, a.Delete("f"))
	require.Zero(t, a.Stats().Objects)

	released, err := prims.OpenMutex(a, "r", &prims.MutexOptions{Policy: prims.PolicyRelease})
	require.NoError(t, err)
	require.Equal(t, prims.PolicyRelease, released.Policy())
	other, err := prims.OpenMutex(a, "r", nil)
	require.NoError(t, err)
	require.Equal(t, prims.PolicyRelease, other.Policy(), "an opening without a policy accepts any policy")
}

func init() {
	proctest.Register("mutex/at", func(c *proctest.Child) {
		var p struct {
			Arena string
			Off   arena.Offset
		}
		c.Params(&p)
		a, err := arena.Attach(p.Arena, nil)
		if err != nil {
			c.Fatal(err)
		}
		m, err := prims.MutexAt(a, p.Off)
		if err != nil {
			c.Fatal(err)
		}
		c.Say(m.TryLock())
		m.Lock()
		c.Say(m.Offset() == p.Off)
		m.Unlock()
	})
}

// TestMutexAtElsewhere: another process opens an anonymous object by its offset.
func TestMutexAtElsewhere(t *testing.T) {
	a := newArena(t, nil)
	m := newMutex(t, a, nil)
	m.Lock()
	p := proctest.Start(t, "mutex/at", proctest.Params(struct {
		Arena string
		Off   arena.Offset
	}{nameOf(a), m.Offset()}), proctest.Dump(m.String))
	var got bool
	p.Recv(t, &got)
	require.False(t, got, "TryLock of a lock that is held elsewhere")
	m.Unlock()
	p.Recv(t, &got)
	require.True(t, got)
	p.WaitExit(t)
	m.Lock()
	m.Unlock()
}

// TestMutexesAreDifferent: objects with different names, and anonymous objects, are different
// locks.
func TestMutexesAreDifferent(t *testing.T) {
	a := newArena(t, nil)
	for range 3 {
		m := newMutex(t, a, nil)
		require.True(t, m.TryLock())
	}
	for _, name := range []string{"a", "b", "ä b\n"} {
		m, err := openActorMutex(a, name, nil)
		require.NoError(t, err)
		require.True(t, m.TryLock(), name)
		require.Contains(t, m.String(), name)
	}
}

// TestMutexReopenHammer checks that goroutines do not disturb each other when all of them open, use and close handles
// on one Mutex at the same time. Afterwards the Mutex can be deleted.
func TestMutexReopenHammer(t *testing.T) {
	a := newArena(t, nil)
	rounds := proctest.Rounds(50, 300)
	var wg sync.WaitGroup
	errs := make(chan error, 64)
	counter := 0
	for range 32 { // more goroutines than may sleep in the kernel
		wg.Go(func() {
			for range rounds {
				m, err := openActorMutex(a, "m", nil)
				if err != nil {
					errs <- err
					return
				}
				ctx, cancel := context.WithTimeout(context.Background(), timeout())
				err = m.LockContext(ctx)
				cancel()
				if err != nil {
					errs <- fmt.Errorf("%v: %w", m, err)
					return
				}
				counter++
				m.Unlock()
				m.Close()
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		t.Fatal(err, words(a))
	default:
	}
	require.Equal(t, 32*rounds, counter)
	require.NoError(t, a.Delete("m"))
	sound(t, a)
	eventually(t, "the node goes back", func() string { return fmt.Sprintf("%+v", a.Stats()) }, func() bool { return a.Stats().Nodes == 0 })
}

func TestMutexHammerElsewhere(t *testing.T) {
	for _, procs := range []int{2, 4} {
		for _, goroutines := range []uint64{1, 4, 20} {
			t.Run(fmt.Sprintf("%d processes of %d", procs, goroutines), func(t *testing.T) {
				each := proctest.Rounds(200, 1000)
				hammerElsewhere(t, procs, goroutines, each)
			})
		}
	}
}

func hammerElsewhere(t *testing.T, procs int, goroutines uint64, each int, opts ...proctest.Option) {
	a := newArena(t, nil)
	var actors []*actor
	var ids []int
	for i := range procs {
		actors = append(actors, remoteActor(t, a, fmt.Sprint("hammer ", i), opts...))
	}
	for _, x := range actors {
		ids = append(ids, x.start(order{Op: "steps", Object: "m", N: each, Token: goroutines}))
	}
	for i, x := range actors {
		r := x.wait(t, ids[i])
		require.Empty(t, r.Err+r.Panic)
	}
	v, err := arena.Value[int64](a, "counter")
	require.NoError(t, err)
	require.EqualValues(t, procs*int(goroutines)*each, *v)
	m, err := openActorMutex(a, "m", nil)
	require.NoError(t, err)
	require.False(t, m.State().Held)
	sound(t, a)
}

// TestMutexArenaClose checks a process that closes the arena. The waiters of this process get an error, whether they
// sleep or park. The locks that it held are owner-dead.
func TestMutexArenaClose(t *testing.T) {
	for _, waiters := range []int{1, 3, 30} {
		t.Run(fmt.Sprint(waiters), func(t *testing.T) {
			a := newArena(t, nil)
			m, err := openActorMutex(a, "m", nil)
			require.NoError(t, err)
			m.Lock()
			x := remoteActor(t, a, "closer")
			x.must(t, order{Op: "lock", Object: "held"})
			var ids []int
			for i := range waiters {
				o := order{Op: "lock", Object: "m"}
				if i%2 == 1 {
					o.Op = "lockctx"
				}
				ids = append(ids, x.blocked(t, o))
			}
			here := localActor(a)
			waits := here.blocked(t, order{Op: "lockctx", Object: "held"})
			x.must(t, order{Op: "close-arena"})
			for _, id := range ids {
				r := x.wait(t, id)
				require.Equal(t, []string{"closed"}, r.Is, "%v", r)
			}
			r := here.wait(t, waits)
			require.Equal(t, []string{"owner-dead"}, r.Is, "%v", r)
			require.Equal(t, x.proc.Pid(), r.Who.PID)
			require.Equal(t, "closer", r.Who.Label)
			m.Unlock()
			m.Lock()
			m.Unlock()
			alone(t, a, 1)
			sound(t, a)
		})
	}
}

// TestMutexHandOff checks that waiters get the lock although another process, the barger, locks again at once after
// each release. A release hands the lock to a waiter that has waited for a millisecond. All waiters are goroutines of
// one process.
func TestMutexHandOff(t *testing.T) {
	for _, waiters := range []int{1, 6, 30} {
		t.Run(fmt.Sprint(waiters), func(t *testing.T) { handOff(t, waiters) })
	}
}

// handOff requires that a barger takes the lock only a few times before a waiter gets it. Each time, the waiter loses.
// The barger holds the lock for 200 µs at a time, and at least once after each hold of a waiter, so each of 30 waiters
// loses about 30 times. Without handoffs a single waiter loses 300 times, and one of many waiters loses without a
// bound. On a busy machine the waiters may not run in time to ask for a handoff, so the best of several tries counts.
func handOff(t *testing.T, waiters int, opts ...proctest.Option) {
	most := uint64(25 + 3*waiters)
	begun := time.Now()
	for tries := 1; ; tries++ {
		lost := handOffOnce(t, waiters, opts...)
		if lost < most {
			return
		}
		require.False(t, tries >= 10 && time.Since(begun) > 2*timeout(), "in each of %d tries, a waiter loses %d times or more, the last time %d", tries, most, lost)
	}
}

// handOffOnce returns how many times on average a waiter loses before it gets the lock.
func handOffOnce(t *testing.T, waiters int, opts ...proctest.Option) (lost uint64) {
	a := newArena(t, nil)
	barger := remoteActor(t, a, "barger", opts...)
	waiter := remoteActor(t, a, "waiter", opts...)
	if runtime.NumCPU() > 1 {
		// On a single CPU the kernel, and not the lock, decides which process runs next.
		barger.must(t, order{Op: "pin", N: 0})
		waiter.must(t, order{Op: "pin", N: 1})
	}
	rounds := proctest.Rounds(15, 100)
	barger.start(order{Op: "barge", Object: "m", N: 1 << 30})
	var ids []int
	for range waiters {
		ids = append(ids, waiter.start(order{Op: "overtake", Object: "m", N: rounds}))
	}
	var sum, all time.Duration
	for _, id := range ids {
		r := waiter.wait(t, id)
		require.Empty(t, r.Err+r.Panic)
		lost += r.N
		sum += r.Sum
		all = max(all, r.Took)
	}
	n := rounds * waiters
	lost /= uint64(n)
	t.Logf("lost %d times, mean wait %v, %v for all", lost, sum/time.Duration(n), all)
	barger.proc.Kill(t)
	waiter.proc.Kill(t)
	return lost
}

// TestMutexHandOffWithin checks that a waiter that has lost for long gets the lock from a goroutine of its own
// process, although that goroutine locks again at once after each Unlock.
func TestMutexHandOffWithin(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, poller := range []bool{false, true} {
		t.Run(fmt.Sprintf("behind the poller %v", poller), func(t *testing.T) {
			a := newArena(t, nil)
			if poller {
				fillThreads(t, a)
			}
			m := newMutex(t, a, &prims.MutexOptions{Spin: -1})
			inTime(t, func(d *delays) { handOffWithin(t, m, d) })
		})
	}
}

func handOffWithin(t *testing.T, m *prims.Mutex, d *delays) {
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !stop.Load() {
			m.Lock()
			// Let other goroutines run, so that they find the lock held.
			runtime.Gosched()
			m.Unlock()
		}
	})
	for range proctest.Rounds(60, 300) {
		for m.OwnerWord() == 0 {
			runtime.Gosched()
		}
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), timeout())
		require.NoError(t, m.LockContext(ctx), "%v", m)
		cancel()
		d.since(start, proctest.Scale(2*time.Second))
		m.Unlock()
	}
	stop.Store(true)
	wg.Wait()
}

func TestMutexRepairOption(t *testing.T) {
	a := newArena(t, nil)
	repairs := 0
	var fail error
	opts := &prims.MutexOptions{Repair: func() error { repairs++; return fail }}
	m, err := openActorMutex(a, "m", opts)
	require.NoError(t, err)
	die := func() {
		x := remoteActor(t, a, "dies")
		x.must(t, order{Op: "lock", Object: "m"})
		x.proc.Kill(t)
	}
	die()
	m.Lock()
	require.Equal(t, 1, repairs)
	require.True(t, m.HeldByUs())
	m.Unlock()
	m.Lock()
	m.Unlock()
	require.Equal(t, 1, repairs)

	// TryLock does not repair.
	die()
	eventually(t, "it is owner-dead", m.String, func() bool { m.TryLock(); return m.State().Err != nil })
	require.False(t, m.TryLock())
	require.ErrorIs(t, m.State().Err, shmsync.ErrOwnerDead)
	require.NoError(t, m.LockContext(t.Context()))
	require.Equal(t, 2, repairs)
	m.Unlock()

	die()
	fail = errors.New("too bad")
	err = m.LockContext(t.Context())
	require.ErrorIs(t, err, shmsync.ErrNotRecoverable)
	require.ErrorContains(t, err, "too bad")
	require.Equal(t, 3, repairs)
	require.ErrorIs(t, m.State().Err, shmsync.ErrNotRecoverable)
	require.ErrorIs(t, m.LockContext(t.Context()), shmsync.ErrNotRecoverable)
	require.Equal(t, 3, repairs, "a lock that is not recoverable is not repaired by Lock")
	require.NoError(t, m.RecoverContext(t.Context(), func() error { return nil }))
	m.Lock()
	m.Unlock()

	// A repair that panics leaves the lock not recoverable, and the panic reaches the caller of
	// Lock.
	die()
	opts.Repair = nil
	require.NoError(t, m.Close())
	m, err = openActorMutex(a, "m", &prims.MutexOptions{Repair: func() error { panic("oh") }})
	require.NoError(t, err)
	require.PanicsWithValue(t, "oh", func() { m.Lock() })
	require.ErrorIs(t, m.State().Err, shmsync.ErrNotRecoverable)
}

func TestMutexSpinSetting(t *testing.T) {
	m := newMutex(t, newArena(t, nil), nil)
	require.Zero(t, m.Spin())
	for set, want := range map[time.Duration]time.Duration{
		time.Microsecond: time.Microsecond, -5: -1, time.Hour: time.Millisecond, 0: 0,
	} {
		m.SetSpin(set)
		require.Equal(t, want, m.Spin(), "%v", set)
	}
}
