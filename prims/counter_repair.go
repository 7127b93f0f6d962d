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
		for i := range t.slots {
			if s := &t.slots[i]; t.has(s) != 0 {
				f(s.holder())
			}
		}
	case c.owner() != 0 && !c.lost():
		f(c.owner())
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
	for {
		// The loop repeats only after a change by another goroutine. The next iteration then turns the share of
		// the dead owner into work that the dead owe, or finds that the counter has an owner that is alive. So
		// the loop is lock-free.
		c := t.load()
		if !c.logged() {
			if c.owner() == 0 || c.lost() || !dead(c.owner()) {
				return
			}
			// The same value may come back with a living participant that has got the ID of the owner, because
			// the sole form has no version. TakeFromDead prevents that meanwhile, or refuses.
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

// reapShares turns the shares of dead participants into work that the dead owe, slot by slot. After these
// participants died, the commit word named a record (the logged form) at some time.
//
// One pass over the slots is enough, although the commit word may change all the time. When the participant
// died, the commit word may have named its last record; the first attempt completes that record. From then on
// only living participants change the share of the dead participant. They may claim units of the share, or turn
// it into work that the dead owe. If the counter becomes 0, the share is void, and another participant may take
// over the slot. So once the share is void, is 0, or belongs to another participant, it never becomes a share
// of the dead participant again.
func (t *counter) reapShares(dead func(arenakernel.ParticipantID) bool) {
	for slot := 1; slot <= len(t.slots); {
		c := t.load()
		if !c.logged() {
			return // the counter has become 0, so all shares are void
		}
		ok, due, err := t.reapShare(c, slot, dead)
		t.pay(due)
		if err != nil {
			return
		}
		if ok {
			slot++
		}
	}
}

// reapShare makes one attempt to turn the share in a slot into work that the dead owe, if the share belongs to
// a dead participant. If ok is true, the slot has no such share any more.
func (t *counter) reapShare(c counterWord, slot int, dead func(arenakernel.ParticipantID) bool) (ok bool, due counterDue, err error) {
	t.private.Lock()
	defer t.private.Unlock()
	if err := t.complete(c); err != nil {
		return false, 0, err
	}
	if s := &t.slots[slot-1]; t.has(s) == 0 || !dead(s.holder()) {
		return true, 0, nil
	}
	due, err = t.fold(c, slot)
	return due != 0, due, err
}

func repairCounter(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) {
	if o.Size < counterBytes(a.MaxParticipants()) {
		return
	}
	t := buildCounter(a, o, "", true)
	t.reap(func(n arenakernel.ParticipantID) bool {
		// If dead is this participant, it is leaving the arena, and its ID is still current.
		return !a.Current(n) || n == dead && dead == a.Self()
	})
}

// wakeCounter wakes the waiters that a dead process was about to wake.
func wakeCounter(a *arenakernel.Arena, o arenakernel.Object, owed arenakernel.Owed) {
	if o.Size < counterBytes(a.MaxParticipants()) {
		return
	}
	t := buildCounter(a, o, "", true)
	c := t.load()
	if c.untold() {
		t.tellZero(c)
	}
	if owed != arenakernel.OwedAnnounced || c.watched() {
		t.list.DeliverAll()
	}
}

func checkCounter(a *arenakernel.Arena, o arenakernel.Object) error {
	if o.Size < counterBytes(a.MaxParticipants()) {
		return wrongKind("counter.check", o, o.Kind, counterVersion)
	}
	t := buildCounter(a, o, "counter.check", true)
	c := t.load()
	if !c.logged() {
		return nil
	}
	if err := t.complete(c); err != nil {
		return err
	}
	if n := valueOf(&t.words.count); (n == 0 || n > counterMax) && t.load().bare() == c.bare() {
		return t.fail("counter.check", shmsync.ErrCorrupt, nil, fmt.Sprintf("its counter is %d", n))
	}
	return nil
}
