package prims

import (
	"context"
	"errors"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
)

func isOwnerDead(err error) bool { return errors.Is(err, shmsync.ErrOwnerDead) }

// lockSlow is the part of Lock after the fast path has failed. ctx may be nil. If mayRepair is set and the call
// learns that a holder died, it repairs the lock. If another process is repairing the lock already, the call
// gets in the queue again.
func (f *FairMutex) lockSlow(ctx context.Context, mayRepair bool) error {
	// This call may be granted the lock. So Close of the handle waits until the call has accepted the grant.
	if !f.queue.EnterNode() {
		return f.lockClosing()
	}
	defer f.queue.Exit()
	for {
		err := f.lockOnce(ctx)
		if err == nil || !mayRepair || f.repair == nil || !isOwnerDead(err) {
			return err
		}
		if took, err := f.inherit(ctx); took || err != nil {
			return err
		}
	}
}

// lockClosing locks f while the handle is being closed, if that is possible without waiting.
func (f *FairMutex) lockClosing() error {
	s, ok := f.opening.tryServe(f.queue)
	if !ok {
		return f.closedError()
	}
	defer s.end()
	if f.lockFast() {
		return nil
	}
	switch r, err := f.take(nil, nil, nil); {
	case err != nil:
		return err
	case r == fairTaken:
		return nil
	}
	return f.closedError()
}

func (f *FairMutex) lockOnce(ctx context.Context) error {
	if f.lockFast() {
		return nil
	}
	s, err := f.arrive(ctx, f.turns)
	if s == nil {
		return err
	}
	return f.await(ctx, s)
}

// arrive takes the lock or a place in the queue. If the call has to wait, arrive returns the wait node, which
// stands for its wait in the queue. Otherwise it returns nil and the result of the call. turns is nil for a
// wait in which no goroutine blocks.
func (f *FairMutex) arrive(ctx context.Context, turns *park.Turns) (s *park.WaitNode, err error) {
	r, err := f.take(ctx, nil, nil)
	if r != fairNotNow || err != nil {
		return nil, err
	}
	if s, err = f.queue.TakeNode(); err != nil {
		return nil, err
	}
	f.prepare(s, 0)
	s.Withdrawer = (*fairWaits)(f)
	switch r, err = f.take(ctx, s, turns); {
	case r == fairQueued && err != nil:
		s.Forget()
		return nil, err
	case r == fairQueued:
		return s, nil
	}
	f.unused(s)
	return nil, err
}

// await waits until the wait of the node s has ended. s is in the queue, and on a line, which has the waits of
// this process in the order of arrival. If the wait was granted the lock, the next wait on the line gets its
// turn when the hold ends.
func (f *FairMutex) await(ctx context.Context, s *park.WaitNode) error {
	f.queue.StartPoller() // the poller checks the queue after each death
	c := park.CancelBy(ctx)
	r, awake := s.SleepInTurn(f.queue, f.tuning, &c)
	c.Stop()
	if awake {
		f.counts.add(countSpin)
	} else {
		f.counts.add(countSleep)
	}
	switch r {
	case park.Canceled:
		crashpoint.Hit("record.await.withdrawn")
		return c.Err()
	case park.Closed:
		crashpoint.Hit("record.await.withdrawn")
		return f.closedError()
	}
	s.LeaveLine(valueIn(s.Node.Next()) == arenakernel.RecordedGranted)
	err := f.ended(s)
	if err != nil {
		f.turns.HoldEnded()
	}
	return err
}

// ended is called when a wait is over and its node s is off the line of this process. It gives the node back.
// If the wait was granted the lock, ended accepts the lock. If the wait was refused, it returns the reason as
// an error.
func (f *FairMutex) ended(s *park.WaitNode) error {
	for tries := 0; ; tries++ {
		switch next, why := valueIn(s.Node.Next()), ownerWord(valueIn(s.Node.Extra())); {
		case next == arenakernel.RecordedRefused:
			crashpoint.Hit("record.await.resolved")
			f.handBack(s)
			return f.refusedBy(why)
		case f.collect(s):
			return f.accept()
		case tries > 0 || f.withdraw(s):
			return failed(f.a, f.object, "fairmutex.lock", shmsync.ErrCorrupt, nil, "a wait node, which ended a wait that was not granted")
		}
	}
}

// refusedBy returns the error of a wait that was refused. why is the state that the lock had at that time. If
// the kind of why is not recoverable, its participant is the one that died.
func (f *FairMutex) refusedBy(why ownerWord) error {
	died := why.participant()
	if why.kind() == kindNotRecoverable {
		return f.refusal("fairmutex.lock", ownerNotRecoverable, died)
	}
	if why == 0 { // the process that refused the wait has stored no reason
		why, died = fairState(fairWord(f.words.owner.Load())), f.diedName()
	}
	if err := f.refusal("fairmutex.lock", why, died); err != nil {
		return err
	}
	// Another process is recovering the lock, or has recovered it.
	return f.fail("fairmutex.lock", shmsync.ErrOwnerDead, f.a.Who(died), "")
}

// accept makes this process the holder of the lock that was granted to one of its waits. A process
// that dies before it accepts has never held the lock.
func (f *FairMutex) accept() error {
	was, v := f.words.accepted.Load(), fairWord(f.words.owner.Load())
	// lin: the lock is taken here.
	if fairState(v) != makeOwner(kindReserved, f.name) || !f.words.accepted.CompareAndSwap(was, fairAccepted(v, f.name)) {
		return f.refusedCorrupt("fairmutex.lock", fairState(v))
	}
	crashpoint.Hit("fairmutex.lock.accepted")
	return nil
}

// stateOf returns the state of the lock for the owner word v. If v grants the lock to a participant and that
// participant has accepted the grant, the lock counts as held.
func (f *FairMutex) stateOf(v fairWord) ownerWord {
	o := fairState(v)
	if o.granted() && f.words.accepted.Load() == fairAccepted(v, o.participant()) {
		return makeOwner(kindHeld, o.participant())
	}
	return o
}

// state returns the state of the lock. It may be out of date when state returns.
func (f *FairMutex) state() ownerWord { return f.stateOf(fairWord(f.words.owner.Load())) }

func (f *FairMutex) diedName() arenakernel.ParticipantID {
	return arenakernel.ParticipantID(valueIn(&f.words.died) & arenakernel.ParticipantIDMask)
}

// refusal returns the reason why nobody can wait for a lock with the state o, or nil if waiting is
// possible.
func (f *FairMutex) refusal(op string, o ownerWord, died arenakernel.ParticipantID) error {
	switch {
	case !o.valid():
		return f.refusedCorrupt(op, o)
	case o.kind() == kindOwnerDead:
		return f.fail(op, shmsync.ErrOwnerDead, f.a.Who(o.participant()), "")
	case o == ownerNotRecoverable:
		return f.fail(op, shmsync.ErrNotRecoverable, f.a.Who(died), "")
	}
	return nil
}

func (f *FairMutex) refusedCorrupt(op string, o ownerWord) error {
	return f.fail(op, shmsync.ErrCorrupt, nil, o.String())
}

func (f *FairMutex) fail(op string, err error, who *shmsync.Identity, detail string) error {
	return failed(f.a, f.object, op, err, who, detail)
}

func (f *FairMutex) closedError() error {
	return f.fail("fairmutex.lock", shmsync.ErrClosed, nil, closedHandle)
}

// fairPending is the wait of a Pending for a FairMutex. The call that began the wait has entered f.queue, and
// the end of the wait leaves f.queue. Close of the handle waits for that.
type fairPending struct {
	f *FairMutex
	s *park.WaitNode
}

func (w fairPending) told(p *Pending) {
	switch {
	case w.s.Resolved():
		p.end(w.f.ended(w.s))
	case !w.f.queue.Closing():
		return
	case w.f.withdraw(w.s):
		p.end(w.f.closedError())
	default:
		p.end(w.f.ended(w.s))
	}
	w.f.queue.Exit()
}

func (w fairPending) cancel(p *Pending) bool {
	defer w.f.queue.Exit()
	if !w.f.withdraw(w.s) {
		p.end(w.f.ended(w.s))
		return false
	}
	p.end(w.f.fail("fairmutex.lock", shmsync.ErrCanceled, nil, "it was cancelled"))
	return true
}
