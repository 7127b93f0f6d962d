package prims

import (
	"math"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

// The commit word has two forms. In the sole form, the word holds the whole state, because all of the work is
// one participant's share or nobody's. In the logged form, the word names a record, and the state is in several
// words. A change that the sole form cannot express goes through a record: see recordLog.
//
// In the logged form, the share of each participant is in its slot record. The count, minus all shares, minus what
// the dead owe, is the work in no share. That difference is negative if participants did more than their shares.

// convert changes the commit word from c to the logged form, in which it names a record. c has the sole form,
// in which it holds the whole state, and is not 0. convert does nothing if the commit word is no longer c.
func (t *counter) convert(c counterWord) error {
	t.private.Lock()
	defer t.private.Unlock()
	var ch recordChange
	owner, slot := c.owner(), c.owner().Slot()
	ch.set(counterCount, c.count())
	ch.set(counterPeriod, t.newPeriod())
	switch {
	case c.lost():
		ch.set(counterOwed, c.count())
		ch.set(counterDeadID, uint64(owner))
	case owner != 0:
		ch.set(counterOwed, 0)
		ch.set(shareAt(slot, shareName), uint64(owner))
		ch.set(shareAt(slot, sharePeriod), uint64(ch.value[1]))
		ch.set(shareAt(slot, shareOwn), c.count())
		ch.set(shareAt(slot, shareClaimed), 0)
	default:
		ch.set(counterOwed, 0)
	}
	_, err := t.commit(c, &ch)
	return err
}

// newPeriod returns a period that no share has. A period is a number that tells shares of the present count from
// shares of earlier counts. It is the low half of a ticket, so a period comes back after 2^32 tickets. Once the
// tickets exceed 2^32, newPeriod therefore checks that no share has the period.
func (t *counter) newPeriod() uint64 {
	var period uint64
	for range t.a.MaxParticipants() + 1 {
		n := t.words.tickets.Add(1)
		period = uint64(uint32(n))
		if n <= math.MaxUint32 || !t.hasPeriod(period) {
			break
		}
	}
	return period
}

func (t *counter) hasPeriod(period uint64) bool {
	for _, s := range t.slots.load().of {
		if s != nil && valueOf(&s.period) == period {
			return true
		}
	}
	return false
}

// has returns how much work is in the share in s. The commit word must name a record (the logged form), and
// that record must be complete.
func (t *counter) has(s *counterSlot) uint64 {
	if valueOf(&s.period) != valueOf(&t.words.period) {
		return 0
	}
	return valueOf(&s.own)
}

// holder returns the participant whose share is in the slot.
func (s *counterSlot) holder() arenakernel.ParticipantID {
	return arenakernel.ParticipantID(valueOf(&s.name) & arenakernel.ParticipantIDMask)
}

// claimable returns how much of the share in s other participants may claim. They may not claim the units that the
// participant of s got by Claim.
func (t *counter) claimable(s *counterSlot) uint64 {
	own := t.has(s)
	return own - min(valueOf(&s.claimed), own)
}

// ownShare is the share of this participant, limited to the count. The number in its slot record may exceed the count,
// because other participants may do work of this share without a change of that number. The real share never exceeds
// the count. Without the limit, the number could grow without a bound while other participants do the work.
type ownShare struct {
	own, claimed uint64
	void         bool // the slot record has no share of the present period
}

// mine reads the share of this participant. count is the count at that moment. ok is false if the slot still
// has the share of a dead participant. That share must first be turned into work that the dead owe; see fold.
func (t *counter) mine(count uint64) (h ownShare, ok bool) {
	s := t.own
	own := min(t.has(s), count)
	switch {
	case s.holder() == t.name && valueOf(&s.period) == valueOf(&t.words.period):
		return ownShare{own: own, claimed: min(valueOf(&s.claimed), own)}, true
	case own == 0:
		return ownShare{void: true}, true
	}
	return ownShare{}, false
}

// put adds the new share of this participant to the change ch. The parameter own is the new share, and claimed is the
// part of it that this participant got by Claim. h is the share before the change.
func (t *counter) put(ch *recordChange, h ownShare, own, claimed uint64) {
	slot := t.name.Slot()
	if h.void {
		if own == 0 {
			return
		}
		ch.set(shareAt(slot, shareName), uint64(t.name))
		ch.set(shareAt(slot, sharePeriod), valueOf(&t.words.period))
	}
	ch.set(shareAt(slot, shareOwn), own)
	if h.void || claimed != h.claimed || own > h.own {
		ch.set(shareAt(slot, shareClaimed), claimed)
	}
}

// attempt is the result of one attempt to change the counter by a record.
type attempt struct {
	over bool       // no more attempt is needed
	made bool       // the attempt made the change
	due  counterDue // the argument for the method pay, which the caller calls after it has unlocked t.private
}

// addLogged makes one attempt to add n by a record. If r.over is true but r.made is false, the counter would
// overflow.
func (t *counter) addLogged(c counterWord, n uint64) (r attempt, err error) {
	t.private.Lock()
	defer t.private.Unlock()
	if err := t.complete(c); err != nil {
		return r, err
	}
	count := valueOf(&t.words.count)
	if n > counterMax-min(count, counterMax) {
		r.over = t.load() == c
		return r, nil
	}
	h, ok := t.mine(count)
	if !ok {
		r.due, err = t.fold(c, t.name.Slot())
		return r, err
	}
	var ch recordChange
	ch.set(counterCount, count+n)
	t.put(&ch, h, h.own+n, h.claimed) // other participants may claim the units that are added now
	if ok, err = t.commit(c, &ch); ok {
		crashpoint.Hit("counter.add.counted")
	}
	r.over, r.made = ok, ok
	return r, err
}

// doneLogged makes one attempt to subtract n from the counter, in the logged form. If r.over is true but r.made is false,
// the counter is less than n.
func (t *counter) doneLogged(c counterWord, n uint64) (r attempt, err error) {
	t.private.Lock()
	defer t.private.Unlock()
	if err := t.complete(c); err != nil {
		return r, err
	}
	count := valueOf(&t.words.count)
	switch {
	case n > count:
		r.over = t.load() == c
		return r, nil
	case n == count:
		r.made, r.due = t.becomeZero(c)
		r.over = r.made
		return r, nil
	}
	h, ok := t.mine(count)
	if !ok {
		r.due, err = t.fold(c, t.name.Slot())
		return r, err
	}
	var ch recordChange
	ch.set(counterCount, count-n)
	if h.own > 0 {
		own := h.own - min(n, h.own)
		t.put(&ch, h, own, min(h.claimed, own))
	}
	if ok, err = t.commit(c, &ch); ok {
		crashpoint.Hit("counter.done.counted")
	}
	r.over, r.made = ok, ok
	return r, err
}

// fold makes one attempt to turn the share in a slot, whose participant is dead, into work that the dead owe.
// If the attempt succeeds, due is not 0. The caller holds t.private and has completed the record that c names.
func (t *counter) fold(c counterWord, slot int) (due counterDue, err error) {
	s := t.slotOf(slot)
	if s == nil {
		return 0, t.corruptShares()
	}
	var ch recordChange
	ch.set(counterOwed, min(valueOf(&t.words.owed)+t.has(s), valueOf(&t.words.count)))
	ch.set(counterDeadID, uint64(s.holder()))
	ch.set(shareAt(slot, shareOwn), 0)
	ok, err := t.commit(c, &ch)
	if ok {
		due = dueDeath
	}
	return due, err
}

// counterDue says what a process has to do for the waiters after a change. 0 means nothing. dueDeath means that the
// waiters have to check the counter again. Any other value is the commit word of a zero that the waiters do not
// know of yet. The process passes the counterDue to the method pay after it has unlocked its private lock, because pay
// may make a system call.
type counterDue counterWord

const dueDeath = counterDue(counterLogged)

// pay tells the waiters of the death or of the zero in due, if any. The caller must not hold t.private.
func (t *counter) pay(due counterDue) {
	switch due {
	case 0:
	case dueDeath:
		t.tell()
	default:
		t.tellZero(counterWord(due))
	}
}

const counterDeadNobody = "it does not say which dead participant owes work"

// lostAt returns a dead participant that has left work undone, or 0 if there was no such participant at some moment
// after c was read. If current is false, the commit word may have changed since then, apart from its watched bit.
// In that case the result may belong to a later state.
func (t *counter) lostAt(c counterWord) (died arenakernel.ParticipantID, current bool, err error) {
	switch {
	case c.lost() && c.owner() == 0:
		return 0, false, t.corrupt(counterDeadNobody)
	case c.lost():
		return c.owner(), true, nil
	case !c.logged():
		return 0, true, nil
	}
	if err := t.complete(c); err != nil {
		return 0, false, err
	}
	if valueOf(&t.words.owed) == 0 {
		if t.slots.load().err != nil {
			return 0, false, t.corruptShares() // a share that cannot be found may be that of a dead participant
		}
		return 0, true, nil // a call that has increased words.owed since then makes the waiters check again
	}
	died = arenakernel.ParticipantID(valueOf(&t.words.dead) & arenakernel.ParticipantIDMask)
	switch {
	case t.load().bare() != c.bare():
		return died, false, nil // words.owed may belong to a later record that is only partly carried out
	case died == 0:
		return 0, false, t.corrupt(counterDeadNobody)
	}
	return died, true, nil
}

// counterView is the state of a counter at one moment.
type counterView struct {
	word       counterWord
	count, own uint64
	owed       uint64
	dead       arenakernel.ParticipantID
}

// view reads all parts of the state at one moment. If the counter changes all the time, view gives
// up after 1000 attempts and returns parts of several moments.
func (t *counter) view() (v counterView) {
	for range 1000 {
		c := t.load()
		v = counterView{word: c, count: c.count()}
		switch {
		case c.lost():
			v.owed, v.dead = v.count, c.owner()
		case c.ownedBy(t.me) && t.me != 0:
			v.own = v.count
		case c.owner() != 0 && !t.a.Current(c.owner()):
			v.owed, v.dead = v.count, c.owner() // no process has reaped the dead owner yet
		case c.logged():
			if t.complete(c) != nil {
				return counterView{word: c}
			}
			v.count = valueOf(&t.words.count)
			v.owed = valueOf(&t.words.owed)
			if v.owed != 0 {
				v.dead = arenakernel.ParticipantID(valueOf(&t.words.dead) & arenakernel.ParticipantIDMask)
			}
			if s := t.slotOf(t.slot); s != nil && s.holder() == t.name {
				v.own = min(t.has(s), v.count)
			}
			for _, s := range t.slots.load().of {
				// A reaper that has no room for a slot record leaves the share of a dead participant as it is.
				if s != nil && t.has(s) != 0 && !t.a.Current(s.holder()) {
					v.owed, v.dead = min(v.owed+t.has(s), v.count), s.holder()
				}
			}
		}
		if t.load().bare() == c.bare() {
			return v
		}
	}
	return v
}

// trouble returns the participant whose death makes waits fail, and the error of those waits.
func (t *counter) trouble(v counterView) (*shmsync.Identity, error) {
	if v.owed == 0 {
		return nil, nil
	}
	return t.a.Who(v.dead), shmsync.ErrOwnerDead
}

// waiting reports whether any waiter is recorded in the arena.
func (t *counter) waiting(v counterView) bool {
	return v.word.watched() && len(t.a.WaitsOf(t.object)) > 0
}
