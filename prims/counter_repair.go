package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// holders calls f for each participant that has a share.
func (t *counter) holders(f func(arenakernel.ParticipantID)) {
	c := t.load()
	switch {
	case c.logged():
		if t.complete(c) != nil {
			return
		}
		for _, s := range t.slots.load().of {
			if s != nil && t.has(s) != 0 {
				f(s.holder())
			}
		}
	case c.owner() != 0 && !c.lost():
		f(c.owner())
	}
}

// lookForDead calls reapDead if participants have died since the last such call for a waiter of this handle, or if the
// events word has changed since then. e is the events word, which the caller has read before.
//
// A reaper may be unable to turn the share of a dead participant into work that the dead owe. It then first changes
// the events word, and only then counts the death. So either this call finds the share, or the events word is no
// longer e when the caller wants to sleep on it.
func (t *counter) lookForDead(e counterEvents) {
	if deaths := t.a.Deaths(); t.deaths.Load() != deaths || t.sought.Load() != uint64(e) {
		t.reapDead()
		t.deaths.Store(deaths)
		t.sought.Store(uint64(e))
	}
}

// reapDead turns the shares of dead participants into work that the dead owe.
func (t *counter) reapDead() {
	dead := false
	t.holders(func(n arenakernel.ParticipantID) {
		if t.a.Dead(n) {
			dead = true
		}
	})
	if dead {
		t.reap(func(n arenakernel.ParticipantID) bool { return !t.a.Current(n) })
	}
}

// reap turns the shares of dead participants into work that the dead owe, and makes the waiters
// check the counter again.
func (t *counter) reap(dead func(arenakernel.ParticipantID) bool) {
	for range reapTries {
		// The loop repeats only after a change by another goroutine. The next iteration then turns the share of
		// the dead owner into work that the dead owe, or finds that the counter has an owner that is alive. Only a
		// peer that breaks the rules changes the word more often.
		c := t.load()
		if !c.logged() {
			if c.owner() == 0 || c.lost() || !dead(c.owner()) {
				return
			}
			// The commit word may get the value c again, from a living participant that has got the ID of the dead
			// owner: the sole form has no version. TakeFromDead makes sure that no participant gets the ID before
			// the commit word is changed. If a participant has the ID already, TakeFromDead changes nothing.
			if arenakernel.TakeFromDead(t.a, c.owner(), &t.words.commit, uint64(c), uint64(c|counterDead)) {
				t.tell()
				return
			}
			continue
		}
		t.reapShares(dead)
		return
	}
}

// reapShares turns the shares of dead participants into work that the dead owe, slot by slot. The caller has read the
// commit word after the deaths of these participants, and found the logged form, in which the word names a record.
//
// One pass over the slots is enough, although the commit word may change all the time. The last record of a dead
// participant may be incomplete; the first attempt completes this record. From then on, only living participants change
// the share of the dead participant. They may claim units of the share, or turn it into work that the dead owe. If the
// counter becomes 0, the share is void, and another participant may take over the slot. A share that is void, is 0, or
// belongs to another participant never becomes a share of the dead participant again.
//
// The list that reapShares reads has the slot record of each participant that has a share. To make a change, this
// participant needs a slot record, too. It has none if it has not opened the counter. If the arena has no room for the
// record, the waiters turn the share into work that the dead owe; see lookForDead.
func (t *counter) reapShares(dead func(arenakernel.ParticipantID) bool) {
	for i, s := range t.slots.load().of {
		for next := reapAgain; s != nil && next != reapNext; {
			// The loop repeats only after a change by another goroutine, or after this participant has got a
			// slot record, which happens once.
			c := t.load()
			if !c.logged() {
				return // the counter has become 0, so all shares are void
			}
			var due counterDue
			var err error
			next, due, err = t.reapShare(c, s, i+1, dead)
			t.pay(due)
			if err != nil {
				return
			}
			if next == reapRecord && !t.join() {
				t.recheck()
				return
			}
		}
	}
}

// reapStep says what the method reapShares has to do next.
type reapStep int

const (
	reapAgain  reapStep = iota
	reapNext            // go on with the next slot
	reapRecord          // get a slot record for this participant, then try again
)

// join makes a slot record for this participant, and reports whether there is room for it. This participant has not
// opened the counter, but needs the record to reap a dead participant.
func (t *counter) join() bool {
	own, err := t.slots.join()
	if err == nil {
		t.own = own
	}
	return err == nil
}

// reapShare makes one attempt to turn the share s of a slot into work that the dead owe, if the share belongs to
// a dead participant. If next is reapNext, the slot has no such share any more.
func (t *counter) reapShare(c counterWord, s *counterSlot, slot int, dead func(arenakernel.ParticipantID) bool) (next reapStep, due counterDue, err error) {
	t.private.Lock()
	defer t.private.Unlock()
	if err := t.complete(c); err != nil {
		return reapAgain, 0, err
	}
	if t.has(s) == 0 || !dead(s.holder()) {
		return reapNext, 0, nil
	}
	if t.slotOf(t.slot) == nil {
		return reapRecord, 0, nil
	}
	if due, err = t.fold(c, slot); due != 0 {
		next = reapNext
	}
	return next, due, err
}

func repairCounter(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) {
	if o.Size < counterBytes(a) {
		return
	}
	t := bareCounter(a, o, "")
	t.reap(func(n arenakernel.ParticipantID) bool {
		// If dead is the ID of this participant, this participant leaves the arena, and its ID is still current.
		return !a.Current(n) || n == dead && dead == a.Self()
	})
}

// wakeCounter wakes the waiters that a dead process was about to wake. If that process was a reaper, it may have changed
// the commit word and not yet the events word. So wakeCounter also changes the events word. Otherwise a waiter that is
// about to sleep, and has read the commit word before its change, would not notice the change.
func wakeCounter(a *arenakernel.Arena, o arenakernel.Object, owed arenakernel.Owed) {
	if o.Size < counterBytes(a) {
		return
	}
	t := bareCounter(a, o, "")
	c := t.load()
	if c.untold() {
		t.tellZero(c)
	}
	if owed != arenakernel.OwedAnnounced || c.watched() {
		t.recheck()
	}
}

func checkCounter(a *arenakernel.Arena, o arenakernel.Object) error {
	if o.Size < counterBytes(a) {
		return wrongKind("counter.check", o, o.Kind, counterVersion)
	}
	t := bareCounter(a, o, "counter.check")
	c := t.load()
	if !c.logged() {
		return t.slots.load().err
	}
	if err := t.complete(c); err != nil {
		return err
	}
	if n := valueOf(&t.words.count); (n == 0 || n > counterMax) && t.load().bare() == c.bare() {
		return t.fail("counter.check", shmsync.ErrCorrupt, nil, fmt.Sprintf("its counter is %d", n))
	}
	return t.slots.load().err
}
