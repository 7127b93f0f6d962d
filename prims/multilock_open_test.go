//go:build linux

package prims_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/prims"
)

// needsOpen skips a test in a build with the race detector, in which no hold word is open.
func needsOpen(t *testing.T) {
	t.Helper()
	if race.Enabled {
		t.Skip("needs a build without the race detector: with it, every call makes a record")
	}
}

// TestMultiLockOpenHold: while nobody waits for a key, its hold is open, so that each process locks and
// unlocks it by CAS. If a process waits, the hold is closed until the key is free again.
func TestMultiLockOpenHold(t *testing.T) {
	needsOpen(t)
	a := newArena(t, nil)
	x := openMulti(t, a, nil)
	other := lockActor(t, a, "other")
	h := x.Lock(7)
	require.Contains(t, x.HoldWord(7), "held by")
	require.Contains(t, x.HoldWord(7), "open")
	require.True(t, x.State(7).Held)
	require.NoError(t, x.State(7).Err)
	_, ok := x.TryLock(7)
	require.False(t, ok)
	require.False(t, other.do(t, order{Op: "mtry", Object: "m", Token: 7}).OK)
	require.Contains(t, x.HoldWord(7), "open", "a TryLock that fails leaves the hold open")
	h.Unlock()
	require.Equal(t, "free, open", x.HoldWord(7))
	require.Equal(t, "free", x.State(7).Word)
	require.Contains(t, x.String(), ": 0 keys")
	require.Panics(t, h.Unlock, "a stale Hold")
	require.Equal(t, "free, open", x.HoldWord(7))
	stale := x.Lock(7)
	stale.Unlock()
	h = x.Lock(7)
	require.Panics(t, stale.Unlock, "a stale Hold, while the key is held")
	require.True(t, x.State(7).Held)
	h.Unlock()

	h = x.Lock(8)
	first := multiQueued(t, x, other, 8, order{Op: "mlock", Token: 8})
	second := multiQueued(t, x, other, 8, order{Op: "mlock", Token: 8})
	require.NotContains(t, x.HoldWord(8), "open")
	h.Unlock()
	require.Empty(t, other.wait(t, first).Panic)
	require.Equal(t, 1, x.Queued(8))
	_, ok = x.TryLock(8)
	require.False(t, ok)
	require.Panics(t, h.Unlock, "a stale Hold, while another process has the key")
	other.must(t, order{Op: "munlock", Object: "m", Token: 8})
	require.Empty(t, other.wait(t, second).Panic)
	other.must(t, order{Op: "munlock", Object: "m", Token: 8})
	require.Equal(t, "free, open", x.HoldWord(8))

	// The other process locks a key that this process had last.
	require.True(t, other.do(t, order{Op: "mtry", Object: "m", Token: 7}).OK)
	require.Equal(t, "other", x.State(7).Owner.Label)
	require.Contains(t, x.HoldWord(7), "open")
	other.must(t, order{Op: "munlock", Object: "m", Token: 7})
	h = x.Lock(7)
	require.Contains(t, x.HoldWord(7), "open")
	h.Unlock()
}

// TestMultiLockWaiterGivesUp: the only waiter for a key gives up. The Hold of the holder is still
// good, although a record has changed the queue of the key.
func TestMultiLockWaiterGivesUp(t *testing.T) {
	x := openMulti(t, newArena(t, nil), nil)
	h := x.Lock(7)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := x.LockContext(ctx, 7)
		done <- err
	}()
	eventually(t, "it waits", x.String, func() bool { return x.Queued(7) == 1 })
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	h.Unlock()
	_, ok := x.TryLock(7)
	require.True(t, ok)
}

// TestMultiLockEvicts: a key that is free loses its entry when another key needs an entry. A new entry is made only
// if all entries are in use, and a key that is in use keeps its entry.
func TestMultiLockEvicts(t *testing.T) {
	a := newArena(t, nil)
	x := openMulti(t, a, &prims.MultiLockOptions{Buckets: 1})
	for key := range uint64(100) {
		x.Lock(key).Unlock()
	}
	require.Equal(t, 3, x.Entries(0))
	var holds prims.Holds
	for key := range uint64(8) {
		holds = append(holds, x.Lock(key))
	}
	require.Equal(t, 11, x.Entries(0))
	for key := range uint64(8) {
		require.True(t, x.State(key).Held, "key %d", key)
	}
	// A key keeps its entry when a block is added. If a call waits for the key, Unlock makes a record with the index
	// of the entry.
	got := make(chan prims.Hold)
	go func() { got <- x.Lock(3) }()
	eventually(t, "it waits", x.String, func() bool { return x.Queued(3) == 1 })
	holds[3].Unlock()
	holds[3] = <-got
	for key := range uint64(1000) {
		x.Lock(100 + key).Unlock()
	}
	require.Equal(t, 11, x.Entries(0))
	stale := x.Lock(50)
	stale.Unlock()
	for key := range uint64(1000) { // the entry of key 50 gets other keys
		x.Lock(2000 + key).Unlock()
	}
	require.Panics(t, stale.Unlock, "the entry of the stale Hold has another key")
	holds.Unlock()
	require.Contains(t, x.String(), ": 0 keys")
	sound(t, a)
}

// TestMultiLockDeathOfAHolderByCAS: a participant that has locked keys by CAS dies. Other processes find the keys in
// the states that the policy demands.
func TestMultiLockDeathOfAHolderByCAS(t *testing.T) {
	needsOpen(t)
	for _, policy := range []prims.Policy{prims.PolicyReport, prims.PolicyRelease} {
		t.Run(policy.String(), func(t *testing.T) {
			a := newArena(t, nil)
			x := openMulti(t, a, &prims.MultiLockOptions{Policy: policy, Buckets: 1})
			dies := lockActor(t, a, "dies")
			dies.must(t, order{Op: "mspin", Object: "m", Token: 1, N: 3})
			dies.must(t, order{Op: "mspin", Object: "m", Token: 2, N: 3})
			dies.must(t, order{Op: "mlock", Object: "m", Token: 1})
			require.Contains(t, x.HoldWord(1), "open")
			require.Equal(t, "free, open", x.HoldWord(2))
			dies.proc.Kill(t)
			x.Lock(2).Unlock()
			h, err := x.LockContext(context.Background(), 1)
			if policy == prims.PolicyRelease {
				require.NoError(t, err)
				h.Unlock()
			} else {
				require.ErrorIs(t, err, shmsync.ErrOwnerDead)
				_, ok := x.TryLock(1)
				require.False(t, ok)
				require.NoError(t, x.Recover(1, func() error { return nil }))
			}
			alone(t, a, 1)
			require.Contains(t, x.String(), ": 0 keys")
			sound(t, a)
		})
	}
}

// TestMultiLockLeaves: a process that leaves the arena leaves its keys in the same state as a
// process that dies.
func TestMultiLockLeaves(t *testing.T) {
	a := newArena(t, nil)
	x := openMulti(t, a, nil)
	leaves := lockActor(t, a, "leaves")
	for key := range uint64(3) {
		leaves.must(t, order{Op: "mspin", Object: "m", Token: key, N: 3})
	}
	leaves.must(t, order{Op: "mlock", Object: "m", Token: 1})
	leaves.must(t, order{Op: "mleave", Object: "m"})
	_, err := x.LockContext(context.Background(), 1)
	require.ErrorIs(t, err, shmsync.ErrOwnerDead)
	x.Lock(2).Unlock()
	sound(t, a)
}
