package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// holders calls f for the participants that have shares.
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

// reapDead turns the shares of participants that died into work that the dead owe.
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

// reap turns the shares of dead participants into work that the dead owe, and tells waiters.
func (t *counter) reap(dead func(arenakernel.ParticipantID) bool) {
	for {
		// The loop goes on only after a change by another goroutine. Then the next iteration folds the share of
		// the dead owner, or finds that the new owner is alive, and the loop ends.
		c := t.load()
		if !c.logged() {
			if c.owner() == 0 || c.lost() || !dead(c.owner()) {
				return
			}
			if t.swap(c, c|counterDead) {
				t.tell()
				return
			}
			continue
		}
		t.reapShares(dead)
		return
	}
}

// reapShares folds the shares of dead participants, slot by slot. After those deaths the commit
// word was in the logged form.
//
// One pass over the slots is enough, although the commit word may change all the time. The first attempt
// completes a record that the commit word may have named at the death. From then on only a living participant
// changes the share of the dead one: it claims from the share, folds it, makes it void by a zero, or takes the
// slot when the share is void. So once a share is void, is 0, or belongs to another participant, it never
// becomes the dead one's again.
func (t *counter) reapShares(dead func(arenakernel.ParticipantID) bool) {
	for slot := 1; slot <= len(t.slots); {
		c := t.load()
		if !c.logged() {
			return // a zero has made all shares void
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

// reapShare makes one attempt to fold the share of a slot, if the share is a dead participant's.
// ok is true if the slot has no such share now.
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
		// If dead is this participant, which leaves, its ID is still current.
		return !a.Current(n) || n == dead && dead == a.Self()
	})
}

// wakeCounter makes a wake that a dead process did not make.
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
