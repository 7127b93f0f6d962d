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
	if !k.queue.EnterNode() {
		return k.lockClosing(key)
	}
	defer k.queue.Exit()
	h, r, err := k.takeWithRoom(ctx, key, nil)
	if r != fairNotNow || err != nil {
		return h, err
	}
	s, err := k.queue.TakeNode()
	if err != nil {
		return Hold{}, err
	}
	k.prepare(s, key)
	s.Withdrawer = (*multiWaits)(k)
	k.waits.Add(1)
	defer k.waits.Add(-1)
	switch h, r, err = k.takeWithRoom(ctx, key, s); {
	case r == fairQueued && err != nil:
		s.Forget()
		return Hold{}, err
	case r == fairQueued:
		return k.await(ctx, s, h)
	}
	k.unused(s)
	return h, err
}

// lockClosing locks the key while the handle is being closed, if that is possible without waiting.
func (k *multiBucket) lockClosing(key uint64) (Hold, error) {
	s, ok := k.of.opening.tryServe(k.queue)
	if !ok {
		return Hold{}, k.of.closed("multilock.lock")
	}
	defer s.end()
	h, r, err := k.takeWithRoom(nil, key, nil)
	if r != fairTaken && err == nil {
		err = k.of.closed("multilock.lock")
	}
	return h, err
}

// await waits until the wait of the node s has ended. s is in the queue of the key of h, and on a line, which has the
// waits of this process for the key in the order of arrival. If the wait was granted the key, the next wait on the
// line gets its turn when the hold ends.
func (k *multiBucket) await(ctx context.Context, s *park.WaitNode, h Hold) (Hold, error) {
	k.queue.StartPoller() // the poller checks the queues after each death
	c := park.CancelBy(ctx)
	r, awake := s.SleepInTurn(k.queue, k.tuning, &c)
	c.Stop()
	if awake {
		k.counts.add(countSpin)
	} else {
		k.counts.add(countSleep)
	}
	switch r {
	case park.Canceled:
		crashpoint.Hit("record.await.withdrawn")
		return Hold{}, c.Err()
	case park.Closed:
		crashpoint.Hit("record.await.withdrawn")
		return Hold{}, k.of.closed("multilock.lock")
	}
	s.LeaveLine(valueIn(s.Node.Next()) == arenakernel.RecordedGranted)
	h, err := k.ended(s, h)
	if err != nil {
		k.of.turns.KeyHoldEnded(h.key)
		return Hold{}, err
	}
	return h, nil
}

// ended is called when a wait is over and its node s is off the line of this process. It gives the node back. If the
// wait was granted the key, ended accepts the key. If the wait was refused, it returns the reason as an error.
func (k *multiBucket) ended(s *park.WaitNode, h Hold) (Hold, error) {
	for tries := 0; ; tries++ {
		switch next, why := valueIn(s.Node.Next()), keyState(valueIn(s.Node.Extra())); {
		case next == arenakernel.RecordedRefused:
			crashpoint.Hit("record.await.resolved")
			k.handBack(s)
			return h, k.refusedBy(h, why)
		case k.collect(s):
			return k.accept(h)
		case tries > 0 || k.withdraw(s):
			return h, k.fail("multilock.lock", h.key, shmsync.ErrCorrupt, 0, "a wait node, which ended a wait that was not granted")
		}
	}
}

// refusedBy returns the error of a wait that was refused. why is the state that the key had at that time.
func (k *multiBucket) refusedBy(h Hold, why keyState) error {
	if why == keyFree { // the process that refused the wait has stored no reason
		why = h.at.state()
	}
	if err := k.refusal("multilock.lock", h.key, why); err != nil {
		return err
	}
	// Another process is recovering the key, or has recovered it.
	return k.fail("multilock.lock", h.key, shmsync.ErrOwnerDead, why.participant(), "")
}

// accept makes this process the holder of the key that was granted to one of its waits. A process that dies before it
// accepts has never held the key.
func (k *multiBucket) accept(h Hold) (Hold, error) {
	was, v := h.at.accepted.Load(), keyHold(h.at.hold.Load())
	// lin: the key is taken here.
	if keyStateOf(v) != makeKeyState(kindReserved, k.of.name) || !h.at.accepted.CompareAndSwap(was, fairAccepted(v, k.of.name)) {
		return h, k.fail("multilock.lock", h.key, shmsync.ErrCorrupt, 0, keyStateOf(v).String())
	}
	crashpoint.Hit("multilock.lock.accepted")
	race.Acquire(k.raceKey(h.key))
	return makeHold(k, h.at, h.key, h.index(), v.tag()), nil
}

// refusal returns the reason why nobody can wait for a key in the state s, or nil if waiting is possible.
func (k *multiBucket) refusal(op string, key uint64, s keyState) error {
	switch {
	case !s.valid():
		return k.fail(op, key, shmsync.ErrCorrupt, 0, s.String())
	case s.kind() == kindOwnerDead:
		return k.fail(op, key, shmsync.ErrOwnerDead, s.participant(), "")
	case s.kind() == kindNotRecoverable:
		return k.fail(op, key, shmsync.ErrNotRecoverable, s.participant(), "")
	}
	return nil
}

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
