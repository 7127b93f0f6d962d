//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/prims"
)

func newSpin(t testing.TB, a *arena.Arena, opts *prims.SpinLockOptions) *prims.SpinLock {
	t.Helper()
	l, err := prims.OpenSpinLock(a, "", opts)
	require.NoError(t, err)
	return l
}

func newRWSpin(t testing.TB, a *arena.Arena, opts *prims.RWSpinLockOptions) *prims.RWSpinLock {
	t.Helper()
	l, err := prims.OpenRWSpinLock(a, "", opts)
	require.NoError(t, err)
	return l
}

func TestSpinLockTryLock(t *testing.T) {
	spinEverywhere(t, func(t *testing.T, holder, other *spinActor, a *arena.Arena) {
		require.True(t, holder.try(t, "trylock", "s"))
		require.False(t, other.try(t, "trylock", "s"))
		require.False(t, holder.try(t, "trylock", "s"), "it is not recursive")
		holder.must(t, "unlock", "s")
		require.True(t, other.try(t, "trylock", "s"))
		other.must(t, "unlock", "s")
		require.Equal(t, "free", holder.op(t, "state", "s").Text)
	})
}

func TestSpinLockWaits(t *testing.T) {
	spinEverywhere(t, func(t *testing.T, holder, other *spinActor, a *arena.Arena) {
		holder.must(t, "lock", "s")
		id := other.blocked(t, order{Op: "lock", Object: "s"})
		holder.must(t, "unlock", "s")
		require.Empty(t, other.wait(t, id).Err)
		id = holder.blocked(t, order{Op: "lockctx", Object: "s"})
		other.must(t, "unlock", "s")
		require.Empty(t, holder.wait(t, id).Err)
		holder.must(t, "unlock", "s")
	})
}

// TestSpinLockContext tests each call of the two locks that waits with a context. A free lock takes precedence
// over a context that has ended. Otherwise the error is that of the context. A caller that gave up leaves
// nothing behind.
func TestSpinLockContext(t *testing.T) {
	for _, c := range []struct{ object, hold, give, ctx, undo string }{
		{"s", "lock", "unlock", "lockctx", "unlock"},
		{"rw", "lock", "unlock", "lockctx", "unlock"},
		{"rw", "lock", "unlock", "rlockctx", "runlock"},
		{"rw", "lock", "unlock", "ulockctx", "uunlock"},
		{"rw", "rlock", "runlock", "lockctx", "unlock"},
		{"rw", "ulock", "uunlock", "rlockctx", "runlock"},
		{"rw", "ulock", "uunlock", "ulockctx", "uunlock"},
		{"rw", "ulock", "uunlock", "lockctx", "unlock"},
	} {
		t.Run(c.object+" "+c.hold+" "+c.ctx, func(t *testing.T) {
			spinEverywhere(t, func(t *testing.T, holder, other *spinActor, a *arena.Arena) {
				r := other.do(t, order{Op: c.ctx, Object: c.object, Done: true})
				require.Empty(t, r.Err)
				other.must(t, c.undo, c.object)

				holder.must(t, c.hold, c.object)
				r = other.do(t, order{Op: c.ctx, Object: c.object, Done: true})
				require.Equal(t, []string{"ctx-canceled"}, r.Is)
				r = other.do(t, order{Op: c.ctx, Object: c.object, Limit: 30 * time.Millisecond})
				require.Equal(t, []string{"ctx-deadline"}, r.Is)
				require.GreaterOrEqual(t, r.Took, 30*time.Millisecond)
				require.Less(t, r.Took, timeout())
				id := other.blocked(t, order{Op: c.ctx, Object: c.object})
				other.do(t, order{Op: "cancel", N: id})
				require.Equal(t, []string{"ctx-canceled"}, other.wait(t, id).Is)

				id = other.blocked(t, order{Op: c.ctx, Object: c.object})
				holder.must(t, c.give, c.object)
				require.Empty(t, other.wait(t, id).Err)
				other.must(t, c.undo, c.object)
				if c.object == "rw" {
					require.Zero(t, holder.op(t, "bits", "rw").N)
				}
			})
		})
	}
}

func TestSpinLockMistakes(t *testing.T) {
	spinEverywhere(t, func(t *testing.T, holder, other *spinActor, a *arena.Arena) {
		for _, x := range []*spinActor{holder, other} {
			p := x.op(t, "unlock", "ledger").Panic
			require.Contains(t, p, "ledger")
			require.Contains(t, p, "free")
		}
		holder.must(t, "lock", "ledger")
		if holder.proc != nil {
			p := other.op(t, "unlock", "ledger").Panic
			require.Contains(t, p, "does not hold")
		}
		require.True(t, holder.op(t, "state", "ledger").OK, "a wrong Unlock has freed it")
		holder.must(t, "unlock", "ledger")
	})
}

func TestSpinLockOpen(t *testing.T) {
	a := newArena(t, nil)
	l, err := prims.OpenSpinLock(a, "s", &prims.SpinLockOptions{Policy: prims.PolicyRelease, Spin: time.Microsecond})
	require.NoError(t, err)
	require.Equal(t, prims.PolicyRelease, l.Policy())
	require.Equal(t, time.Microsecond, l.Spin())
	same, err := prims.OpenSpinLock(a, "s", nil)
	require.NoError(t, err)
	require.NotSame(t, l, same)
	_, err = prims.OpenSpinLock(a, "s", &prims.SpinLockOptions{Policy: prims.PolicyReport})
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.ErrorContains(t, err, "release")
	require.ErrorContains(t, err, "report")
	_, err = prims.OpenRWSpinLock(a, "s", nil)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	_, err = prims.RWSpinLockAt(a, l.Offset())
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	at, err := prims.SpinLockAt(a, l.Offset())
	require.NoError(t, err)
	require.Equal(t, l.Offset(), at.Offset())
	for _, x := range []*prims.SpinLock{at, l, same} {
		require.NoError(t, x.Close())
	}
	require.ErrorIs(t, l.Close(), shmsync.ErrClosed)
	require.NoError(t, a.Delete("s"))

	rw, err := prims.OpenRWSpinLock(a, "rw", nil)
	require.NoError(t, err)
	require.Equal(t, prims.PolicyReport, rw.Policy())
	rw.SetSpin(-1)
	require.Equal(t, time.Duration(-1), rw.Spin())
	_, err = prims.OpenRWSpinLock(a, "rw", &prims.RWSpinLockOptions{Policy: prims.PolicyRelease})
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	rwAt, err := prims.RWSpinLockAt(a, rw.Offset())
	require.NoError(t, err)
	require.Equal(t, rw.Offset(), rwAt.Offset())
	_, err = prims.SpinLockAt(a, rw.Offset())
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.NoError(t, rw.Close())
	require.NoError(t, rwAt.Close())
	require.ErrorIs(t, rw.Close(), shmsync.ErrClosed)
	require.NoError(t, a.Delete("rw"))
	sound(t, a)
}

// TestSpinLockExcludes: a hundred threads of two processes use one lock. The test of the library flare uses a
// hundred, too.
func TestSpinLockExcludes(t *testing.T) {
	spinEverywhere(t, func(t *testing.T, holder, other *spinActor, a *arena.Arena) {
		const goroutines, turns = 50, 2000
		v, err := arena.Value[int64](a, "counter")
		require.NoError(t, err)
		start := time.Now()
		o := order{Op: "steps", Object: "s", N: turns, Token: goroutines}
		ids := []int{holder.start(o), other.start(o)}
		require.Empty(t, holder.wait(t, ids[0]).Err)
		require.Empty(t, other.wait(t, ids[1]).Err)
		require.EqualValues(t, 2*goroutines*turns, *v)
		t.Logf("%v a turn", time.Since(start)/(2*goroutines*turns))
	})
}

// TestSpinLockHolderStopped: while a holder is stopped, a waiter uses hardly any CPU time, and the holder keeps
// its hold.
func TestSpinLockHolderStopped(t *testing.T) {
	for _, c := range []struct {
		object, hold, give string
		wait, undo         []string
	}{
		{"s", "lock", "unlock", []string{"lock"}, []string{"unlock"}},
		{"rw", "lock", "unlock", []string{"lock"}, []string{"unlock"}},
		{"rw-r", "lock", "unlock", []string{"rlock", "rlock"}, []string{"runlock", "runlock"}},
		{"rw-d", "rlock", "runlock", []string{"lock"}, []string{"unlock"}},
		{"rw-u", "ulock", "uunlock", []string{"ulock"}, []string{"uunlock"}},
	} {
		t.Run(c.object, func(t *testing.T) {
			t.Parallel()
			a := newArena(t, nil)
			holder, other := remoteSpin(t, a, "holder"), remoteSpin(t, a, "other")
			holder.must(t, c.hold, c.object)
			other.must(t, "open", c.object)
			holder.proc.Stop(t)
			before := other.op(t, "cpu", "").N
			start := time.Now()
			var ids []int
			for _, op := range c.wait {
				ids = append(ids, other.start(order{Op: op, Object: c.object}))
			}
			// The wait lasts one second on the clock of the test.
			ctxOp := c.wait[0] + "ctx"
			r := other.do(t, order{Op: ctxOp, Object: c.object, Limit: time.Second})
			require.Equal(t, []string{"ctx-deadline"}, r.Is)
			cost := time.Duration(other.op(t, "cpu", "").N - before)
			t.Logf("waiting for %v took %v of CPU", time.Since(start), cost)
			// The CPU time is at most 3 ms on an idle machine, and twice that on a busy one. A waiter that spins
			// would use the whole second, or its share of a busy CPU.
			require.Less(t, cost, proctest.Scale(300*time.Millisecond))
			require.EqualValues(t, len(ids), other.op(t, "waiters", c.object).N)
			holder.proc.Cont(t)
			holder.must(t, c.give, c.object)
			for i, id := range ids {
				require.Empty(t, other.wait(t, id).Err)
				other.must(t, c.undo[i], c.object)
			}
		})
	}
}

// TestSpinLockThreads: a thousand goroutines wait for one lock, which takes few threads.
func TestSpinLockThreads(t *testing.T) {
	a := newArena(t, nil)
	s, rw := newSpin(t, a, nil), newRWSpin(t, a, nil)
	before := threads()
	s.Lock()
	rw.Lock()
	const waiters = 1000
	var wg sync.WaitGroup
	for i := range waiters {
		wg.Go(func() {
			switch i % 4 {
			case 0:
				rw.RLock()
				rw.RUnlock()
			case 1:
				rw.Lock()
				rw.Unlock()
			default:
				s.Lock()
				s.Unlock()
			}
		})
	}
	eventually(t, "all wait", func() string { return words(a) }, func() bool { return s.Waiters()+rw.Waiters() == waiters })
	most := before + mostThreads
	require.Less(t, threads(), most)
	s.Unlock()
	rw.Unlock()
	wg.Wait()
	require.Less(t, threads(), most)
	require.Zero(t, rw.Bits()|s.Bits())
}

// TestSpinLockAllocations: a Lock of a free lock allocates nothing, and neither does a try that fails.
func TestSpinLockAllocations(t *testing.T) {
	if race.Enabled || crashpoint.Enabled {
		t.Skip("needs a build without the race detector and crash points: their hooks allocate")
	}
	a := newArena(t, nil)
	s, rw := newSpin(t, a, nil), newRWSpin(t, a, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for name, fn := range map[string]func(){
		"Lock":        func() { s.Lock(); s.Unlock() },
		"LockContext": func() { s.LockContext(ctx); s.Unlock() },
		"TryLock no":  func() { s.Lock(); s.TryLock(); s.Unlock() },
		"rw Lock":     func() { rw.Lock(); rw.Unlock() },
		"rw RLock":    func() { rw.RLock(); rw.RUnlock() },
		"rw context":  func() { rw.RLockContext(ctx); rw.RUnlock(); rw.LockContext(ctx); rw.Unlock() },
		"rw walk": func() {
			rw.LockUpgradable()
			rw.Upgrade()
			rw.DowngradeToUpgradable()
			rw.TryUpgrade()
			rw.Downgrade()
			rw.TryLock()
			rw.RUnlock()
			rw.TryLockUpgradable()
			rw.TryRLock()
			rw.DowngradeToRead()
			rw.RUnlock()
		},
	} {
		require.Zero(t, testing.AllocsPerRun(1000, fn), name)
	}
	require.Zero(t, rw.Bits())
}

// TestSpinLockCancelRace: waiters give up while the lock is released. If a call returns nil, its caller has the
// lock alone. No waiter is left in the queue.
func TestSpinLockCancelRace(t *testing.T) {
	spinEverywhere(t, func(t *testing.T, holder, other *spinActor, a *arena.Arena) {
		for round := range 60 {
			object := []string{"s", "rw"}[round%2]
			holder.must(t, "lock", object)
			var ids []int
			undo := map[int]string{}
			for k := range 4 {
				op, un := "lockctx", "unlock"
				if object == "rw" && k == 1 {
					op, un = "rlockctx", "runlock"
				}
				id := other.blocked(t, order{Op: op, Object: object})
				ids, undo[id] = append(ids, id), un
			}
			stays := other.blocked(t, order{Op: "lockctx", Object: object, Limit: timeout()})
			undo[stays] = "unlock"
			release := holder.start(order{Op: "unlock", Object: object})
			for _, id := range ids {
				other.start(order{Op: "cancel", N: id})
			}
			holder.wait(t, release)
			for _, id := range append(ids, stays) {
				r := other.wait(t, id)
				if r.Err == "" {
					other.must(t, undo[id], object)
				} else {
					require.NotEqual(t, id, stays, "%v", r)
				}
			}
		}
		require.Zero(t, holder.op(t, "bits", "rw").N)
		require.Equal(t, "free", holder.op(t, "state", "s").Text)
	})
}

// benchSpin measures a lock and an unlock, in one goroutine and in two.
func benchSpin(b *testing.B, lock, unlock func()) {
	for _, p := range []int{1, 2} {
		b.Run(fmt.Sprintf("goroutines-%d", p), func(b *testing.B) {
			var wg sync.WaitGroup
			for range p {
				wg.Go(func() {
					for range b.N / p {
						lock()
						unlock()
					}
				})
			}
			wg.Wait()
		})
	}
}

func BenchmarkSpinLock(b *testing.B) {
	a := newArena(b, nil)
	s, m := newSpin(b, a, nil), new(sync.Mutex)
	b.Run("SpinLock", func(b *testing.B) { benchSpin(b, s.Lock, s.Unlock) })
	b.Run("sync.Mutex", func(b *testing.B) { benchSpin(b, m.Lock, m.Unlock) })
	runtime.KeepAlive(a)
}

func BenchmarkRWSpinLockRead(b *testing.B) {
	a := newArena(b, nil)
	l, m := newRWSpin(b, a, nil), new(sync.RWMutex)
	b.Run("RWSpinLock", func(b *testing.B) { benchSpin(b, l.RLock, l.RUnlock) })
	b.Run("sync.RWMutex", func(b *testing.B) { benchSpin(b, m.RLock, m.RUnlock) })
}

func BenchmarkRWSpinLockWrite(b *testing.B) {
	a := newArena(b, nil)
	l, m := newRWSpin(b, a, nil), new(sync.RWMutex)
	b.Run("RWSpinLock", func(b *testing.B) { benchSpin(b, l.Lock, l.Unlock) })
	b.Run("sync.RWMutex", func(b *testing.B) { benchSpin(b, m.Lock, m.Unlock) })
}
