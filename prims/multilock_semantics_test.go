//go:build linux

package prims_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

func openMulti(t testing.TB, a *arena.Arena, opts *prims.MultiLockOptions) *prims.MultiLock {
	t.Helper()
	x, err := prims.OpenMultiLock(a, "m", opts)
	require.NoError(t, err)
	return x
}

// multiQueued gives the order o to an actor: to lock one or several keys. It returns when the actor has
// a wait in the queue of the parameter key.
func multiQueued(t *testing.T, x *prims.MultiLock, by *actor, key uint64, o order) int {
	t.Helper()
	n := x.Queued(key)
	o.Object = "m"
	id := by.start(o)
	eventually(t, o.Op+" waits", by.dump, func() bool { return x.Queued(key) == n+1 })
	return id
}

// sameBucket returns n keys of the same bucket.
func sameBucket(x *prims.MultiLock, n int) (keys []uint64) {
	for key := uint64(0); len(keys) < n; key++ {
		if x.SameBucket(0, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

func TestMultiLockKeys(t *testing.T) {
	a := newArena(t, nil)
	x := openMulti(t, a, nil)
	other := lockActor(t, a, "other")
	for _, key := range []uint64{0, 1, 1<<64 - 1} {
		h := x.Lock(key)
		require.Equal(t, key, h.Key())
		_, ok := x.TryLock(key)
		require.False(t, ok)
		require.False(t, other.do(t, order{Op: "mtry", Object: "m", Token: key}).OK)
		require.Contains(t, other.do(t, order{Op: "mlockctx", Object: "m", Token: key, Done: true}).Is, "ctx-canceled")
		require.Contains(t, other.do(t, order{Op: "mlockctx", Object: "m", Token: key, Limit: time.Millisecond}).Is, "ctx-deadline")
		require.True(t, x.State(key).Held)
		h.Unlock()
		require.True(t, other.do(t, order{Op: "mtry", Object: "m", Token: key}).OK)
		require.Equal(t, "other", x.State(key).Owner.Label)
		other.must(t, order{Op: "munlock", Object: "m", Token: key})
		require.Equal(t, "free", x.State(key).Word)
		// A free key takes precedence over a context that has ended.
		require.Empty(t, other.do(t, order{Op: "mlockctx", Object: "m", Token: key, Done: true}).Err)
		other.must(t, order{Op: "munlock", Object: "m", Token: key})
	}
}

// TestMultiLockDistinctKeysProceedIndependently: a call for one key does not wait for another key
// of the same bucket. That holds even if the holder of a key waits for another key, or is stopped.
func TestMultiLockDistinctKeysProceedIndependently(t *testing.T) {
	a := newArena(t, nil)
	x := openMulti(t, a, nil)
	keys := sameBucket(x, 12)
	stopped, other := lockActor(t, a, "stopped"), lockActor(t, a, "other")
	stopped.must(t, order{Op: "mlock", Object: "m", Token: keys[0]})
	h := x.Lock(keys[1])
	waits := multiQueued(t, x, stopped, keys[1], order{Op: "mlock", Token: keys[1]})
	stopped.proc.Stop(t)
	for _, key := range keys[2:] {
		other.must(t, order{Op: "mlock", Object: "m", Token: key})
		other.must(t, order{Op: "mspin", Object: "m", Token: key + 1<<32, N: 50})
	}
	for _, key := range keys[2:] {
		other.must(t, order{Op: "munlock", Object: "m", Token: key})
	}
	stopped.proc.Cont(t)
	h.Unlock()
	require.Empty(t, stopped.wait(t, waits).Panic)
}

// TestMultiLockFIFO: waiters get each key in the order of arrival, and no other call gets it in
// between.
func TestMultiLockFIFO(t *testing.T) {
	a := newArena(t, nil)
	x := openMulti(t, a, nil)
	actors := []*actor{lockActor(t, a, "one"), lockActor(t, a, "two"), lockActor(t, a, "three")}
	keys := sameBucket(x, 7) // the bucket has no room for the last two keys
	var holds prims.Holds
	for _, key := range keys {
		holds = append(holds, x.Lock(key))
	}
	ids := map[uint64][]int{}
	for i := range 3 {
		for _, key := range keys {
			ids[key] = append(ids[key], multiQueued(t, x, actors[(i+int(key))%3], key, order{Op: "mlock", Token: key}))
		}
	}
	holds.Unlock()
	for _, key := range keys {
		for i, id := range ids[key] {
			by := actors[(i+int(key))%3]
			require.Empty(t, by.wait(t, id).Panic)
			require.Equal(t, 2-i, x.Queued(key))
			_, ok := x.TryLock(key)
			require.False(t, ok, "nobody overtakes")
			by.must(t, order{Op: "munlock", Object: "m", Token: key})
		}
		require.Equal(t, "free", x.State(key).Word)
	}
}

// TestMultiLockSkips: waiters that gave up, timed out or died delay no other waiter.
func TestMultiLockSkips(t *testing.T) {
	a := newArena(t, nil)
	x := openMulti(t, a, nil)
	one, dies, last := lockActor(t, a, "one"), lockActor(t, a, "dies"), lockActor(t, a, "last")
	h := x.Lock(7)
	canceled := multiQueued(t, x, one, 7, order{Op: "mlockctx", Token: 7})
	late := multiQueued(t, x, one, 7, order{Op: "mlockctx", Token: 7, Limit: 100 * time.Millisecond})
	multiQueued(t, x, dies, 7, order{Op: "mlock", Token: 7})
	end := multiQueued(t, x, last, 7, order{Op: "mlock", Token: 7})
	one.must(t, order{Op: "cancel", N: canceled})
	require.Contains(t, one.wait(t, canceled).Is, "ctx-canceled")
	require.Contains(t, one.wait(t, late).Is, "ctx-deadline")
	dies.proc.Kill(t)
	h.Unlock()
	require.Empty(t, last.wait(t, end).Panic)
	last.must(t, order{Op: "munlock", Object: "m", Token: 7})
	require.Equal(t, "free", x.State(7).Word)
}

// TestMultiLockMemory: a MultiLock takes memory for the keys that are held now, not for keys that
// were held before.
func TestMultiLockMemory(t *testing.T) {
	a := newArena(t, nil)
	x := openMulti(t, a, nil)
	before := a.Stats()
	n := proctest.Rounds(50_000, uint64(1_000_000))
	for key := range n {
		x.Lock(key * 0x9e3779b97f4a7c15).Unlock()
	}
	require.Equal(t, before.Nodes, a.Stats().Nodes)
	require.Equal(t, before.BytesUsed, a.Stats().BytesUsed)

	// Many keys are held at a time. Each key that has no room in the MultiLock itself takes 64 bytes, which stay.
	most := before.BytesUsed + 5000*64
	for range 3 {
		var holds prims.Holds
		for key := range uint64(5000) {
			holds = append(holds, x.Lock(key))
		}
		require.Contains(t, x.String(), "5000 keys are not free")
		for _, i := range rand.New(rand.NewPCG(3, 4)).Perm(len(holds)) {
			holds[i].Unlock()
		}
		require.LessOrEqual(t, a.Stats().BytesUsed, most)
		require.Contains(t, x.String(), ": 0 keys")
	}
	require.Equal(t, before.Nodes, a.Stats().Nodes)
}

// TestMultiLockDeleted: if an object is deleted, the holds of dead processes are deleted with it.
func TestMultiLockDeleted(t *testing.T) {
	a := newArena(t, nil)
	dies := lockActor(t, a, "dies")
	x := openMulti(t, a, &prims.MultiLockOptions{Buckets: 1})
	before := a.Stats()
	var holds prims.Holds
	for key := range uint64(20) {
		holds = append(holds, x.Lock(key))
	}
	dies.must(t, order{Op: "mall", Object: "m", Token: 100, N: 20})
	require.Equal(t, 3+10*4, x.Entries(0), "room for 40 keys")
	dies.proc.Kill(t)
	alone(t, a, 1)
	require.ErrorIs(t, x.State(100).Err, shmsync.ErrOwnerDead)
	holds.Unlock()
	require.NoError(t, x.Close())
	require.NoError(t, a.Delete("m"))
	require.Less(t, a.Stats().BytesUsed, before.BytesUsed, "the blocks are deleted, too")
	require.Equal(t, before.Nodes, a.Stats().Nodes)
	sound(t, a)
}

func TestMultiLockAll(t *testing.T) {
	a := newArena(t, nil)
	x := openMulti(t, a, nil)
	other := lockActor(t, a, "other")
	ctx := context.Background()
	none, err := x.LockAllContext(ctx)
	require.NoError(t, err)
	none.Unlock()
	h, err := x.LockAllContext(ctx, 5, 3, 5, 1, 3)
	require.NoError(t, err)
	require.Len(t, h, 3, "a key that is given twice is locked once")
	for key := range uint64(7) {
		require.Equal(t, key == 1 || key == 3 || key == 5, x.State(key).Held)
	}
	h.Unlock()
	require.Panics(t, h.Unlock)
	h = x.LockAll(5, 3)
	require.Len(t, h, 2)
	h.Unlock()

	// LockAll locks all keys or none, also if its context ends or a key is owner-dead.
	held := x.Lock(4)
	id := multiQueued(t, x, other, 4, order{Op: "mall", Token: 1, N: 6})
	require.True(t, x.State(1).Held && x.State(3).Held)
	require.False(t, x.State(5).Held)
	other.must(t, order{Op: "cancel", N: id})
	require.Contains(t, other.wait(t, id).Is, "ctx-canceled")
	for key := range uint64(7) {
		require.Equal(t, key == 4, x.State(key).Held)
		require.Zero(t, x.Queued(key))
	}
	held.Unlock()
	dies := lockActor(t, a, "dies")
	dies.must(t, order{Op: "mlock", Object: "m", Token: 4})
	id = multiQueued(t, x, other, 4, order{Op: "mall", Token: 1, N: 6})
	dies.proc.Kill(t)
	got := other.wait(t, id)
	require.Contains(t, got.Is, "owner-dead")
	require.Contains(t, got.Err, "key 4")
	for key := range uint64(7) {
		require.False(t, x.State(key).Held)
	}
	require.NoError(t, x.RecoverContext(ctx, 4, func() error { return nil }))

	// If a process dies in LockAll, the policy decides what happens to the keys that it had locked.
	// No other key is affected.
	held = x.Lock(4)
	multiQueued(t, x, other, 4, order{Op: "mall", Token: 1, N: 6})
	other.proc.Kill(t)
	for key := uint64(1); key < 4; key++ {
		_, err := x.LockContext(ctx, key)
		require.ErrorIs(t, err, shmsync.ErrOwnerDead)
	}
	held.Unlock()
	h, err = x.LockAllContext(ctx, 4, 5, 6)
	require.NoError(t, err)
	h.Unlock()
}

// TestMultiLockAllNoDeadlock: processes that lock overlapping sets of keys do not wait for each
// other in a cycle.
func TestMultiLockAllNoDeadlock(t *testing.T) {
	a := newArena(t, nil)
	x := openMulti(t, a, nil)
	actors := []*actor{lockActor(t, a, "one"), lockActor(t, a, "two"), lockActor(t, a, "three")}
	var ids []int
	for i, by := range actors {
		ids = append(ids, by.start(order{Op: "msets", Object: "m", Token: uint64(i), N: 300}))
	}
	done := make(chan error, 1)
	go func() { done <- lockSets(x, 9, 300) }()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-after(timeout()):
		t.Fatalf("they wait for each other\n%s", words(a))
	}
	for i, by := range actors {
		got := by.wait(t, ids[i])
		require.Empty(t, got.Err+got.Panic)
	}
	require.Contains(t, x.String(), ": 0 keys")
}

// lockSets makes four goroutines lock random sets of a few keys, n times each.
func lockSets(x *prims.MultiLock, seed uint64, n int) error {
	var wg sync.WaitGroup
	errs := make(chan error, 4)
	for g := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, g))
		wg.Go(func() {
			for range n {
				keys := make([]uint64, 2+r.IntN(6))
				for i := range keys {
					keys[i] = r.Uint64N(10)
				}
				h, err := x.LockAllContext(context.Background(), keys...)
				if err != nil {
					errs <- err
					return
				}
				h.Unlock()
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}

func TestMultiLockOwnerDeathReport(t *testing.T) {
	a := newArena(t, nil)
	x := openMulti(t, a, nil)
	dies, other := lockActor(t, a, "dies"), lockActor(t, a, "other")
	keys := sameBucket(x, 8)
	for _, key := range keys {
		dies.must(t, order{Op: "mlock", Object: "m", Token: key})
	}
	var ids []int
	for _, key := range keys {
		ids = append(ids, multiQueued(t, x, other, key, order{Op: "mlockctx", Token: key}))
	}
	panics := multiQueued(t, x, other, keys[0], order{Op: "mlock", Token: keys[0]})
	nodes := ownNodes(a)
	dies.proc.Kill(t)
	for i, id := range ids {
		got := other.wait(t, id)
		require.Contains(t, got.Is, "owner-dead", "key %d: %v", keys[i], got)
		require.Equal(t, "dies", got.Who.Label)
	}
	require.Contains(t, other.wait(t, panics).Is, "owner-dead")
	alone(t, a, 2)
	for _, key := range keys {
		_, err := x.LockContext(context.Background(), key)
		require.ErrorIs(t, err, shmsync.ErrOwnerDead, "newcomers, too")
		_, ok := x.TryLock(key)
		require.False(t, ok)
		require.ErrorIs(t, x.State(key).Err, shmsync.ErrOwnerDead)
	}
	require.LessOrEqual(t, ownNodes(a), nodes)

	// If a repair fails, the key is not recoverable, and other keys stay as they are.
	require.Contains(t, other.do(t, order{Op: "mrecover", Object: "m", Token: keys[0], N: 1}).Is, "not-recoverable")
	_, err := x.LockContext(context.Background(), keys[0])
	require.ErrorIs(t, err, shmsync.ErrNotRecoverable)
	require.Equal(t, "dies", x.State(keys[0]).Owner.Label)
	require.ErrorIs(t, x.State(keys[1]).Err, shmsync.ErrOwnerDead)
	require.Contains(t, other.do(t, order{Op: "mrecover", Object: "m", Token: keys[0], N: 2}).Panic, "the repair panics")

	// The process that recovers has the key, so its death counts as the death of a holder.
	other.start(order{Op: "mrecover", Object: "m", Token: keys[7], N: 3})
	eventually(t, "it is being recovered", x.String, func() bool { return x.State(keys[7]).Held })
	wait := make(chan error, 1)
	go func() {
		_, err := x.LockContext(context.Background(), keys[7])
		wait <- err
	}()
	eventually(t, "another waits", x.String, func() bool { return x.Queued(keys[7]) == 1 })
	other.proc.Kill(t)
	require.ErrorIs(t, <-wait, shmsync.ErrOwnerDead)
	for _, key := range keys {
		ran := false
		require.NoError(t, x.Recover(key, func() error { ran = true; return nil }))
		require.True(t, ran)
		x.Lock(key).Unlock()
		require.NoError(t, x.Recover(key, func() error { panic("the repair of a healthy key runs") }))
	}
	alone(t, a, 1)
	require.Contains(t, x.String(), ": 0 keys")
}

// TestMultiLockOwnerDeathRelease: under PolicyRelease the first waiter in the queue gets the key of
// a dead holder.
func TestMultiLockOwnerDeathRelease(t *testing.T) {
	a := newArena(t, nil)
	x := openMulti(t, a, &prims.MultiLockOptions{Policy: prims.PolicyRelease, Buckets: 1})
	dies, other := lockActor(t, a, "dies"), lockActor(t, a, "other")
	var ids []int
	for key := range uint64(8) {
		dies.must(t, order{Op: "mlock", Object: "m", Token: key})
		multiQueued(t, x, dies, key, order{Op: "mlock", Token: key})
		if key%2 == 0 {
			ids = append(ids, multiQueued(t, x, other, key, order{Op: "mlock", Token: key}))
		}
	}
	dies.proc.Kill(t)
	for i, id := range ids {
		require.Empty(t, other.wait(t, id).Panic)
		require.Equal(t, "other", x.State(uint64(2*i)).Owner.Label)
	}
	for key := range uint64(8) {
		if key%2 == 0 {
			other.must(t, order{Op: "munlock", Object: "m", Token: key})
		}
		x.Lock(key).Unlock()
	}
}

func TestMultiLockMisuse(t *testing.T) {
	a := newArena(t, nil)
	x := openMulti(t, a, nil)
	h := x.Lock(7)
	h.Unlock()
	require.PanicsWithValue(t, "shmsync: Unlock of key 7 of multilock m, which this Hold does not hold: it is free", h.Unlock)
	again := x.Lock(7)
	require.Panics(t, h.Unlock, "the stale Hold, while the key is held by the same process")
	again.Unlock()
	require.Panics(t, prims.Hold{}.Unlock)
	other := lockActor(t, a, "other")
	other.must(t, order{Op: "mlock", Object: "m", Token: 7})
	require.Panics(t, h.Unlock)
	other.must(t, order{Op: "munlock", Object: "m", Token: 7})
	require.Contains(t, other.do(t, order{Op: "munlock", Object: "m", Token: 7}).Panic, "does not hold")
	require.Panics(t, func() { prims.OpenMultiLock(a, "", &prims.MultiLockOptions{Buckets: -1}) })
}

func TestMultiLockOpen(t *testing.T) {
	a := newArena(t, nil)
	x := openMulti(t, a, &prims.MultiLockOptions{Policy: prims.PolicyRelease, Buckets: 100})
	again, err := prims.OpenMultiLock(a, "m", &prims.MultiLockOptions{Buckets: 128})
	require.NoError(t, err)
	require.NotSame(t, x, again)
	require.Equal(t, prims.PolicyRelease, x.Policy())
	_, err = prims.OpenMultiLock(a, "m", &prims.MultiLockOptions{Policy: prims.PolicyReport})
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	_, err = prims.OpenMultiLock(a, "m", &prims.MultiLockOptions{Buckets: 64})
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.ErrorContains(t, err, "its policy is release, with 128 buckets; asked for default, 64")
	at, err := prims.MultiLockAt(a, x.Offset())
	require.NoError(t, err)
	m, err := prims.OpenMutex(a, "mutex", nil)
	require.NoError(t, err)
	_, err = prims.MultiLockAt(a, m.Offset())
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	x.Lock(1)
	require.NoError(t, at.Close())
	require.NoError(t, again.Close())
	require.NoError(t, x.Close())
	require.ErrorIs(t, x.Close(), shmsync.ErrClosed)
	x = openMulti(t, a, nil)
	require.True(t, x.State(1).Held, "Close of a handle unlocks no key")
}

func TestMultiLockAllocates(t *testing.T) {
	needsOpen(t) // the race detector also makes sync.Pool forget values
	x := newMultiLock(t, nil)
	ctx := context.Background()
	x.Lock(5).Unlock()
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		x.Lock(5).Unlock()
		h, _ := x.LockContext(ctx, 5)
		h.Unlock()
		h, _ = x.TryLock(5)
		h.Unlock()
	}))
}

func TestMultiLockCancelVersusGrant(t *testing.T) {
	rounds := proctest.Rounds(5_000, 50_000)
	a := newArena(t, nil)
	x := openMulti(t, a, nil)
	var h prims.Hold
	held, gave := duel(t, a, order{Op: "mduel", Object: "m", Token: 7, N: rounds}, func(i int, queued func()) func(r *rand.Rand) error {
		ctx, cancel := context.WithCancel(context.Background())
		got := make(chan error, 1)
		go func() {
			var err error
			h, err = x.LockContext(ctx, 7)
			got <- err
		}()
		for x.Queued(7) != 1 {
			runtime.Gosched()
		}
		queued()
		return func(r *rand.Rand) error {
			dawdle(r)
			cancel()
			return <-got
		}
	}, func() { h.Unlock() })
	require.Equal(t, rounds, held+gave)
	t.Logf("held %d, given up %d", held, gave)
	require.Zero(t, x.Queued(7))
	require.Equal(t, "free", x.State(7).Word, "nothing is lost")
}

// TestMultiLockNoSpace: if there is no room for a key, the call returns an error, and the MultiLock
// still works.
func TestMultiLockNoSpace(t *testing.T) {
	a := newArena(t, &arena.Options{Size: 2 << 20})
	x := openMulti(t, a, &prims.MultiLockOptions{Buckets: 1})
	var holds prims.Holds
	for key := range uint64(3) {
		holds = append(holds, x.Lock(key))
	}
	fill(t, a)
	_, err := x.LockContext(context.Background(), 5)
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
	_, err = x.LockContext(context.Background(), 0)
	require.ErrorIs(t, err, shmsync.ErrNoSpace, "no room to wait")
	_, ok := x.TryLock(5)
	require.False(t, ok)
	_, err = x.LockAllContext(context.Background(), 5, 7)
	require.True(t, errors.Is(err, shmsync.ErrNoSpace))
	holds.Unlock()
	for key := range uint64(9) {
		x.Lock(key).Unlock()
	}
}
