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

// lockSlow is the part of Lock after the fast path has failed. ctx may be nil. If mayRepair is set and the call learns
// that a holder died, it repairs the lock. If another process is repairing the lock already, the call waits for the
// lock again.
func (f *FairMutex) lockSlow(ctx context.Context, mayRepair bool) error {
	// This call may be granted the lock. So Close of the handle waits until the call has accepted the grant.
	if !f.queue.Enter() {
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
	case r == lockTaken:
		return nil
	}
	return f.closedError()
}

func (f *FairMutex) lockOnce(ctx context.Context) error {
	if f.lockFast() {
		return nil
	}
	if f.state().participant() == f.name {
		f.opening.mustNotWaitForSelf(ctx, "Lock")
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
	if r != lockNotNow || err != nil {
		return nil, err
	}
	if s, err = f.queue.TakeNode(); err != nil {
		return nil, err
	}
	f.prepare(s, 0)
	s.Withdrawer = (*lockWaits)(&f.recordLock)
	if r, err = f.take(ctx, s, turns); r == lockQueued {
		return s, nil
	}
	f.unused(s)
	return nil, err
}

// await waits until the wait of the node s has ended. If the wait was granted the lock, await accepts it; see
// awaitTurn.
func (f *FairMutex) await(ctx context.Context, s *park.WaitNode) error {
	if err := f.awaitTurn(ctx, s); err != nil {
		return err
	}
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
	if err := f.outcome(s, f.lockWords, 0); err != nil {
		return err
	}
	v, ok := f.accept(f.name)
	if !ok {
		return f.refusedCorrupt("fairmutex.lock", ownerState(v))
	}
	crashpoint.Hit("fairmutex.lock.accepted")
	return nil
}

func (f *FairMutex) diedName() arenakernel.ParticipantID {
	return arenakernel.ParticipantID(valueIn(&f.words.died) & arenakernel.ParticipantIDMask)
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

// fairPending is the wait of a Pending for a FairMutex. LockAsync has called f.queue.Enter, and the end of the wait
// calls f.queue.Exit. Close of the handle waits for the Exit.
type fairPending struct {
	f *FairMutex
	s *park.WaitNode
}

func (w fairPending) told(p *Pending) {
	switch {
	case w.s.Resolved():
		p.end(w.f.ended(w.s))
	case w.f.queue.Closing():
		w.giveUp(p, w.f.closedError())
	case w.s.Torn(w.f.queue):
		w.giveUp(p, w.f.fail("fairmutex.lock", shmsync.ErrCorrupt, nil, tornQueue))
	default:
		return
	}
	w.f.queue.Exit()
}

// giveUp ends p with the given error, unless the wait was granted or refused meanwhile.
func (w fairPending) giveUp(p *Pending, why error) {
	if !w.f.withdraw(w.s) {
		why = w.f.ended(w.s)
	}
	p.end(why)
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
