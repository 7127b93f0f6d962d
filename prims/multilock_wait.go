package prims

import (
	"context"
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

// lockSlow is the part of lock after the fast path has failed. ctx may be nil.
func (k *multiBucket) lockSlow(ctx context.Context, key uint64) (Hold, error) {
	// This call may be granted the key. So Close of the handle waits until the call has accepted the grant.
	if !k.queue.Enter() {
		return k.lockClosing(key)
	}
	defer k.queue.Exit()
	h, r, err := k.takeWithRoom(ctx, key, nil)
	if r != lockNotNow || err != nil {
		return h, err
	}
	if text := k.of.opening.selfWait(ctx, "Lock", &key); text != "" {
		panic(text)
	}
	s, err := k.queue.TakeNode()
	if err != nil {
		return Hold{}, err
	}
	k.prepare(s, key)
	s.Withdrawer = (*lockWaits)(&k.recordLock)
	k.waits.Add(1)
	defer k.waits.Add(-1)
	if h, r, err = k.takeWithRoom(ctx, key, s); r == lockQueued {
		return k.await(ctx, s, h)
	}
	k.unused(s)
	return h, err
}

// lockClosing locks the key while the handle is being closed, if that is possible without waiting.
func (k *multiBucket) lockClosing(key uint64) (Hold, error) {
	s, ok := k.of.opening.tryServe(k.queue)
	if !ok {
		return Hold{}, k.closedError()
	}
	defer s.end()
	h, r, err := k.takeWithRoom(nil, key, nil)
	if r != lockTaken && err == nil {
		err = k.closedError()
	}
	return h, err
}

// await returns when the queued wait of the node s has ended; see awaitTurn. If the wait was granted the key of h,
// await accepts the grant.
func (k *multiBucket) await(ctx context.Context, s *park.WaitNode, h Hold) (Hold, error) {
	if err := k.awaitTurn(ctx, s); err != nil {
		return Hold{}, err
	}
	err := k.outcome(s, h.at.lock(), h.key)
	if err == nil {
		h, err = k.acceptKey(h)
	}
	if err != nil {
		k.of.turns.KeyHoldEnded(h.key)
		return Hold{}, err
	}
	return h, nil
}

// acceptKey makes this process the holder of the key that was granted to one of its waits.
func (k *multiBucket) acceptKey(h Hold) (Hold, error) {
	v, ok := h.at.lock().accept(k.name)
	if !ok {
		return h, k.lockError(h.key, shmsync.ErrCorrupt, 0, keyStateOf(v).String())
	}
	crashpoint.Hit("multilock.lock.accepted")
	race.Acquire(k.raceKey(h.key))
	return makeHold(k, h.at, h.key, h.index(), v.tag()), nil
}

// lockError returns the error of a call that locks a key. The recordLock calls it, too.
func (k *multiBucket) lockError(key uint64, err error, died arenakernel.ParticipantID, detail string) error {
	return k.fail("multilock.lock", key, err, died, detail)
}

func (k *multiBucket) closedError() error { return k.of.closed("multilock.lock") }

// fail returns an error about a key. If died is not 0, the error names that participant.
func (k *multiBucket) fail(op string, key uint64, err error, died arenakernel.ParticipantID, detail string) error {
	var id *shmsync.Identity
	if died != 0 {
		id = k.a.Who(died)
	}
	text := fmt.Sprintf("key %d", key)
	if detail != "" {
		text += ": " + detail
	}
	return k.of.fail(op, err, id, text)
}

// badUnlock panics because a caller unlocks a hold that this process does not have.
func (k *multiBucket) badUnlock(h Hold, s keyState) {
	if !s.valid() {
		panic(k.fail("multilock.unlock", h.key, shmsync.ErrCorrupt, 0, s.String()))
	}
	panic(fmt.Sprintf("shmsync: Unlock of key %d of multilock %s, which this Hold does not hold: it is %v", h.key, objectName(k.object), s))
}
