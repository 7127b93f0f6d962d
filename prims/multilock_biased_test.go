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

// quickly returns a biased hold of a key, which this process unlocks by CAS.
func quickly(t *testing.T, x *prims.MultiLock, key uint64) prims.Hold {
	t.Helper()
	if race.Enabled {
		t.Skip("needs a build without the race detector: with it, every call takes the queue lock")
	}
	x.Lock(key).Unlock()
	require.Contains(t, x.HoldWord(key), "free, last held by")
	h := x.Lock(key)
	require.Contains(t, x.HoldWord(key), "biased", "the second time in a row")
	return h
}

func TestMultiLockBiased(t *testing.T) {
	a := newArena(t, nil)
	x := openMulti(t, a, nil)
	other := lockActor(t, a, "other")
	h := quickly(t, x, 7)
	require.True(t, x.State(7).Held)
	require.NoError(t, x.State(7).Err)
	_, ok := x.TryLock(7)
	require.False(t, ok)
	require.False(t, other.do(t, order{Op: "mtry", Object: "m", Token: 7}).OK)
	require.Contains(t, x.HoldWord(7), "biased", "who tries leaves it so")
	h.Unlock()
	require.Contains(t, x.HoldWord(7), "free, kept for")
	require.Equal(t, "free", x.State(7).Word)
	require.Contains(t, x.String(), ": 0 keys")
	require.Panics(t, h.Unlock, "a stale Hold")
	require.Contains(t, x.HoldWord(7), "free, last held by")
	stale := x.Lock(7)
	stale.Unlock()
	h = x.Lock(7)
	require.Panics(t, stale.Unlock, "a stale Hold, while the key is held")
	require.True(t, x.State(7).Held)
	h.Unlock()

	// If a process waits for a biased key, the key is no longer biased, and the first waiter gets
	// it.
	h = quickly(t, x, 8)
	first := multiQueued(t, x, other, 8, order{Op: "mlock", Token: 8})
	second := multiQueued(t, x, other, 8, order{Op: "mlock", Token: 8})
	require.NotContains(t, x.HoldWord(8), "biased")
	h.Unlock()
	require.Empty(t, other.wait(t, first).Panic)
	require.Equal(t, 1, x.Queued(8))
	_, ok = x.TryLock(8)
	require.False(t, ok)
	other.must(t, order{Op: "munlock", Object: "m", Token: 8})
	require.Empty(t, other.wait(t, second).Panic)
	other.must(t, order{Op: "munlock", Object: "m", Token: 8})

	// A cached key is free for other processes. After another process has locked it, this process
	// no longer locks it by CAS.
	quickly(t, x, 9).Unlock()
	require.True(t, other.do(t, order{Op: "mtry", Object: "m", Token: 9}).OK)
	require.Equal(t, "other", x.State(9).Owner.Label)
	other.must(t, order{Op: "munlock", Object: "m", Token: 9})
	h = x.Lock(9)
	require.NotContains(t, x.HoldWord(9), "biased")
	h.Unlock()
}

// TestMultiLockBiasedEvicted: the entries of cached keys can be used for other keys, so other keys
// need no extra nodes.
func TestMultiLockBiasedEvicted(t *testing.T) {
	a := newArena(t, nil)
	x := openMulti(t, a, &prims.MultiLockOptions{Buckets: 1})
	before := a.Stats().Nodes
	for key := range uint64(5) {
		quickly(t, x, key).Unlock()
	}
	var holds prims.Holds
	for key := range uint64(5) {
		holds = append(holds, x.Lock(key+10))
	}
	require.Equal(t, before, a.Stats().Nodes, "all that was kept has gone")
	for key := range uint64(5) {
		holds = append(holds, x.Lock(key))
	}
	require.Equal(t, before+5, a.Stats().Nodes)
	holds.Unlock()
	require.Equal(t, before, a.Stats().Nodes)

	// While the other entries are held, all further keys use the one remaining entry.
	held := x.Lock(20)
	biased := quickly(t, x, 21)
	for key := range uint64(200) {
		x.Lock(100 + key).Unlock()
	}
	require.Contains(t, x.HoldWord(21), "biased", "nobody wants it")
	biased.Unlock()
	for key := range uint64(200) {
		x.Lock(100 + key).Unlock()
	}
	require.NotContains(t, x.HoldWord(21), "kept", "it goes in the end")
	held.Unlock()
}

// TestMultiLockBiasedDeath: a participant that has locked keys by CAS dies. Other processes find
// the keys in the states that the policy demands.
func TestMultiLockBiasedDeath(t *testing.T) {
	for _, policy := range []prims.Policy{prims.PolicyReport, prims.PolicyRelease} {
		t.Run(policy.String(), func(t *testing.T) {
			a := newArena(t, nil)
			x := openMulti(t, a, &prims.MultiLockOptions{Policy: policy, Buckets: 1})
			quickly(t, x, 0).Unlock() // skips the test with the race detector, which has no biased holds
			dies := lockActor(t, a, "dies")
			dies.must(t, order{Op: "mspin", Object: "m", Token: 1, N: 3})
			dies.must(t, order{Op: "mspin", Object: "m", Token: 2, N: 3})
			dies.must(t, order{Op: "mlock", Object: "m", Token: 1})
			require.Contains(t, x.HoldWord(1), "biased")
			require.Contains(t, x.HoldWord(2), "kept for")
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

// TestMultiLockBiasedLeaves: a process that leaves the arena leaves its keys that were locked by
// CAS in the same state as a process that dies.
func TestMultiLockBiasedLeaves(t *testing.T) {
	a := newArena(t, nil)
	x := openMulti(t, a, nil)
	quickly(t, x, 0).Unlock() // skips the test with the race detector, which has no biased holds
	leaves := lockActor(t, a, "leaves")
	for key := range uint64(3) {
		leaves.must(t, order{Op: "mspin", Object: "m", Token: key, N: 3})
	}
	leaves.must(t, order{Op: "mlock", Object: "m", Token: 1})
	require.Contains(t, x.HoldWord(1), "biased")
	leaves.must(t, order{Op: "mleave", Object: "m"})
	_, err := x.LockContext(context.Background(), 1)
	require.ErrorIs(t, err, shmsync.ErrOwnerDead)
	x.Lock(2).Unlock()
	sound(t, a)
}
