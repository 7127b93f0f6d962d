//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/prims"
)

// TestMultiLockDeathOfAHolderBesideStrangers: the holder of a key dies, and the only processes that
// reap it have not opened the MultiLock. They take the key back. They need a record only if the hold
// word is closed, as it is after a grant.
func TestMultiLockDeathOfAHolderBesideStrangers(t *testing.T) {
	for policy, state := range map[prims.Policy]string{prims.PolicyReport: "0 keys held, 1 that nobody can have", prims.PolicyRelease: "0 keys held"} {
		for _, granted := range []bool{false, true} {
			for _, block := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v/granted %v/in a block %v", policy, granted, block), func(t *testing.T) {
					multiBesideStrangers(t, policy, state, granted, block)
				})
			}
		}
	}
}

func multiBesideStrangers(t *testing.T, policy prims.Policy, state string, granted, block bool) {
	a := newArena(t, nil) // this process opens the MultiLock only at the end of the test
	lockActor(t, a, "another stranger")
	dies, first := lockActor(t, a, "dies"), lockActor(t, a, "first")
	var keys []uint64 // keys of the same bucket
	for key := uint64(1); len(keys) < 4; key++ {
		if prims.DefaultBucket(key) == 0 {
			keys = append(keys, key)
		}
	}
	lock := func(op string, key uint64) order {
		return order{Op: op, Object: "m", Token: key, Policy: policy}
	}
	if block {
		for _, key := range keys[:3] {
			first.must(t, lock("mlock", key))
		}
	}
	if granted {
		first.must(t, lock("mlock", keys[3]))
		id := dies.start(lock("mlock", keys[3]))
		eventually(t, "it waits", dies.dump, func() bool { return prims.Queued(a, multiObject(t, a).Offset) == 1 })
		first.must(t, lock("munlock", keys[3]))
		require.Empty(t, dies.wait(t, id).Panic)
	} else {
		dies.must(t, lock("mlock", keys[3]))
	}
	if block {
		for _, key := range keys[:3] {
			first.must(t, lock("munlock", key))
		}
	}
	first.proc.Kill(t)
	alone(t, a, 3)
	dies.proc.Kill(t)
	alone(t, a, 2)
	o := arena.Object(multiObject(t, a))
	require.Equal(t, state, a.Inspect(o).State, "all reaps are over")
	opened := 1 // how many of the processes have opened the MultiLock
	if block || granted {
		opened = 2
	}
	if _, slots := slotRecords(t, a, arenakernel.Object(o)); race.Enabled || granted {
		require.Greater(t, len(slots), opened, "a reaper needs a record")
	} else {
		require.Len(t, slots, opened, "a reaper takes an open key back by a CAS")
	}
	x, err := prims.AttachMultiLock(a, "m", nil)
	require.NoError(t, err)
	require.Equal(t, block, x.Entries(keys[3]) > 3)
	if policy == prims.PolicyReport {
		_, err := x.LockContext(t.Context(), keys[3])
		require.ErrorIs(t, err, shmsync.ErrOwnerDead)
		require.ErrorContains(t, err, "dies")
		require.ErrorIs(t, x.Recover(keys[3], func() error { return errRepair }), shmsync.ErrNotRecoverable)
		require.Equal(t, "dies", x.State(keys[3]).Owner.Label)
		require.NoError(t, x.Recover(keys[3], func() error { return nil }))
	}
	for _, key := range keys {
		x.Lock(key).Unlock()
	}
	sound(t, a)
}

func multiObject(t testing.TB, a *arena.Arena) arenakernel.Object {
	t.Helper()
	o, err := objectNamed(a, "m")
	require.NoError(t, err)
	return o
}

// TestMultiLockOpensAgain: the hold word of a key is open while the key is free and no call waits for it. It is also
// open after a Lock that did not have to wait, until another call waits for the key.
func TestMultiLockOpensAgain(t *testing.T) {
	needsOpen(t)
	for _, policy := range []prims.Policy{prims.PolicyReport, prims.PolicyRelease} {
		t.Run(policy.String(), func(t *testing.T) {
			eachMultiPlace(t, policy, func(t *testing.T, a *arena.Arena, x *prims.MultiLock, key uint64) {
				open := func() bool { return strings.HasSuffix(x.HoldWord(key), ", open") }
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				h := x.Lock(key)
				require.True(t, open())
				_, err := x.LockContext(ctx, key)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.False(t, open(), "a record would change the tag, which names the hold")
				h.Unlock()
				require.Equal(t, "free, open", x.HoldWord(key), "the only waiter gave up")

				dies, other := lockActor(t, a, "dies"), lockActor(t, a, "other")
				h = x.Lock(key)
				require.True(t, open())
				multiQueued(t, x, dies, key, order{Op: "mlock", Token: key})
				require.False(t, open())
				dies.proc.Kill(t)
				alone(t, a, 2)
				eventually(t, "the wait is removed", x.String, func() bool { return !x.State(key).Waiting })
				h.Unlock()
				require.Equal(t, "free, open", x.HoldWord(key), "the only waiter died")

				h = x.Lock(key)
				id := multiQueued(t, x, other, key, order{Op: "mlock", Token: key})
				h.Unlock()
				require.Empty(t, other.wait(t, id).Panic)
				require.False(t, open(), "a hold that was granted is closed")
				other.must(t, order{Op: "munlock", Object: "m", Token: key})
				require.Equal(t, "free, open", x.HoldWord(key))

				// First a holder dies that locked the free key, and then a holder that was granted the key.
				for _, granted := range []bool{false, true} {
					dies := lockActor(t, a, "dies")
					if granted {
						h := x.Lock(key)
						id := multiQueued(t, x, dies, key, order{Op: "mlock", Token: key})
						h.Unlock()
						require.Empty(t, dies.wait(t, id).Panic)
					} else {
						dies.must(t, order{Op: "mlock", Object: "m", Token: key})
					}
					dies.proc.Kill(t)
					alone(t, a, 2)
					if policy == prims.PolicyReport {
						require.False(t, open())
						require.NoError(t, x.Recover(key, func() error { return nil }))
					}
					require.Equal(t, "free, open", x.HoldWord(key), "granted %v", granted)
				}
				sound(t, a)
			})
		})
	}
}

// eachMultiPlace runs a test with a key that has an entry in its bucket, and with one whose entry is
// in a block.
func eachMultiPlace(t *testing.T, policy prims.Policy, f func(t *testing.T, a *arena.Arena, x *prims.MultiLock, key uint64)) {
	for place, held := range map[string]int{"in the bucket": 0, "in a block": 3} {
		t.Run(place, func(t *testing.T) {
			a := newArena(t, nil)
			x := openMulti(t, a, &prims.MultiLockOptions{Policy: policy})
			keys := sameBucket(x, held+1)
			for _, key := range keys {
				h := x.Lock(key)
				if key == keys[held] {
					h.Unlock()
				}
			}
			require.Equal(t, held >= 3, x.Entries(0) > 3)
			f(t, a, x, keys[held])
		})
	}
}

// TestMultiLockRefusedWaits: a wait that is refused returns the reason, even if another process has
// recovered the key before the waiter runs again.
func TestMultiLockRefusedWaits(t *testing.T) {
	eachMultiPlace(t, prims.PolicyReport, func(t *testing.T, a *arena.Arena, x *prims.MultiLock, key uint64) {
		dies, other := lockActor(t, a, "dies"), lockActor(t, a, "other")
		dies.must(t, order{Op: "mlock", Object: "m", Token: key})
		id := multiQueued(t, x, other, key, order{Op: "mlockctx", Token: key})
		other.proc.Stop(t)
		dies.proc.Kill(t)
		eventually(t, "the wait is refused", x.String, func() bool {
			_, err := x.LockContext(t.Context(), key)
			return x.State(key).Err != nil && err != nil && !x.State(key).Waiting
		})
		require.NoError(t, x.Recover(key, func() error { return nil }))
		h := x.Lock(key)
		other.proc.Cont(t)
		got := other.wait(t, id)
		require.Contains(t, got.Is, "owner-dead")
		require.Equal(t, "dies", got.Who.Label)
		h.Unlock()
		sound(t, a)
	})
}

// TestMultiLockStaleHold: a Hold that was unlocked never unlocks a later hold of its key or of its
// entry, whatever happened to the key in between.
func TestMultiLockStaleHold(t *testing.T) {
	eachMultiPlace(t, prims.PolicyReport, func(t *testing.T, a *arena.Arena, x *prims.MultiLock, key uint64) {
		other, dies := lockActor(t, a, "other"), lockActor(t, a, "dies")
		var stale prims.Holds
		lock := func() (h prims.Hold) {
			h = x.Lock(key)
			stale = append(stale, h)
			return h
		}
		check := func() {
			t.Helper()
			before := x.HoldWord(key)
			for _, h := range stale {
				require.Panics(t, h.Unlock)
				require.Equal(t, before, x.HoldWord(key))
			}
		}
		giveUp := func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			_, err := x.LockContext(ctx, key)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		queued := func(by *actor) int { return multiQueued(t, x, by, key, order{Op: "mlock", Token: key}) }

		lock().Unlock()
		check()
		h := x.Lock(key)
		check()
		giveUp() // closes the hold word
		check()
		h.Unlock()
		check()
		stale = append(stale, h)
		for range 5 { // each Unlock is a record
			h := lock()
			giveUp()
			h.Unlock()
			check()
		}
		h = lock()
		id := queued(other)
		h.Unlock()
		require.Empty(t, other.wait(t, id).Panic)
		check() // another process has the key
		queued(dies)
		dies.proc.Kill(t)
		got := make(chan prims.Hold)
		go func() { got <- x.Lock(key) }()
		eventually(t, "this process waits", x.String, func() bool { return x.Queued(key) == 1 })
		check()
		other.must(t, order{Op: "munlock", Object: "m", Token: key})
		h = <-got // granted to the process that has the stale holds
		check()
		require.Panics(t, prims.Holds{stale[0]}.Unlock)
		h.Unlock()
		stale = append(stale, h)
		check()

		// Other keys get the entry of the key, and this process holds them. Then the key has another entry, or the same
		// one again.
		keys := sameBucket(x, 40)[10:]
		for _, k := range keys {
			h := x.Lock(k)
			before := x.HoldWord(k)
			for _, s := range stale {
				require.Panics(t, s.Unlock)
			}
			require.Equal(t, before, x.HoldWord(k))
			h.Unlock()
		}
		require.Equal(t, "no entry", x.HoldWord(key))
		h = x.Lock(key)
		check()
		h.Unlock()
	})
}

// TestMultiLockFindsNewBlocks: a process has locked a key whose entry is in a block. Another process does
// not know that block yet, and finds an entry of a free key in the bucket. It does not give that entry to
// the key.
func TestMultiLockFindsNewBlocks(t *testing.T) {
	a := newArena(t, nil)
	x := openMulti(t, a, nil)
	other := lockActor(t, a, "other")
	keys := sameBucket(x, 5)
	other.must(t, order{Op: "mlock", Object: "m", Token: keys[4]})
	holds := x.LockAll(keys[:4]...)
	require.Equal(t, 7, x.Entries(0))
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := x.LockContext(ctx, keys[4])
	require.ErrorIs(t, err, context.DeadlineExceeded)
	holds[0].Unlock()
	// This Unlock of the other process makes a record, so the process carries out all earlier changes. It still has
	// not looked for blocks.
	other.must(t, order{Op: "munlock", Object: "m", Token: keys[4]})
	got := other.do(t, order{Op: "mlockctx", Object: "m", Token: keys[3], Limit: 20 * time.Millisecond})
	require.Contains(t, got.Is, "ctx-deadline")
	require.False(t, other.do(t, order{Op: "mtry", Object: "m", Token: keys[3]}).OK)
	other.must(t, order{Op: "mlock", Object: "m", Token: keys[0]})
	require.Equal(t, "other", x.State(keys[0]).Owner.Label)
	holds[1:].Unlock()
	other.must(t, order{Op: "mlock", Object: "m", Token: keys[3]})
	sound(t, a)
}

// TestMultiLockInheritedRecord: a participant dies after it has committed a change of one bucket and before it has
// carried the change out. The next participant of its slot makes a change of another bucket, whose record takes the
// place of the first record. Before that, the next participant carries the first change out.
func TestMultiLockInheritedRecord(t *testing.T) {
	a := newArena(t, nil)
	x := openMulti(t, a, nil)
	theirs, own := uint64(1), uint64(2)
	require.False(t, x.SameBucket(theirs, own))
	x.WriteRecord(theirs, 1, true)
	require.NotContains(t, x.HoldWord(theirs), "held")
	next, err := prims.OpenMultiLock(a, "m", nil) // it has the same slot, and knows nothing of the first handle
	require.NoError(t, err)
	next.Lock(own).Unlock()
	require.True(t, next.State(theirs).Held, "the change of the dead participant is lost")
	_, ok := next.TryLock(theirs)
	require.False(t, ok)
	require.Equal(t, "no entry", x.HoldWord(own<<20))
	require.NoError(t, a.Check())
}

// TestMultiLockRecordOfAnotherBucket: a process is late to carry out a change of one bucket. The
// record now has a change of another bucket, with the same version, that is not committed. The
// process changes nothing.
func TestMultiLockRecordOfAnotherBucket(t *testing.T) {
	a := newArena(t, nil)
	x := openMulti(t, a, nil)
	late, err := prims.OpenMultiLock(a, "m", nil)
	require.NoError(t, err)
	one, other := uint64(1), uint64(2)
	require.False(t, x.SameBucket(one, other))
	h := x.Lock(one)               // makes a record of version 1
	x.WriteRecord(other, 1, false) // also of version 1
	o := multiObject(t, a)
	before := prims.BodyOf(a, o)
	require.NoError(t, late.Complete(one))
	require.Equal(t, before, prims.BodyOf(a, o))
	x.WriteRecord(other, 1, true)
	require.NoError(t, late.Complete(one))
	require.NoError(t, late.Complete(other))
	require.True(t, late.State(other).Held)
	h.Unlock()
	require.Equal(t, "free", late.State(one).Word)
}
