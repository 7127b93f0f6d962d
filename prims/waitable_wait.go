package prims

import (
	"context"
	"errors"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
)

// Wait waits until the rules let a wait for e go on, and makes the claim. An error means that no claim was made.
// After Stop, the error Is ErrCanceled. Otherwise it Is ErrNotRecoverable, ErrNoSpace, ErrCorrupt or ErrClosed.
func (x *Waitable[S, E]) Wait(e E) error { return x.WaitContext(context.Background(), e) }

// WaitContext does what Wait does, but returns ctx.Err() when ctx ends first. A wait that may go on at once
// succeeds even if ctx has ended.
func (x *Waitable[S, E]) WaitContext(ctx context.Context, e E) error {
	ctx = orEndless(ctx)
	// This call may be granted a claim. So Close of the handle waits until the call has accepted the claim.
	if !x.queue.Enter() {
		return x.closed()
	}
	defer x.queue.Exit()
	made, err := x.take(ctx, e)
	if made || err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s, err := x.queue.TakeNode()
	if err != nil {
		return err
	}
	x.prepare(s, x.pack(e))
	queued, err := x.enqueue(ctx, s, e)
	if !queued {
		return err
	}
	switch r, err := x.await(ctx, s, true, (*waitableWaits[S, E])(x)); r {
	case park.Canceled:
		crashpoint.Hit("record.await.withdrawn")
		return err
	case park.Closed:
		crashpoint.Hit("record.await.withdrawn")
		return x.closed()
	case park.Torn:
		return x.fail("waitable.wait", shmsync.ErrCorrupt, nil, tornWaitable)
	}
	return x.ended(s, x.pack(e))
}

// take makes a claim for this process if no wait is queued and the rules allow the claim. If waits are queued, take
// serves the queue once and tries again: a process may have been stopped after it changed the state and before it
// served the queue. While another call keeps calls from beginning a change, take waits, at most until ctx ends; see
// yield.
func (x *Waitable[S, E]) take(ctx context.Context, e E) (made bool, err error) {
	var tries attempts
	defer x.over(&tries)
	x.yield(ctx)
	x.underLock(func(c *recordedChange, b *wakes) (changed bool) {
		for served := false; ; {
			// The loop repeats after another process has changed the Waitable, and once after this call has served
			// the queue.
			x.again(&tries)
			r, failed := x.tryClaim(c, b, e, &tries)
			switch {
			case failed != nil:
				err = failed
				return false
			case r == stateChanged:
			case r == behindOthers && !served:
				served = true
				x.resolve(c, b)
			default:
				made = r == ruleAllows
				return false // a new claim does not let any other wait go on
			}
		}
	})
	return made, err
}

// tryClaim begins the change c. If no wait is queued and the rules allow a claim for e, tryClaim makes the claim. If
// it returns stateChanged without an error, another process has changed the Waitable meanwhile, and the caller tries
// again.
func (x *Waitable[S, E]) tryClaim(c *recordedChange, b *wakes, e E, t *attempts) (claimResult, error) {
	if err := x.begin(c, b); err != nil {
		return stateChanged, err
	}
	if r, err := x.mayClaim(c); r != ruleAllows || err != nil {
		return r, err
	}
	if _, err := x.copyState(c, b, &x.copied, t); err != nil {
		return stateChanged, err
	}
	// copyState may have begun the change c again, on a later state.
	if r, err := x.mayClaim(c); r != ruleAllows || err != nil {
		return r, err
	}
	switch r := x.claim(c, x.name, x.pack(e), nil, false); {
	case r == noHold || r == holdFull || r == holdsDamaged:
		if x.load() != c.c {
			return stateChanged, nil
		}
		if r != noHold {
			return r, x.noClaim(r)
		}
		err := x.addHolds(c)
		if errors.Is(err, shmsync.ErrNoSpace) {
			err = x.noClaim(r)
		}
		return stateChanged, err
	case r != ruleAllows:
		return r, nil
	}
	ok, err := x.end(c, b)
	if !ok {
		return stateChanged, err
	}
	return ruleAllows, nil
}

// mayClaim returns behindOthers if a wait is queued, and an error if no wait can succeed. Otherwise it returns
// ruleAllows.
func (x *waitableCore) mayClaim(c *recordedChange) (claimResult, error) {
	switch by := x.lostIn(c); {
	case by != 0:
		return stateChanged, x.notRecoverable("waitable.wait", by)
	case x.stoppedIn(c):
		return stateChanged, x.wasStopped()
	case !x.empty(c):
		return behindOthers, nil
	}
	return ruleAllows, nil
}

// enqueue makes a claim for this process or, if that is not possible now, queues the wait of the prepared node s for e.
// If queued is false, the wait is over, and enqueue has given the node back.
func (x *Waitable[S, E]) enqueue(ctx context.Context, s *park.WaitNode, e E) (queued bool, err error) {
	joined, marked, place := false, false, uint32(0)
	defer func() {
		if !joined {
			x.unused(s)
		}
	}()
	var tries attempts
	defer x.over(&tries)
	x.yield(ctx)
	x.underLock(func(c *recordedChange, b *wakes) (changed bool) {
		for {
			// The loop repeats only after another process has changed the Waitable.
			x.again(&tries)
			r, failed := x.tryClaim(c, b, e, &tries)
			switch {
			case failed != nil || r == ruleAllows:
				err = failed
				return false
			case r == stateChanged:
				continue
			}
			alone := x.empty(c)
			prev, ok := x.behind(c, e, place)
			// If the change does not take effect, the next walk begins where this walk has ended.
			if place = prev; place == 0 {
				place = c.get(x.first)
			}
			if ok {
				if x.rules.Before != nil && !marked {
					x.mark(uint32(s.Off/linkUnit), e) // before the join, because the rule may panic
					marked = true
				}
				x.joinBehind(c, s, prev)
			}
			switch ok, err = x.end(c, b); {
			case err != nil:
				return false
			case ok:
				joined = true
				x.counts.add(countContended)
				if prev == 0 && !alone {
					// The rule Before has made this wait the first one, so serve the queue. The rules run in a
					// separate goroutine, because a rule may end its goroutine. This goroutine must not end, because
					// its wait may be granted.
					x.resolveAside(c, b)
				}
				return false // a new wait in the queue does not let any other wait go on
			}
		}
	})
	return joined, err
}

// ended is called when the wait of the node s is over. It gives the node back. If the wait was granted a claim, ended
// accepts the claim. Otherwise it returns the reason as an error.
func (x *Waitable[S, E]) ended(s *park.WaitNode, extra uint64) error {
	for tries := 0; ; tries++ {
		switch next, by := valueIn(s.Node.Next()), arenakernel.ParticipantID(valueIn(s.Node.Extra())&arenakernel.ParticipantIDMask); {
		case next == arenakernel.RecordedRefused:
			crashpoint.Hit("record.await.resolved")
			x.handBack(s)
			if by != 0 {
				return x.notRecoverable("waitable.wait", by)
			}
			return x.wasStopped()
		case x.collect(s):
			if x.counted(true) && by != grantedWithoutHold {
				x.accept(extra)
			}
			return nil
		case tries > 0 || x.withdraw(s):
			if tries > 0 { // the method withdraw returned false, so it has not given the node back
				s.Forget()
			}
			return x.fail("waitable.wait", shmsync.ErrCorrupt, nil, "a wait node, which ended a wait that was not granted")
		}
	}
}

// waitableWaits is a Waitable in the role of Withdrawer of a [park.WaitNode]: it takes the wait of the node off the
// queue.
type waitableWaits[S, E any] Waitable[S, E]

// Withdraw calls the method withdraw.
func (x *waitableWaits[S, E]) Withdraw(s *park.WaitNode) bool {
	return (*Waitable[S, E])(x).withdraw(s)
}

// withdraw ends a wait of this process that gives up. It takes the wait off the queue and gives its node back. It
// reports false if the wait was already granted or refused. Otherwise it serves the queue, because waits behind this
// one may go on. It does so in a separate goroutine, because serving runs rules for other waits.
func (x *Waitable[S, E]) withdraw(s *park.WaitNode) bool {
	left, more := x.takeOff(s)
	if left && more {
		aside(x.serveQueue)
	} else {
		x.reapMissed()
	}
	return left
}

// takeOff takes the wait of this process off the queue, and gives its node back. The result left is false if the wait
// was already granted or refused. The result more says whether other waits are queued.
func (x *waitableCore) takeOff(s *park.WaitNode) (left, more bool) {
	b := takeWakes()
	defer x.wake(b)
	x.private.Lock()
	defer x.private.Unlock()
	c, w := &x.scratch, wait{s.Off, s.Node}
	for {
		// The loop repeats only if another process has changed the Waitable. So it is lock-free.
		err := x.begin(c, b)
		v := c.get(w.Next())
		switch {
		case err != nil:
		case arenakernel.RecordedEnds(v) && s.Resolved():
			return false, false
		case queuedValue(v):
			x.detach(c, w, arenakernel.RecordedLeft)
			var ok bool
			if ok, err = x.end(c, b); err == nil && !ok {
				continue
			}
		case x.load() != c.c:
			continue // the record that ends the wait may be only partly carried out
		default: // a peer has overwritten the node
			s.Forget()
			return true, false
		}
		if err != nil { // a peer has overwritten the queue, which may still name the node
			s.Forget()
			return true, false
		}
		x.unused(s)
		return true, !x.empty(c)
	}
}

// serveQueue ends the waits that can go on. It is called after a wait of this process has given up. It does not call
// yield, because the call whose wait has given up would then return late.
func (x *Waitable[S, E]) serveQueue() {
	x.underLock(func(*recordedChange, *wakes) (changed bool) { return true })
}
