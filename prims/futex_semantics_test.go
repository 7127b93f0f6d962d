//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// These tests have the names that silk uses for its FiberFutex. They run in one process and
// between processes.

func TestFutexGet(t *testing.T) {
	everywhere(t, func(t *testing.T, poster, waiter *actor, a *arena.Arena) {
		require.Zero(t, poster.op(t, "fget", "f").N)
		require.Zero(t, waiter.op(t, "fget", "f").N)
		for n := uint64(1); n <= 3; n++ {
			poster.must(t, order{Op: "fpost", Object: "f"})
			require.Equal(t, n, poster.op(t, "fget", "f").N)
			require.Equal(t, n, waiter.op(t, "fget", "f").N)
		}
	})
}

// As waitNoArg in silk: a wait without a token waits for the next post.
func TestFutexWaitNoArg(t *testing.T) {
	everywhere(t, func(t *testing.T, poster, waiter *actor, a *arena.Arena) {
		for range 10 {
			id := waiter.blocked(t, order{Op: "fnext", Object: "f"})
			poster.must(t, order{Op: "fpost", Object: "f"})
			require.Empty(t, waiter.wait(t, id).Err)
		}
	})
}

func TestFutexWaitAlreadyFired(t *testing.T) {
	everywhere(t, func(t *testing.T, poster, waiter *actor, a *arena.Arena) {
		waiter.must(t, order{Op: "fwait", Object: "f", Token: 0})
		poster.must(t, order{Op: "fpost", Object: "f", N: 3})
		for token := range uint64(4) {
			waiter.must(t, order{Op: "fwait", Object: "f", Token: token})
			// A token that is reached takes precedence over a context that has ended.
			waiter.must(t, order{Op: "fwaitctx", Object: "f", Token: token, Done: true})
		}
	})
}

func TestFutexWaitSuspended(t *testing.T) {
	everywhere(t, func(t *testing.T, poster, waiter *actor, a *arena.Arena) {
		id := waiter.blocked(t, order{Op: "fwait", Object: "f", Token: 1})
		poster.must(t, order{Op: "fpost", Object: "f"})
		require.Empty(t, waiter.wait(t, id).Err)
		// This wait needs several posts.
		id = waiter.blocked(t, order{Op: "fwait", Object: "f", Token: 4})
		for range 2 {
			poster.must(t, order{Op: "fpost", Object: "f"})
		}
		count := order{Op: "fwaiters", Object: "f"}
		eventually(t, "it still waits", waiter.dump, func() bool { return waiter.must(t, count).N == 1 })
		poster.must(t, order{Op: "fpost", Object: "f"})
		require.Empty(t, waiter.wait(t, id).Err)
	})
}

func TestFutexMultipleWaiters(t *testing.T) {
	for _, waiters := range []int{4, 30} {
		t.Run(fmt.Sprint(waiters), func(t *testing.T) {
			everywhere(t, func(t *testing.T, poster, waiter *actor, a *arena.Arena) {
				var ids []int
				for range waiters {
					ids = append(ids, waiter.blocked(t, order{Op: "fwait", Object: "f", Token: 1}))
				}
				poster.must(t, order{Op: "fpost", Object: "f"})
				for _, id := range ids {
					require.Empty(t, waiter.wait(t, id).Err)
				}
			})
		})
	}
}

func TestFutexMultiplePost(t *testing.T) {
	everywhere(t, func(t *testing.T, poster, waiter *actor, a *arena.Arena) {
		for token := uint64(1); token <= 8; token++ {
			id := waiter.blocked(t, order{Op: "fwait", Object: "f", Token: token})
			poster.must(t, order{Op: "fpost", Object: "f"})
			require.Empty(t, waiter.wait(t, id).Err)
		}
	})
}

// As concurrentPostStress in silk: 8 posters make 200 posts each, and waiters wait for every token.
// If a post were lost, the waiters would hang at the last token.
func TestFutexConcurrentPostStress(t *testing.T) {
	everywhere(t, func(t *testing.T, poster, waiter *actor, a *arena.Arena) {
		var walks, posts []int
		for range 3 {
			walks = append(walks, waiter.start(order{Op: "fwalk", Object: "f", Token: 1600}))
			walks = append(walks, waiter.start(order{Op: "fwait", Object: "f", Token: 1600}))
		}
		for range 8 {
			posts = append(posts, poster.start(order{Op: "fpost", Object: "f", N: 200}))
		}
		for _, id := range posts {
			poster.wait(t, id)
		}
		for _, id := range walks {
			require.Empty(t, waiter.wait(t, id).Err)
		}
		require.EqualValues(t, 1600, waiter.op(t, "fget", "f").N)
	})
}

func TestFutexStop(t *testing.T) {
	everywhere(t, func(t *testing.T, poster, waiter *actor, a *arena.Arena) {
		poster.must(t, order{Op: "fpost", Object: "f", N: 2})
		// As stopWakesSuspendedWaiter in silk.
		var ids []int
		for range 14 {
			ids = append(ids, waiter.blocked(t, order{Op: "fwait", Object: "f", Token: 3}))
		}
		require.False(t, waiter.op(t, "fstopped", "f").OK)
		poster.must(t, order{Op: "fstop", Object: "f"})
		for _, id := range ids {
			r := waiter.wait(t, id)
			require.Equal(t, []string{"canceled"}, r.Is)
			require.Contains(t, r.Err, `"f"`)
		}
		require.True(t, waiter.op(t, "fstopped", "f").OK)
		// As stopBeforeWaitReturnsImmediately in silk. A token that is reached takes precedence
		// over Stop.
		for _, x := range []*actor{poster, waiter} {
			require.Equal(t, []string{"canceled"}, x.do(t, order{Op: "fwait", Object: "f", Token: 3}).Is)
			require.Equal(t, []string{"canceled"}, x.do(t, order{Op: "fwaitctx", Object: "f", Token: math.MaxUint64 >> 2}).Is)
			x.must(t, order{Op: "fwait", Object: "f", Token: 2})
			// As stopIdempotent in silk. After Stop, posts do not count any more.
			x.must(t, order{Op: "fstop", Object: "f"})
			x.must(t, order{Op: "fpost", Object: "f"})
			require.EqualValues(t, 2, x.op(t, "fget", "f").N)
		}
	})
}

func TestFutexContext(t *testing.T) {
	everywhere(t, func(t *testing.T, poster, waiter *actor, a *arena.Arena) {
		require.Equal(t, []string{"ctx-canceled"}, waiter.do(t, order{Op: "fwaitctx", Object: "f", Token: 1, Done: true}).Is)
		r := waiter.do(t, order{Op: "fwaitctx", Object: "f", Token: 1, Limit: 20 * time.Millisecond})
		require.Equal(t, []string{"ctx-deadline"}, r.Is)
		require.GreaterOrEqual(t, r.Took, 20*time.Millisecond)
		stays := waiter.blocked(t, order{Op: "fwaitctx", Object: "f", Token: 1})
		var ids []int
		for range 20 {
			ids = append(ids, waiter.blocked(t, order{Op: "fwaitctx", Object: "f", Token: 1}))
		}
		for _, id := range ids {
			waiter.must(t, order{Op: "cancel", N: id})
			require.Equal(t, []string{"ctx-canceled"}, waiter.wait(t, id).Is)
		}
		poster.must(t, order{Op: "fpost", Object: "f"})
		require.Empty(t, waiter.wait(t, stays).Err)
	})
}

// TestFutexDifferentTokens checks that a Post wakes every waiter whose token is reached. In silk's FiberFutex, a
// waiter could stay asleep: another waiter announced itself for the next token after the post, but before the first
// waiter slept.
func TestFutexDifferentTokens(t *testing.T) {
	f, err := prims.OpenFutex(newArena(t, nil), "f", nil)
	require.NoError(t, err)
	rounds := proctest.Rounds(300, uint64(3000))
	// Each waiter is a fixed distance ahead of the counter. At the end of each round, exactly those
	// waiters have returned whose tokens are reached.
	const waiters = 20
	var at [waiters]atomic.Uint64
	var wg sync.WaitGroup
	for i := range waiters {
		wg.Go(func() {
			step := uint64(i%5 + 1)
			for token := step; token <= rounds; token += step {
				if err := f.Wait(token); err != nil {
					t.Error(err)
					return
				}
				at[i].Store(token)
			}
		})
	}
	for n := uint64(1); n <= rounds; n++ {
		f.Post()
		// No other call of this test wakes a waiter that the Post has not woken.
		eventually(t, fmt.Sprintf("all for %d", n), func() string { return f.String() }, func() bool {
			for i := range waiters {
				step := uint64(i%5 + 1)
				if at[i].Load() < n/step*step {
					return false
				}
			}
			return true
		})
		for i := range waiters {
			require.LessOrEqual(t, at[i].Load(), n, "waiter %d is ahead of the counter", i)
		}
	}
	wg.Wait()
}

// TestFutexPosterStopped: a poster is stopped after its post and before it wakes the waiters whose token is reached.
// Then a waiter for a later token sets the bit announced again. The periodic check still wakes the first waiters.
func TestFutexPosterStopped(t *testing.T) {
	if !crashpoint.Enabled {
		t.Skip("needs the build tag crashpoint")
	}
	for _, polled := range []int{0, 14} {
		t.Run(fmt.Sprint(polled), func(t *testing.T) {
			inTime(t, func(late *delays) {
				a := newArena(t, nil)
				poster := remoteActor(t, a, "poster", proctest.Env("SHMSYNC_CRASHPOINT_STOP=futex.post.before_wake"))
				poster.must(t, order{Op: "fget", Object: "f"})
				here, third := localActor(a), remoteActor(t, a, "third")
				first := []int{}
				for range polled + 1 {
					first = append(first, here.blocked(t, order{Op: "fwait", Object: "f", Token: 1}))
				}
				post := poster.start(order{Op: "fpost", Object: "f"})
				poster.proc.AwaitStop(t)
				start := time.Now()
				later := third.blocked(t, order{Op: "fwait", Object: "f", Token: 2})
				for _, id := range first {
					require.Empty(t, here.wait(t, id).Err)
				}
				late.since(start, 2*soon())
				poster.proc.Cont(t)
				poster.wait(t, post)
				poster.must(t, order{Op: "fpost", Object: "f"})
				require.Empty(t, third.wait(t, later).Err)
			})
		})
	}
}

// TestFutexPosterDies: a poster is killed. Its last post has either happened or not. Another process then posts until
// all tokens are reached, and all waits end.
func TestFutexPosterDies(t *testing.T) {
	rounds := proctest.Rounds(4, 20)
	a := newArena(t, nil)
	f, err := prims.OpenFutex(a, "f", nil)
	require.NoError(t, err)
	here := localActor(a)
	walked := uint64(0)
	for range rounds {
		poster := remoteActor(t, a, "poster")
		poster.start(order{Op: "fpost", Object: "f", N: 1 << 30})
		eventually(t, "it posts", f.String, func() bool { return f.Get() > walked+1000 })
		var ids []int
		for i := range 20 {
			ids = append(ids, here.start(order{Op: "fwait", Object: "f", Token: f.Get() + uint64(i)*50}))
		}
		poster.proc.Kill(t)
		alone(t, a, 1)
		walked = f.Get()
		for f.Get() < walked+1000 {
			f.Post()
		}
		for _, id := range ids {
			require.Empty(t, here.wait(t, id).Err)
		}
		walked = f.Get()
	}
	sound(t, a)
}

func TestFutexArenaClose(t *testing.T) {
	a := newArena(t, nil)
	f, err := prims.OpenFutex(a, "f", nil)
	require.NoError(t, err)
	f.Post()
	x := remoteActor(t, a, "closer")
	var ids []int
	for range 20 {
		ids = append(ids, x.blocked(t, order{Op: "fwait", Object: "f", Token: 2}))
	}
	here := localActor(a)
	stays := here.blocked(t, order{Op: "fwait", Object: "f", Token: 2})
	x.must(t, order{Op: "close-arena"})
	for _, id := range ids {
		require.Equal(t, []string{"closed"}, x.wait(t, id).Is)
	}
	require.False(t, f.Stopped(), "the Close of one process has stopped it for all")
	require.EqualValues(t, 1, f.Get())
	f.Post()
	require.Empty(t, here.wait(t, stays).Err)
	alone(t, a, 1)
	sound(t, a)
}

func TestFutexMistakes(t *testing.T) {
	f, err := prims.OpenFutex(newArena(t, nil), "gate", nil)
	require.NoError(t, err)
	require.PanicsWithValue(t, "shmsync: Wait of futex gate for token 18446744073709551615: no counter gets there",
		func() { f.Wait(math.MaxUint64) })
	require.PanicsWithValue(t, "shmsync: Wait of futex gate for token 4611686018427387904: no counter gets there",
		func() { f.WaitContext(context.Background(), 1<<62) })
	require.Equal(t, "futex gate: counter 0", f.String())
	f.Post()
	f.Stop()
	require.Equal(t, "futex gate: counter 1, stopped", f.String())
	err = f.Wait(2)
	require.ErrorIs(t, err, shmsync.ErrCanceled)
	require.ErrorIs(t, err, syscall.ECANCELED)
}

func TestFutexAt(t *testing.T) {
	a := newArena(t, nil)
	f, err := prims.OpenFutex(a, "", &prims.FutexOptions{Spin: -1})
	require.NoError(t, err)
	require.EqualValues(t, -1, f.Spin())
	same, err := prims.FutexAt(a, f.Offset())
	require.NoError(t, err)
	require.NotSame(t, f, same)
	f.SetSpin(time.Microsecond)
	require.Equal(t, time.Microsecond, same.Spin())
	require.NoError(t, f.Close())
	same.Post()
	require.NoError(t, same.Close())
	require.ErrorIs(t, f.Close(), shmsync.ErrClosed)
}

// TestFutexEventcount: with a Futex as the counter, goroutines wait for a condition that they test
// without a lock, and miss no post.
func TestFutexEventcount(t *testing.T) {
	a := newArena(t, nil)
	f, err := prims.OpenFutex(a, "f", nil)
	require.NoError(t, err)
	const items = 5000
	var made, taken atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				token := f.Get() + 1
				have := made.Load()
				n := taken.Load()
				if n >= items {
					return
				}
				if n < have {
					if taken.CompareAndSwap(n, n+1) && n+1 == items {
						f.Post()
					}
					continue
				}
				if err := f.Wait(token); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range items {
		made.Add(1)
		f.Post()
	}
	wg.Wait()
	require.EqualValues(t, items, taken.Load())
}

func TestFutexFallbacks(t *testing.T) {
	for _, disable := range []string{"waitv", "robust", "robust,waitv,membarrier", "ofd,waitv"} {
		t.Run(disable, func(t *testing.T) {
			everywhere(t, func(t *testing.T, poster, waiter *actor, a *arena.Arena) {
				var ids []int
				for i := range 20 {
					op := "fwalk"
					if i%2 == 0 {
						op = "fwaitctx"
					}
					ids = append(ids, waiter.blocked(t, order{Op: op, Object: "f", Token: 300}))
				}
				id := waiter.blocked(t, order{Op: "fwaitctx", Object: "f", Token: 1000})
				waiter.must(t, order{Op: "cancel", N: id})
				require.Equal(t, []string{"ctx-canceled"}, waiter.wait(t, id).Is)
				poster.must(t, order{Op: "fpost", Object: "f", N: 300})
				for _, id := range ids {
					require.Empty(t, waiter.wait(t, id).Err)
				}
			}, proctest.Env("SHMSYNC_DISABLE="+disable))
		})
	}
}
