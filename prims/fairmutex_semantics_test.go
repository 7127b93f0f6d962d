//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/arenatest"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/prims"
)

var _ sync.Locker = (*prims.FairMutex)(nil)

func openFair(t testing.TB, a *arena.Arena, opts *prims.FairMutexOptions) *prims.FairMutex {
	t.Helper()
	f, err := prims.OpenFairMutex(a, "f", opts)
	require.NoError(t, err)
	return f
}

// fairQueued makes an actor begin to wait, and returns when its wait is in the queue. An actor carries out the orders
// of a test, in a separate process or in this one.
func fairQueued(t *testing.T, f *prims.FairMutex, x *actor, o order) int {
	t.Helper()
	n := f.Queued()
	o.Object = "f"
	id := x.start(o)
	eventually(t, o.Op+" waits", x.dump, func() bool { return f.Queued() == n+1 })
	return id
}

func TestFairMutexLock(t *testing.T) {
	a := newArena(t, nil)
	f := openFair(t, a, nil)
	other := lockActor(t, a, "other")
	f.Lock()
	require.False(t, other.op(t, "ftry", "f").OK)
	require.False(t, f.TryLock())
	require.Contains(t, other.do(t, order{Op: "flockctx", Object: "f", Done: true}).Is, "ctx-canceled")
	require.Contains(t, other.do(t, order{Op: "flockctx", Object: "f", Limit: time.Millisecond}).Is, "ctx-deadline")
	f.Unlock()
	require.True(t, other.op(t, "ftry", "f").OK)
	require.True(t, f.State().Held)
	require.Equal(t, "other", f.State().Owner.Label)
	other.must(t, order{Op: "funlock", Object: "f"})
	// A free lock takes precedence over a context that has ended.
	require.Empty(t, other.do(t, order{Op: "flockctx", Object: "f", Done: true}).Err)
	other.must(t, order{Op: "funlock", Object: "f"})
	require.False(t, f.State().Held)
	require.Contains(t, f.String(), "free")
}

// TestFairMutexFIFO: waiters of all processes get the lock in the order of arrival.
func TestFairMutexFIFO(t *testing.T) {
	a := newArena(t, nil)
	f := openFair(t, a, nil)
	actors := []*actor{lockActor(t, a, "one"), lockActor(t, a, "two"), lockActor(t, a, "three")}
	f.Lock()
	var ids []int
	for i := range 12 {
		x := actors[i*7%3]
		x.must(t, order{Op: "fasync", Object: "f", N: i})
		ids = append(ids, x.start(order{Op: "fawait", Object: "f", N: i}))
	}
	require.Equal(t, 12, f.Queued())
	f.Unlock()
	for i, id := range ids {
		x := actors[i*7%3]
		got := x.wait(t, id)
		require.Empty(t, got.Err, "ticket %d", i)
		require.Equal(t, 11-i, f.Queued(), "after ticket %d", i)
		require.False(t, f.TryLock(), "nobody overtakes")
		x.must(t, order{Op: "funlock", Object: "f"})
	}
	require.True(t, f.TryLock())
	f.Unlock()
}

// TestFairMutexSkips: waiters that gave up, timed out or died delay no other waiter.
func TestFairMutexSkips(t *testing.T) {
	a := newArena(t, nil)
	f := openFair(t, a, nil)
	one, dies, last := lockActor(t, a, "one"), lockActor(t, a, "dies"), lockActor(t, a, "last")
	f.Lock()
	one.must(t, order{Op: "fasync", Object: "f", N: 1})
	canceled := fairQueued(t, f, one, order{Op: "flockctx"})
	late := fairQueued(t, f, one, order{Op: "flockctx", Limit: 200 * time.Millisecond})
	fairQueued(t, f, dies, order{Op: "flock"})
	dies.must(t, order{Op: "fasync", Object: "f", N: 1})
	end := fairQueued(t, f, last, order{Op: "flock"})
	require.True(t, one.do(t, order{Op: "fcancel", Object: "f", N: 1}).OK)
	require.Contains(t, one.do(t, order{Op: "fawait", Object: "f", N: 1}).Is, "canceled")
	one.must(t, order{Op: "cancel", N: canceled})
	require.Contains(t, one.wait(t, canceled).Is, "ctx-canceled")
	require.Contains(t, one.wait(t, late).Is, "ctx-deadline")
	dies.proc.Kill(t)
	f.Unlock()
	require.Empty(t, last.wait(t, end).Panic)
	last.must(t, order{Op: "funlock", Object: "f"})
	eventually(t, "nodes go back", f.String, func() bool { return a.Stats().Nodes <= 2*12 })
}

// TestFairMutexAsync: a Pending that was granted the lock cannot be cancelled any more, because
// this process holds the lock.
func TestFairMutexAsync(t *testing.T) {
	a := newArena(t, nil)
	f := openFair(t, a, nil)
	p := f.LockAsync()
	require.NoError(t, p.Wait(), "the lock was free")
	q := f.LockAsync()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, context.Canceled, q.WaitContext(ctx))
	f.Unlock()
	<-q.Done()
	require.False(t, q.Cancel())
	require.NoError(t, q.Wait(), "the end of a context of WaitContext has ended the wait for the lock")
	require.NoError(t, q.WaitContext(ctx), "a wait that was granted takes precedence over an ended context")
	require.True(t, f.State().Held)
	f.Unlock()
}

func TestFairMutexOwnerDeathReport(t *testing.T) {
	a := newArena(t, nil)
	f := openFair(t, a, nil)
	dies, other := lockActor(t, a, "dies"), lockActor(t, a, "other")
	dies.must(t, order{Op: "flock", Object: "f"})
	panics := fairQueued(t, f, other, order{Op: "flock"})
	errs := fairQueued(t, f, other, order{Op: "flockctx"})
	other.must(t, order{Op: "fasync", Object: "f", N: 9})
	dies.proc.Kill(t)
	told := []answer{other.wait(t, panics), other.wait(t, errs), other.do(t, order{Op: "fawait", Object: "f", N: 9}), other.do(t, order{Op: "flockctx", Object: "f"})}
	for i, got := range told {
		require.Contains(t, got.Is, "owner-dead", "%d: %v", i, got)
		require.NotNil(t, got.Who)
		require.Equal(t, "dies", got.Who.Label)
	}
	require.NotEmpty(t, told[0].Panic)
	require.False(t, f.TryLock())
	require.ErrorIs(t, f.State().Err, shmsync.ErrOwnerDead)
	require.ErrorIs(t, f.LockAsync().Wait(), shmsync.ErrOwnerDead)

	// If a repair fails, the lock is not recoverable: every call fails, except a Recover.
	got := other.do(t, order{Op: "frecover", Object: "f", N: 1})
	require.Contains(t, got.Is, "not-recoverable")
	require.ErrorIs(t, f.LockContext(context.Background()), shmsync.ErrNotRecoverable)
	require.ErrorIs(t, f.State().Err, shmsync.ErrNotRecoverable)
	require.Equal(t, "dies", f.State().Owner.Label)
	require.Contains(t, other.do(t, order{Op: "frecover", Object: "f", N: 2}).Panic, "the repair panics")

	// While a process recovers the lock, it holds the lock, and other callers wait. If the process dies, the lock is
	// owner-dead again.
	other.start(order{Op: "frecover", Object: "f", N: 3})
	eventually(t, "it is being recovered", f.String, func() bool { return f.State().Held })
	wait := make(chan error, 1)
	go func() { wait <- f.LockContext(context.Background()) }()
	eventually(t, "another waits", f.String, func() bool { return f.Queued() == 1 })
	other.proc.Kill(t)
	require.ErrorIs(t, <-wait, shmsync.ErrOwnerDead)
	ran := false
	require.NoError(t, f.Recover(func() error { ran = true; return nil }))
	require.True(t, ran)
	f.Lock()
	f.Unlock()
	require.NoError(t, f.Recover(func() error { panic("of a healthy lock") }))
}

// TestFairMutexOwnerDeathRelease: under PolicyRelease the first waiter in the queue gets the lock
// of a dead holder.
func TestFairMutexOwnerDeathRelease(t *testing.T) {
	a := newArena(t, nil)
	f := openFair(t, a, &prims.FairMutexOptions{Policy: prims.PolicyRelease})
	dies, other := lockActor(t, a, "dies"), lockActor(t, a, "other")
	dies.must(t, order{Op: "flock", Object: "f"})
	fairQueued(t, f, dies, order{Op: "flock"})
	next := fairQueued(t, f, other, order{Op: "flock"})
	after := make(chan error, 1)
	go func() { after <- f.LockContext(context.Background()) }()
	eventually(t, "three wait", f.String, func() bool { return f.Queued() == 3 })
	dies.proc.Kill(t)
	require.Empty(t, other.wait(t, next).Panic)
	require.Equal(t, "other", f.State().Owner.Label)
	other.must(t, order{Op: "funlock", Object: "f"})
	require.NoError(t, <-after)
	f.Unlock()
}

// TestFairMutexRepair: the Repair of the options runs within Lock, in one of the callers that
// learned of the death.
func TestFairMutexRepair(t *testing.T) {
	a := newArena(t, nil)
	f := openFair(t, a, nil)
	dies, one, two, fails := lockActor(t, a, "dies"), lockActor(t, a, "one"), lockActor(t, a, "two"), lockActor(t, a, "fails")
	dies.must(t, order{Op: "flock", Object: "f"})
	w1 := fairQueued(t, f, one, order{Op: "frepairs"})
	w2 := fairQueued(t, f, two, order{Op: "frepairs"})
	dies.proc.Kill(t)
	repairs := 0
	first, second, x, y := w1, w2, one, two
	eventually(t, "one holds", f.String, func() bool { return f.State().Held && f.State().Err == nil })
	eventually(t, "the other waits", f.String, func() bool { return f.Queued() == 1 })
	if f.State().Owner.Label == "two" {
		first, second, x, y = w2, w1, two, one
	}
	got := x.wait(t, first)
	require.Empty(t, got.Panic)
	if got.OK {
		repairs++
	}
	x.must(t, order{Op: "funlock", Object: "f"})
	got = y.wait(t, second)
	require.Empty(t, got.Panic)
	if got.OK {
		repairs++
	}
	require.Equal(t, 1, repairs)
	y.proc.Kill(t)
	got = fails.do(t, order{Op: "frepairs", Object: "f", N: 1})
	require.Contains(t, got.Is, "not-recoverable")
	require.NotEmpty(t, got.Panic)
}

// TestFairMutexStateOfAHolderThatLeaves checks State while the holder unlocks the lock and leaves the arena, just
// after State has read the owner word. State must not report the holder as dead. If the owner word still names a
// participant that has left, the lock is owner-dead. State returns even if a peer changes the owner word all the time.
func TestFairMutexStateOfAHolderThatLeaves(t *testing.T) {
	w := arenatest.New(t, nil)
	leaver := w.Join("leaver")
	held := openFair(t, leaver, nil)
	held.Lock()
	word := held.OwnerValue()
	f := openFair(t, w.Join("reader"), nil)
	free := openFair(t, w.Join("other"), nil)
	require.Regexp(t, "^held by", f.SeenBeside(func() {}))
	require.Equal(t, "free", f.SeenBeside(sync.OnceFunc(func() {
		held.Unlock()
		require.NoError(t, leaver.Close())
	})))
	require.NoError(t, f.State().Err)
	require.True(t, free.TryLock())
	free.Unlock()
	f.OverwriteOwner(word)
	require.ErrorIs(t, f.State().Err, shmsync.ErrOwnerDead)
	reads := 0
	require.Regexp(t, "^held by", f.SeenBeside(func() { reads++; f.ChangeTag() }))
	require.Less(t, reads, 100)
	f.OverwriteOwner(0)
}

// TestFairMutexStopped: a stopped process that was granted the lock is alive, and keeps the lock.
func TestFairMutexStopped(t *testing.T) {
	a := newArena(t, nil)
	f := openFair(t, a, nil)
	x := lockActor(t, a, "stopped")
	f.Lock()
	id := fairQueued(t, f, x, order{Op: "flock"})
	x.proc.Stop(t)
	f.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 150*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, f.LockContext(ctx), context.DeadlineExceeded)
	require.False(t, f.TryLock())
	require.Equal(t, "stopped", f.State().Owner.Label)
	x.proc.Cont(t)
	require.Empty(t, x.wait(t, id).Panic)
	x.must(t, order{Op: "funlock", Object: "f"})
	f.Lock()
	f.Unlock()
}

func TestFairMutexMisuse(t *testing.T) {
	a := newArena(t, nil)
	f := openFair(t, a, nil)
	other := lockActor(t, a, "other")
	require.PanicsWithValue(t, "shmsync: Unlock of fair mutex f, which this process does not hold: it is free", f.Unlock)
	f.Lock()
	require.Contains(t, other.op(t, "funlock", "f").Panic, "does not hold")
	f.Unlock()
	require.Contains(t, other.op(t, "funlock", "f").Panic, "does not hold")
	require.False(t, f.State().Held)
}

func TestFairMutexOpen(t *testing.T) {
	a := newArena(t, nil)
	f := openFair(t, a, &prims.FairMutexOptions{Policy: prims.PolicyRelease})
	again, err := prims.OpenFairMutex(a, "f", nil)
	require.NoError(t, err)
	require.NotSame(t, f, again)
	require.Equal(t, prims.PolicyRelease, again.Policy())
	_, err = prims.OpenFairMutex(a, "f", &prims.FairMutexOptions{Policy: prims.PolicyReport})
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.ErrorContains(t, err, "its policy is release, asked for report")
	_, err = prims.OpenMultiLock(a, "f", nil)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	at, err := prims.FairMutexAt(a, f.Offset())
	require.NoError(t, err)
	m, err := prims.OpenMutex(a, "m", nil)
	require.NoError(t, err)
	_, err = prims.FairMutexAt(a, m.Offset())
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	f.Lock()
	require.NoError(t, at.Close())
	require.NoError(t, again.Close())
	require.NoError(t, f.Close())
	require.ErrorIs(t, f.Close(), shmsync.ErrClosed)
	f = openFair(t, a, nil)
	require.True(t, f.State().Held, "Close has released the lock")
	f.Unlock()
}

func TestFairMutexAllocates(t *testing.T) {
	if race.Enabled {
		t.Skip("needs a build without the race detector, which makes sync.Pool forget values, and each call make a record")
	}
	f := newFairMutex(t, nil)
	ctx := context.Background()
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		f.Lock()
		f.Unlock()
		f.LockContext(ctx)
		f.Unlock()
		f.TryLock()
		f.Unlock()
	}))
}

// TestFairMutexCancelVersusGrant: a wait is canceled, or its context ends, while another process unlocks the lock. The
// wait either gets the lock or gives up, and at the end the lock is free.
func TestFairMutexCancelVersusGrant(t *testing.T) {
	rounds := proctest.Rounds(5_000, 50_000)
	a := newArena(t, nil)
	f := openFair(t, a, nil)
	held, gave := duel(t, a, order{Op: "fduel", Object: "f", N: rounds}, func(i int, queued func()) func(r *rand.Rand) error {
		if i%2 == 0 {
			p := f.LockAsync()
			queued()
			return func(r *rand.Rand) error {
				dawdle(r)
				p.Cancel()
				return p.Wait()
			}
		}
		ctx, cancel := context.WithCancel(context.Background())
		got := make(chan error, 1)
		go func() { got <- f.LockContext(ctx) }()
		for f.Queued() != 1 {
			runtime.Gosched()
		}
		queued()
		return func(r *rand.Rand) error {
			dawdle(r)
			cancel()
			return <-got
		}
	}, f.Unlock)
	require.Equal(t, rounds, held+gave)
	t.Logf("held %d, given up %d", held, gave)
	require.Zero(t, f.Queued())
	require.True(t, f.TryLock(), "the lock is not free at the end")
	f.Unlock()
}

// duelBoard has the words through which the two processes of a duel wait for each other in each
// round.
type duelBoard struct{ Held, Go, Free, Past atomic.Uint64 }

// duel makes another process lock and unlock in each round, while this process gives up a wait in the queue. It
// returns how many waits got the lock, and how many were given up. In two of 100 rounds, one process waits until the
// other has acted, so that both results occur even on a single CPU.
func duel(t *testing.T, a *arena.Arena, o order, begin func(i int, queued func()) func(r *rand.Rand) error, unlock func()) (held, gave int) {
	t.Helper()
	board, err := arena.Value[duelBoard](a, "duel")
	require.NoError(t, err)
	other := lockActor(t, a, "other")
	id := other.start(o)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range o.N {
		meet(&board.Held, i)
		release := func() { board.Go.Store(uint64(i + 1)) }
		const granted, givenUp = 0, 1
		end := begin(i, func() {
			if i%100 != givenUp {
				release()
			}
		})
		if i%100 == granted {
			meet(&board.Free, i)
		}
		err := end(r)
		release()
		switch {
		case err == nil:
			unlock()
			held++
		case errors.Is(err, shmsync.ErrCanceled), err == context.Canceled:
			gave++
		default:
			require.NoError(t, err)
		}
		board.Past.Store(uint64(i + 1))
	}
	got := other.wait(t, id)
	require.Empty(t, got.Err+got.Panic)
	require.NotZero(t, held)
	require.NotZero(t, gave)
	return held, gave
}

// duelPartner is what the other process of a duel does.
func duelPartner(a *arena.Arena, rounds int, lock func() (unlock func())) error {
	board, err := arena.Value[duelBoard](a, "duel")
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(3, 4))
	for i := range rounds {
		unlock := lock()
		board.Held.Store(uint64(i + 1))
		meet(&board.Go, i)
		dawdle(r)
		unlock()
		board.Free.Store(uint64(i + 1))
		meet(&board.Past, i)
	}
	return nil
}

func meet(w *atomic.Uint64, i int) {
	for w.Load() <= uint64(i) {
		shmsync.Yield()
	}
}

// dawdle takes some nanoseconds, or up to two microseconds.
func dawdle(r *rand.Rand) {
	for range r.IntN(1 << r.IntN(12)) {
	}
}

// TestFairMutexNoSpace: if the arena has no room for a wait, the call returns an error, and the
// lock still works.
func TestFairMutexNoSpace(t *testing.T) {
	a := newArena(t, &arena.Options{Size: 2 << 20})
	f := openFair(t, a, nil)
	f.Lock()
	fill(t, a)
	require.ErrorIs(t, f.LockContext(context.Background()), shmsync.ErrNoSpace)
	require.ErrorIs(t, f.LockAsync().Wait(), shmsync.ErrNoSpace)
	require.Panics(t, f.Lock)
	f.Unlock()
	f.Lock()
	f.Unlock()
}

// fillData allocates all memory of an arena that a user can get.
func fillData(t testing.TB, a *arena.Arena) {
	t.Helper()
	for size := uint64(64 << 10); size >= 64; size /= 2 {
		for _, size := range []uint64{size, size / 4 * 3} { // the sizes of blocks
			for err := error(nil); err == nil; {
				_, err = a.Alloc(size, 0)
				if err != nil {
					require.ErrorIs(t, err, shmsync.ErrNoSpace)
				}
			}
		}
	}
}

// fill allocates all memory of an arena, including all wait nodes and the headroom.
func fill(t testing.TB, a *arena.Arena) {
	t.Helper()
	fillData(t, a)
	for size := uint64(32 << 10); size >= 64; {
		if _, err := (*arenakernel.Arena)(a).ClaimHeadroom(size); err != nil {
			require.ErrorIs(t, err, shmsync.ErrNoSpace)
			size /= 2
		}
	}
	for {
		if _, err := (*arenakernel.Arena)(a).ClaimNode(); err != nil {
			require.ErrorIs(t, err, shmsync.ErrNoSpace)
			return
		}
	}
}

func TestFairMutexHammer(t *testing.T) {
	a := newArena(t, nil)
	f := openFair(t, a, nil)
	other := lockActor(t, a, "other")
	n := other.start(order{Op: "fspin", Object: "f", N: 400})
	var wg sync.WaitGroup
	count := 0
	for range 8 {
		wg.Go(func() {
			for range 100 {
				f.Lock()
				count++
				f.Unlock()
			}
		})
	}
	wg.Wait()
	require.Equal(t, 800, count)
	require.Empty(t, other.wait(t, n).Panic)
	require.False(t, f.State().Held, fmt.Sprint(f))
}
