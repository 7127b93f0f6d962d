//go:build linux

package prims_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// ofRW opens the RWMutex "m" of an arena in this process.
func ofRW(t testing.TB, a *arena.Arena) *prims.RWMutex {
	t.Helper()
	m, err := prims.OpenRWMutex(a, "m", nil)
	require.NoError(t, err)
	return m
}

// nothingLeft checks that no process holds or wants m, and that the words of m say so.
func nothingLeft(t testing.TB, a *arena.Arena, m *prims.RWMutex) {
	t.Helper()
	eventually(t, "nothing is left", func() string { return m.Left() + "\n" + words(a) }, func() bool { return m.Left() == "" })
	sound(t, a)
}

// TestRWMutexTry checks with the Try calls, for every pair of holds, whether two processes can have them at the
// same time.
func TestRWMutexTry(t *testing.T) {
	everywhere(t, func(t *testing.T, holder, other *actor, a *arena.Arena) {
		m := ofRW(t, a)
		for _, x := range []*actor{holder, other} {
			y := holder
			if x == holder {
				y = other
			}
			require.True(t, x.op(t, "rwtrylock", "m").OK)
			for _, z := range []*actor{x, y} {
				require.False(t, z.op(t, "rwtrylock", "m").OK)
				require.False(t, z.op(t, "rwtryrlock", "m").OK)
			}
			x.must(t, order{Op: "rwunlock", Object: "m"})
			require.True(t, x.op(t, "rwtryrlock", "m").OK)
			for _, z := range []*actor{x, y} {
				require.False(t, z.op(t, "rwtrylock", "m").OK)
				require.True(t, z.op(t, "rwtryrlock", "m").OK, "readers share")
			}
			require.Equal(t, 3, m.State().Readers)
			x.must(t, order{Op: "rwrunlock", Object: "m"})
			x.must(t, order{Op: "rwrunlock", Object: "m"})
			require.False(t, x.op(t, "rwtrylock", "m").OK)
			y.must(t, order{Op: "rwrunlock", Object: "m"})
			require.Empty(t, m.Left())
		}
	})
}

// TestRWMutexReadersShare: eight readers of two processes can hold the lock at the same time.
func TestRWMutexReadersShare(t *testing.T) {
	a := newArena(t, nil)
	m := ofRW(t, a)
	x, y := remoteActor(t, a, "x"), remoteActor(t, a, "y")
	for range 4 {
		x.must(t, order{Op: "rwrlock", Object: "m"})
		y.must(t, order{Op: "rwrlock", Object: "m"})
	}
	require.Equal(t, 8, m.State().Readers)
	require.False(t, m.TryLock())
	lock := x.blocked(t, order{Op: "rwlock", Object: "m"})
	for i := range 4 {
		x.must(t, order{Op: "rwrunlock", Object: "m"})
		require.Equal(t, 7-2*i, m.State().Readers)
		require.False(t, x.op(t, "rwstate", "m").OK, "it writes beside readers")
		y.must(t, order{Op: "rwrunlock", Object: "m"})
	}
	require.Empty(t, x.wait(t, lock).Err)
	x.must(t, order{Op: "rwunlock", Object: "m"})
	nothingLeft(t, a, m)
}

// TestRWMutexWakes: a writer that unlocks wakes the waiting readers, and the last reader wakes a waiting
// writer. Some waiters sleep on threads, others are woken by the poller.
func TestRWMutexWakes(t *testing.T) {
	everywhere(t, func(t *testing.T, holder, other *actor, a *arena.Arena) {
		const many = 20 // of which 12 sleep in the kernel
		m := ofRW(t, a)
		holder.must(t, order{Op: "rwlock", Object: "m"})
		var ids []int
		for i := range many {
			ids = append(ids, other.blocked(t, order{Op: []string{"rwrlock", "rwrlockctx"}[i%2], Object: "m"}))
		}
		holder.must(t, order{Op: "rwunlock", Object: "m"})
		for _, id := range ids {
			require.Empty(t, other.wait(t, id).Err)
		}
		require.Equal(t, many, m.State().Readers)
		lock := holder.blocked(t, order{Op: "rwlockctx", Object: "m"})
		for range many {
			require.False(t, m.State().Held)
			other.must(t, order{Op: "rwrunlock", Object: "m"})
		}
		require.Empty(t, holder.wait(t, lock).Err)
		// A writer that unlocks wakes another writer, too.
		lock = other.blocked(t, order{Op: "rwlock", Object: "m"})
		holder.must(t, order{Op: "rwunlock", Object: "m"})
		require.Empty(t, other.wait(t, lock).Err)
		other.must(t, order{Op: "rwunlock", Object: "m"})
		nothingLeft(t, a, m)
	})
}

// TestRWMutexWriterPriority: while a writer waits, new readers wait, too, and the writer gets the lock first.
func TestRWMutexWriterPriority(t *testing.T) {
	everywhere(t, func(t *testing.T, holder, other *actor, a *arena.Arena) {
		m := ofRW(t, a)
		holder.must(t, order{Op: "rwrlock", Object: "m"})
		lock := other.blocked(t, order{Op: "rwlock", Object: "m"})
		eventually(t, "the gate is closed", m.String, func() bool { return m.State().Closed })
		for _, x := range []*actor{holder, other} {
			require.False(t, x.op(t, "rwtryrlock", "m").OK)
			require.Equal(t, []string{"ctx-deadline"}, x.do(t, order{Op: "rwrlockctx", Object: "m", Limit: 5 * time.Millisecond}).Is)
			require.Equal(t, []string{"ctx-canceled"}, x.do(t, order{Op: "rwrlockctx", Object: "m", Done: true}).Is)
		}
		r1 := holder.blocked(t, order{Op: "rwrlock", Object: "m"})
		r2 := other.blocked(t, order{Op: "rwrlock", Object: "m"})
		holder.must(t, order{Op: "rwrunlock", Object: "m"})
		require.Empty(t, other.wait(t, lock).Err)
		require.Equal(t, 2, m.State().Waiting)
		require.Zero(t, m.State().Readers)
		other.must(t, order{Op: "rwunlock", Object: "m"})
		require.Empty(t, holder.wait(t, r1).Err)
		require.Empty(t, other.wait(t, r2).Err)
		holder.must(t, order{Op: "rwrunlock", Object: "m"})
		other.must(t, order{Op: "rwrunlock", Object: "m"})
		nothingLeft(t, a, m)
	})
}

// TestRWMutexReaderBound: only one writer gets the lock before a sleeping reader, namely the writer for which
// the reader sleeps. It does not matter how many writers wait.
func TestRWMutexReaderBound(t *testing.T) {
	everywhere(t, func(t *testing.T, holder, other *actor, a *arena.Arena) {
		m := ofRW(t, a)
		for range 30 {
			holder.must(t, order{Op: "rwlock", Object: "m"})
			var writers []int
			for range 3 {
				writers = append(writers, holder.blocked(t, order{Op: "rwlock", Object: "m"}))
			}
			read := other.blocked(t, order{Op: "rwrlock", Object: "m"})
			eventually(t, "the reader sleeps", m.String, func() bool { return m.State().Waiting == 1 && m.Asleep() })
			holder.must(t, order{Op: "rwunlock", Object: "m"})
			require.Empty(t, other.wait(t, read).Err)
			for _, id := range writers {
				_, ok := holder.poll(t, id)
				require.False(t, ok, "a second writer has passed the reader")
			}
			require.False(t, m.State().Held)
			other.must(t, order{Op: "rwrunlock", Object: "m"})
			for range writers {
				eventually(t, "the next writes", m.String, func() bool { return m.State().Held })
				holder.must(t, order{Op: "rwunlock", Object: "m"})
			}
			for _, id := range writers {
				require.Empty(t, holder.wait(t, id).Err)
			}
		}
		nothingLeft(t, a, m)
	})
}

// TestRWMutexWriterBound: a writer gets the lock although the read holds of two processes overlap, so that
// there is always a reader.
func TestRWMutexWriterBound(t *testing.T) {
	everywhere(t, func(t *testing.T, holder, other *actor, a *arena.Arena) {
		m := ofRW(t, a)
		p, err := arena.Value[rwPair](a, "pair")
		require.NoError(t, err)
		const writes = 100
		ids := []int{
			holder.start(order{Op: "rwread", Object: "m", N: 3, Token: writes}),
			other.start(order{Op: "rwread", Object: "m", N: 3, Token: writes}),
		}
		for range writes {
			reads := p.Reads.Load()
			eventually(t, "they read", m.String, func() bool { return p.Reads.Load() > reads })
			m.Lock()
			p.One.Add(1)
			m.Unlock()
		}
		require.Empty(t, holder.wait(t, ids[0]).Err)
		require.Empty(t, other.wait(t, ids[1]).Err)
		nothingLeft(t, a, m)
	})
}

// TestRWMutexWriterGivesUp: if the only waiting writer gives up, the readers that it has kept out get in. If
// another writer waits, these readers get in a little later.
func TestRWMutexWriterGivesUp(t *testing.T) {
	everywhere(t, func(t *testing.T, holder, other *actor, a *arena.Arena) {
		m := ofRW(t, a)
		for _, poller := range []bool{false, true} {
			holder.must(t, order{Op: "rwrlock", Object: "m"})
			lock := other.blocked(t, order{Op: "rwlockctx", Object: "m"})
			readers := 1
			if poller {
				readers = 15
			}
			var ids []int
			for range readers {
				ids = append(ids, other.blocked(t, order{Op: "rwrlock", Object: "m"}))
			}
			other.must(t, order{Op: "cancel", N: lock})
			require.Equal(t, []string{"ctx-canceled"}, other.wait(t, lock).Is)
			for _, id := range ids {
				require.Empty(t, other.wait(t, id).Err)
				other.must(t, order{Op: "rwrunlock", Object: "m"})
			}
			require.True(t, other.op(t, "rwtryrlock", "m").OK)
			other.must(t, order{Op: "rwrunlock", Object: "m"})

			// A deadline has the same effect. A second writer then closes the gate again.
			lock = other.blocked(t, order{Op: "rwlockctx", Object: "m", Limit: 30 * time.Millisecond})
			second := holder.start(order{Op: "rwlock", Object: "m"})
			read := other.start(order{Op: "rwrlock", Object: "m"})
			require.Equal(t, []string{"ctx-deadline"}, other.wait(t, lock).Is)
			holder.must(t, order{Op: "rwrunlock", Object: "m"})
			for done := 0; done < 2; {
				if _, ok := holder.poll(t, second); ok {
					holder.must(t, order{Op: "rwunlock", Object: "m"})
					done++
					second = 0
				}
				if _, ok := other.poll(t, read); ok {
					other.must(t, order{Op: "rwrunlock", Object: "m"})
					done++
					read = 0
				}
			}
			nothingLeft(t, a, m)
		}
	})
}

func TestRWMutexContext(t *testing.T) {
	everywhere(t, func(t *testing.T, holder, other *actor, a *arena.Arena) {
		m := ofRW(t, a)
		// A free lock takes precedence over a context that has ended.
		other.must(t, order{Op: "rwlockctx", Object: "m", Done: true})
		other.must(t, order{Op: "rwunlock", Object: "m"})
		other.must(t, order{Op: "rwrlockctx", Object: "m", Done: true})
		other.must(t, order{Op: "rwrunlock", Object: "m"})
		for _, hold := range []string{"rwlock", "rwrlock"} {
			verbs := []string{"rwlockctx", "rwrlockctx"}
			unlock := "rwunlock"
			if hold == "rwrlock" {
				verbs, unlock = verbs[:1], "rwrunlock"
			}
			holder.must(t, order{Op: hold, Object: "m"})
			for _, verb := range verbs {
				require.Equal(t, []string{"ctx-canceled"}, other.do(t, order{Op: verb, Object: "m", Done: true}).Is)
				r := other.do(t, order{Op: verb, Object: "m", Limit: 30 * time.Millisecond})
				require.Equal(t, []string{"ctx-deadline"}, r.Is)
				require.GreaterOrEqual(t, r.Took, 30*time.Millisecond)
				require.Less(t, r.Took, timeout())
				id := other.blocked(t, order{Op: verb, Object: "m"})
				other.must(t, order{Op: "cancel", N: id})
				require.Equal(t, []string{"ctx-canceled"}, other.wait(t, id).Is)
			}
			// The waiter that gave up has left no wait behind, so the next waiter gets the lock.
			id := other.blocked(t, order{Op: "rwlockctx", Object: "m"})
			holder.must(t, order{Op: unlock, Object: "m"})
			require.Empty(t, other.wait(t, id).Err)
			other.must(t, order{Op: "rwunlock", Object: "m"})
			nothingLeft(t, a, m)
		}
	})
}

// TestRWMutexRefusesTooManyReaders: a reader word has room for 8,388,606 goroutines that wait. A further one gets an error,
// and changes nothing.
func TestRWMutexRefusesTooManyReaders(t *testing.T) {
	a := newArena(t, nil)
	m := ofRW(t, a)
	x := remoteActor(t, a, "x")
	x.must(t, order{Op: "rwlock", Object: "m"})
	const most = 1<<23 - 2
	m.AddWaiting(most - 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	last := make(chan error)
	go func() { last <- m.RLockContext(ctx) }()
	eventually(t, "the last reader waits", m.String, func() bool { return m.Waiters() == 1 })
	for range 3 {
		err := m.RLockContext(t.Context())
		require.ErrorIs(t, err, shmsync.ErrNoSpace)
		require.ErrorContains(t, err, "8388606 goroutines of this process wait")
	}
	require.PanicsWithError(t, m.RLockContext(t.Context()).Error(), m.RLock)
	cancel()
	require.ErrorIs(t, <-last, context.Canceled)
	m.AddWaiting(1 - most)
	x.must(t, order{Op: "rwunlock", Object: "m"})
	m.RLock()
	m.RUnlock()
	nothingLeft(t, a, m)
}

// TestRWMutexCancelRaces: a caller that gives up leaves neither a hold nor a wait behind.
func TestRWMutexCancelRaces(t *testing.T) {
	everywhere(t, func(t *testing.T, holder, other *actor, a *arena.Arena) {
		m := ofRW(t, a)
		n := proctest.Rounds(300, 3000)
		o := order{Op: "rwgiveup", Object: "m", N: n, Token: 9, Limit: 60 * time.Microsecond}
		ids := []int{holder.start(o), other.start(o)}
		for i, x := range []*actor{holder, other} {
			r := x.wait(t, ids[i])
			require.Empty(t, r.Err+r.Panic)
			require.Positive(t, r.N, "nobody gave up")
			t.Log(r.Text)
		}
		nothingLeft(t, a, m)
		require.Empty(t, other.op(t, "rwleft", "m").Text)
		requireWhole(t, a)
	})
}

// requireWhole requires that no reader has seen an incomplete write.
func requireWhole(t testing.TB, a *arena.Arena) *rwPair {
	t.Helper()
	p, err := arena.Value[rwPair](a, "pair")
	require.NoError(t, err)
	require.Zero(t, p.Torn.Load(), "somebody was inside beside a writer")
	require.Zero(t, p.Inside.Load())
	require.Equal(t, p.One.Load(), p.Two.Load())
	return p
}

// TestRWMutexMix: most goroutines read, some write, and some use the Try calls. The two numbers that the lock
// guards are equal for every reader.
func TestRWMutexMix(t *testing.T) {
	everywhere(t, func(t *testing.T, holder, other *actor, a *arena.Arena) {
		m := ofRW(t, a)
		n := proctest.Rounds(300, 3000)
		o := order{Op: "rwmix", Object: "m", N: n, Token: 20}
		ids := []int{holder.start(o), other.start(o)}
		writes := uint64(0)
		for i, x := range []*actor{holder, other} {
			r := x.wait(t, ids[i])
			require.Empty(t, r.Err+r.Panic)
			writes += r.N
		}
		p := requireWhole(t, a)
		require.EqualValues(t, writes, p.One.Load())
		nothingLeft(t, a, m)
	})
}

func TestRWMutexMistakes(t *testing.T) {
	everywhere(t, func(t *testing.T, holder, other *actor, a *arena.Arena) {
		m := ofRW(t, a)
		for _, x := range []*actor{holder, other} {
			for _, op := range []string{"rwunlock", "rwrunlock", "rwdowngrade"} {
				p := x.op(t, op, "m").Panic
				require.Contains(t, p, "rwmutex m")
				require.Contains(t, p, "does not hold")
			}
			require.Empty(t, m.Left())
		}
		holder.must(t, order{Op: "rwlock", Object: "m"})
		require.Contains(t, holder.op(t, "rwrunlock", "m").Panic, "for reading")
		if holder.proc != nil { // within a process any goroutine may unlock
			require.Contains(t, other.op(t, "rwunlock", "m").Panic, "held by")
			require.Contains(t, other.op(t, "rwdowngrade", "m").Panic, "Downgrade")
			require.Contains(t, other.op(t, "rwrunlock", "m").Panic, "for reading")
		}
		require.True(t, m.State().Held, "a wrong unlock has freed it")
		holder.must(t, order{Op: "rwunlock", Object: "m"})
		require.Contains(t, holder.op(t, "rwunlock", "m").Panic, "open", "a second Unlock")
		holder.must(t, order{Op: "rwrlock", Object: "m"})
		require.Contains(t, holder.op(t, "rwunlock", "m").Panic, "for writing")
		if holder.proc != nil {
			require.Contains(t, other.op(t, "rwrunlock", "m").Panic, "for reading")
		}
		require.Equal(t, 1, m.State().Readers)
		holder.must(t, order{Op: "rwrunlock", Object: "m"})
		require.Contains(t, holder.op(t, "rwrunlock", "m").Panic, "for reading")
		nothingLeft(t, a, m)
	})
}

// TestRWMutexDowngrade: no writer gets the lock between a write hold and the read hold that it becomes.
func TestRWMutexDowngrade(t *testing.T) {
	everywhere(t, func(t *testing.T, holder, other *actor, a *arena.Arena) {
		m := ofRW(t, a)
		for range 20 {
			holder.must(t, order{Op: "rwlock", Object: "m"})
			lock := other.blocked(t, order{Op: "rwlock", Object: "m"})
			read := other.blocked(t, order{Op: "rwrlock", Object: "m"})
			eventually(t, "the reader sleeps", m.String, func() bool { return m.State().Waiting == 1 && m.Asleep() })
			holder.must(t, order{Op: "rwdowngrade", Object: "m"})
			require.Empty(t, other.wait(t, read).Err)
			other.must(t, order{Op: "rwrunlock", Object: "m"})
			require.False(t, m.State().Held)
			_, ok := other.poll(t, lock)
			require.False(t, ok, "a writer is beside the one that reads")
			require.Equal(t, 1, m.State().Readers)
			holder.must(t, order{Op: "rwrunlock", Object: "m"})
			require.Empty(t, other.wait(t, lock).Err)
			other.must(t, order{Op: "rwunlock", Object: "m"})
		}
		nothingLeft(t, a, m)
	})
}

func TestRWMutexRecoverHealthy(t *testing.T) {
	everywhere(t, func(t *testing.T, holder, other *actor, a *arena.Arena) {
		m := ofRW(t, a)
		require.False(t, holder.must(t, order{Op: "rwrecover", Object: "m"}).OK, "the repair of a healthy lock has run")
		for lock, unlock := range map[string]string{"rwlock": "rwunlock", "rwrlock": "rwrunlock"} {
			holder.must(t, order{Op: lock, Object: "m"})
			require.Equal(t, []string{"ctx-deadline"}, other.do(t, order{Op: "rwrecover", Object: "m", Limit: 20 * time.Millisecond}).Is)
			id := other.blocked(t, order{Op: "rwrecover", Object: "m"})
			holder.must(t, order{Op: unlock, Object: "m"})
			r := other.wait(t, id)
			require.Empty(t, r.Err)
			require.False(t, r.OK)
		}
		nothingLeft(t, a, m)
	})
}

func TestRWMutexOpen(t *testing.T) {
	a := newArena(t, &arena.Options{Label: "me"})
	m, err := prims.OpenRWMutex(a, "m", &prims.RWMutexOptions{Spin: time.Microsecond})
	require.NoError(t, err)
	require.Equal(t, prims.PolicyReport, m.Policy())
	require.Equal(t, time.Microsecond, m.Spin())
	m.SetSpin(-1)
	require.EqualValues(t, -1, m.Spin())
	again, err := prims.OpenRWMutex(a, "m", nil)
	require.NoError(t, err)
	require.NotSame(t, m, again, "each opening is a handle of its own")
	at, err := prims.RWMutexAt(a, m.Offset())
	require.NoError(t, err)
	require.Equal(t, m.Offset(), at.Offset())
	_, err = prims.OpenRWMutex(a, "m", &prims.RWMutexOptions{Policy: prims.PolicyRelease})
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.ErrorContains(t, err, "report")
	require.ErrorContains(t, err, "release")
	_, err = prims.OpenMutex(a, "m", nil)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.ErrorContains(t, err, "an RWMutex")
	require.ErrorContains(t, err, "a Mutex")
	_, err = prims.MutexAt(a, m.Offset())
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	f, err := prims.OpenFutex(a, "f", nil)
	require.NoError(t, err)
	_, err = prims.RWMutexAt(a, f.Offset())
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	for _, off := range []arena.Offset{0, 1, m.Offset() + 64, arena.Offset(a.Size()), ^arena.Offset(0)} {
		_, err = prims.RWMutexAt(a, off)
		require.Error(t, err, "%v", off)
	}

	require.Equal(t, "rwmutex m: open, 0 reading, 0 waiting", m.String())
	m.RLock()
	require.Equal(t, prims.RWMutexState{Readers: 1, Word: "open"}, m.State())
	// The refused opens have left no handle open, so there are three handles to close. A hold stays when its
	// handle is closed.
	for _, x := range []*prims.RWMutex{again, at, m} {
		require.ErrorContains(t, a.Delete("m"), "open")
		require.NoError(t, x.Close())
	}
	require.ErrorContains(t, a.Delete("m"), "holds it (shared)")
	require.ErrorIs(t, m.Close(), shmsync.ErrClosed)
	m, err = prims.OpenRWMutex(a, "m", nil)
	require.NoError(t, err)
	require.Equal(t, 1, m.State().Readers)
	require.False(t, m.TryLock())
	m.RUnlock()
	m.Lock()
	s := m.State()
	require.True(t, s.Held)
	require.Equal(t, "me", s.Owner.Label)
	require.Contains(t, m.String(), "held by 1.1")
	require.NoError(t, m.Close())
	m, err = prims.OpenRWMutex(a, "m", nil)
	require.NoError(t, err)
	m.Unlock()
	require.Empty(t, m.Left())
	require.NoError(t, m.Close())
	require.NoError(t, f.Close())
	require.NoError(t, a.Delete("m"))
	require.NoError(t, a.Delete("f"))
	require.Zero(t, a.Stats().Objects)

	for _, slots := range []int{1, 2047} {
		a := newArena(t, &arena.Options{MaxParticipants: slots})
		m, err := prims.OpenRWMutex(a, "m", nil)
		require.NoError(t, err)
		m.RLock()
		m.RUnlock()
		m.Lock()
		m.Unlock()
		require.Empty(t, m.Left())
	}
}

func init() {
	proctest.Register("rwmutex/at", func(c *proctest.Child) {
		var p struct {
			Arena string
			Off   arena.Offset
		}
		c.Params(&p)
		a, err := arena.Attach(p.Arena, nil)
		if err != nil {
			c.Fatal(err)
		}
		m, err := prims.RWMutexAt(a, p.Off)
		if err != nil {
			c.Fatal(err)
		}
		c.Say(m.TryRLock())
		m.RLock()
		c.Say(m.Offset() == p.Off)
		m.RUnlock()
	})
}

// TestRWMutexAtElsewhere: another process can open an anonymous RWMutex by its offset.
func TestRWMutexAtElsewhere(t *testing.T) {
	a := newArena(t, nil)
	m := newRWMutex(t, a, nil)
	m.Lock()
	p := proctest.Start(t, "rwmutex/at", proctest.Params(struct {
		Arena string
		Off   arena.Offset
	}{nameOf(a), m.Offset()}), proctest.Dump(func() string { return words(a) }))
	var ok bool
	p.Recv(t, &ok)
	require.False(t, ok)
	m.Unlock()
	p.Recv(t, &ok)
	require.True(t, ok)
	p.WaitExit(t)
	nothingLeft(t, a, m)
}

// TestRWMutexCloseArena: closing the arena ends the waits of readers and writers with an error, whether they
// sleep on threads or are woken by the poller.
func TestRWMutexCloseArena(t *testing.T) {
	a := newArena(t, nil)
	m := ofRW(t, a)
	x := remoteActor(t, a, "x")
	for _, hold := range []string{"lock", "rlock"} {
		require.NoError(t, m.RLockContext(t.Context()))
		y := remoteActor(t, a, "y"+hold)
		var ids []int
		for range 15 {
			ids = append(ids, y.blocked(t, order{Op: "rwlockctx", Object: "m"}), y.blocked(t, order{Op: "rwrlockctx", Object: "m"}))
		}
		y.must(t, order{Op: "close-arena"})
		for _, id := range ids {
			require.Equal(t, []string{"closed"}, y.wait(t, id).Is)
		}
		m.RUnlock()
		x.must(t, order{Op: "rw" + hold, Object: "m"})
		x.must(t, order{Op: map[string]string{"lock": "rwunlock", "rlock": "rwrunlock"}[hold], Object: "m"})
		nothingLeft(t, a, m)
		y.proc.Kill(t)
	}
}
