package prims

import (
	"errors"
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// held reports whether processes hold claims, that is, whether a claim lasts until it is released or its process
// dies.
func (x *Waitable[S, E]) held() bool { return x.rules.Release != nil || x.rules.OnDeath != nil }

// counted reports whether a claim needs a hold. It does if processes hold claims. If the rules have Undo, a claim
// that is granted to a wait needs a hold, too, because the process may die before the wait accepts the claim.
func (x *Waitable[S, E]) counted(granted bool) bool {
	return x.held() || granted && x.rules.Undo != nil
}

// claimResult says how an attempt to make a claim ended.
type claimResult uint8

const (
	ruleAllows   claimResult = iota // the change contains the claim
	ruleRefuses                     // the rule does not allow the claim in the present state
	noHold                          // all holds are in use
	holdFull                        // the hold has reached its maximum number of claims
	holdsDamaged                    // a peer has overwritten the list of the blocks with holds
	labelled                        // the change labels a hold for the claim, and the caller then tries again
	behindOthers                    // other waits are served first
	stateChanged                    // another process has changed the Waitable meanwhile
)

// claim runs the rule Claim for a wait of the participant n on the copy of the state that copyState has just made. If
// the rule allows the claim, claim makes it a part of the change c. If first is not nil, it is the first wait of the
// queue, and the claim is for this wait; then c also takes the wait off the queue. full is set if the arena has no room
// for more holds.
func (x *Waitable[S, E]) claim(c *recordedChange, n arenakernel.ParticipantID, extra uint64, first *wait, full bool) claimResult {
	if x.load() != c.c {
		return stateChanged // what the caller has read may belong to different states
	}
	if !x.rules.Claim(&x.copied, unpackExtra[E](extra)) {
		return ruleRefuses
	}
	before := *c
	var h holdPlace
	ready, counted := false, x.counted(first != nil)
	if counted {
		var r claimResult
		h, r, ready = x.place(n, extra)
		counted = r == ruleAllows
		if !counted && (x.held() || r == noHold && !full) {
			return r
		}
	}
	if counted {
		if !ready {
			x.label(c, h, n, extra)
		}
		if x.held() {
			x.setCount(c, h, valueIn(&h.count)+1)
		}
		if first != nil {
			x.setGranted(c, h, valueIn(&h.granted)+1)
		}
	}
	if first != nil {
		x.detach(c, *first, arenakernel.RecordedGranted)
		if !counted {
			c.set(recordPrev, first.index(), first.Extra(), grantedWithoutHold)
		}
	}
	if c.n == recordMost || c.tooMany { // the record has no room for the word current, which the method put changes
		*c = before
		x.label(c, h, n, extra)
		return labelled
	}
	x.put(c, &x.copied)
	return ruleAllows
}

// grantedWithoutHold is a value of the extra word of a wait node. It means that the wait was granted a claim that no
// hold counts. If a hold counts the claim, the value is 0. While a wait is queued, the same word names the node in
// front. The two uses do not conflict, because only the first wait is granted, and there is no node in front of it.
const grantedWithoutHold = 1

// serve ends the waits that can go on, in the order of the queue. If x is stopped or not recoverable, it ends all
// waits. If other processes change x all the time, it leaves the rest to the periodic checks of the waiters. The caller
// holds x.private.
func (x *Waitable[S, E]) serve(c *recordedChange, b *wakes) error {
	var tries attempts
	defer x.over(&tries)
	full := false
	for until := x.until(); x.overtaken < until; {
		// The loop repeats only after it has taken a wait off the queue, labelled a hold or looked for room for holds, or
		// after another process has changed the Waitable.
		if err := x.begin(c, b); err != nil {
			return err
		}
		w, ok := x.head(c)
		if !ok && !c.torn {
			return nil
		}
		granted := arenakernel.ParticipantID(0)
		if ok && !x.dismiss(c, w) {
			if _, err := x.copyState(c, b, &x.copied, &tries); err != nil {
				return err
			}
			if is, _ := x.head(c); is.off != w.off || x.ending(c) {
				x.overtaken++
				continue
			}
			granted = w.Owner() & arenakernel.ParticipantIDMask
			switch r := x.claim(c, granted, w.Wanted().Load(), &w, full); {
			case r == stateChanged:
				x.overtaken++
				continue
			case r == noHold && !full:
				if x.load() != c.c {
					x.overtaken++ // addHolds does nothing then
				}
				err := x.addHolds(c)
				if full = errors.Is(err, shmsync.ErrNoSpace); err != nil && !full {
					return err
				}
				continue
			case r == ruleRefuses || r == noHold || r == holdFull || r == holdsDamaged:
				return nil
			}
		}
		switch ok, err := x.end(c, b); {
		case err != nil:
			return err
		case ok:
			x.reconsider(granted)
		}
	}
	return nil
}

// ending reports whether all waits have to end, according to the state that the change c has found.
func (x *waitableCore) ending(c *recordedChange) bool { return x.lostIn(c) != 0 || x.stoppedIn(c) }

// dismiss ends the first wait, w, without a claim, as a part of the change c. It does so if the owner of w is dead, or
// if all waits have to end. It reports whether it did.
func (x *waitableCore) dismiss(c *recordedChange, w wait) bool {
	switch {
	case !x.waiting(w):
		x.detach(c, w, arenakernel.RecordedRemoved)
	case x.ending(c):
		x.refuse(c, w, x.lostIn(c))
	default:
		return false
	}
	return true
}

// refuseAll ends all waits while x is stopped or not recoverable. It runs no rules. If other processes change x all the
// time, it leaves the rest to the periodic checks of the waiters. The caller holds x.private.
func (x *waitableCore) refuseAll(c *recordedChange, b *wakes) {
	for until := x.until(); x.overtaken < until; {
		// The loop repeats only after it has taken a wait off the queue, or after another process has changed the
		// Waitable.
		if err := x.begin(c, b); err != nil {
			return
		}
		w, ok := x.head(c)
		if ok && (!x.ending(c) || !x.dismiss(c, w)) || !ok && !c.torn {
			return
		}
		if _, err := x.end(c, b); err != nil {
			return
		}
	}
}

// refuse ends the first wait, w, without a claim, as a part of the change c. It stores the reason in the extra word of
// the wait node. The reason is the parameter by: the participant that has made x not recoverable, or 0 if x was
// stopped.
func (x *waitableCore) refuse(c *recordedChange, w wait, by arenakernel.ParticipantID) {
	x.detach(c, w, arenakernel.RecordedRefused)
	c.set(recordPrev, w.index(), w.Extra(), uint32(by))
}

// resolve calls serve, which runs rules for other waits. So a panic of a rule does not continue in the caller.
func (x *Waitable[S, E]) resolve(c *recordedChange, b *wakes) {
	x.guarded(c, b, func() { x.serve(c, b) })
	if x.lost() {
		x.refuseAll(c, b)
	}
}

// noClaim returns the error of a call that cannot make its claim, for the result r of the method claim.
func (x *waitableCore) noClaim(r claimResult) error {
	switch r {
	case holdFull:
		return x.fail("waitable.wait", shmsync.ErrNoSpace, nil, fmt.Sprintf("this process has %d claims for the same value", waitableCount))
	case holdsDamaged:
		return x.corrupt("its list of blocks with holds")
	}
	return x.fail("waitable.wait", shmsync.ErrNoSpace, nil, "the arena has no room for the holds of more claims")
}
