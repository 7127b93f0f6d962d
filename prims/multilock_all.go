package prims

import (
	"context"
	"slices"

	"github.com/shmsync/shmsync/internal/crashpoint"
)

// Holds are holds of several keys that this process has locked together.
type Holds []Hold

// LockAll locks all the keys, and waits until it has them. If a key is given twice, it is locked once. Where
// LockAllContext returns an error, LockAll panics with that error, which is an *[shmsync.Error].
//
// LockAll locks the keys in the order of their numbers, in every process. So calls of LockAll cannot wait for each
// other in a cycle. A cycle is still possible if a process holds other keys during the call.
func (x *MultiLock) LockAll(keys ...uint64) Holds {
	h, err := x.LockAllContext(context.Background(), keys...)
	if err != nil {
		panic(waysOut(err))
	}
	return h
}

// LockAllContext is like LockAll, but ends when ctx ends. An error or a panic means that none of the keys is held. The
// error is that of LockContext for the key that could not be locked.
func (x *MultiLock) LockAllContext(ctx context.Context, keys ...uint64) (Holds, error) {
	if err := x.opening.error("multilock.lock"); err != nil {
		return nil, err
	}
	sorted := slices.Clone(keys)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	holds := make(Holds, 0, len(sorted))
	if len(sorted) > 0 {
		// An error or a panic may force this call to unlock the keys that it has locked. Close waits until the call
		// has done so.
		if !x.queue.Enter() {
			return nil, x.closed("multilock.lock")
		}
		defer x.queue.Exit()
	}
	done := false
	defer func() {
		if !done { // lock panics if the caller of LockAll is a repair of this key
			x.giveAll(holds)
		}
	}()
	for _, key := range sorted {
		h, err := x.lock(ctx, key)
		if err != nil {
			return nil, err
		}
		holds = append(holds, h)
		crashpoint.Hit("multilock.lockall.partly")
	}
	done = true
	return holds, nil
}

// giveAll unlocks the keys that a failed LockAllContext has locked, the last one first.
func (x *MultiLock) giveAll(holds Holds) {
	for _, h := range slices.Backward(holds) {
		if !h.in.unlockFast(h) {
			h.in.give(h) // an error here only says that a peer has overwritten the lock
			x.turns.KeyHoldEnded(h.key)
		}
	}
}

// Unlock unlocks all the keys, the last one first. It panics as Hold.Unlock does at the first key
// that this process no longer holds.
func (h Holds) Unlock() {
	// A waiter that gets one of the keys may close the handle. Close waits for this call until the
	// other keys are unlocked.
	var of *MultiLock
	for i := len(h) - 2; i >= 0; i-- {
		if k := h[i].in; k != nil && k.of != of && k.queue.Enter() {
			of = k.of
			defer k.queue.Exit()
		}
	}
	for i := len(h) - 1; i >= 0; i-- {
		h[i].Unlock()
	}
}
