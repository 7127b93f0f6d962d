package prims

import (
	"math"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("counter.commit.recorded")
	_ = crashpoint.Register("counter.commit.named")
	_ = crashpoint.Register("counter.commit.begun")
	_ = crashpoint.Register("counter.commit.completed")
)

// A change that the sole form of the commit word cannot express goes through a record:
//
//	its author                          the next process
//	completes the record of the word    finds the record of the author
//	writes a record of its own          changes each of its words whose tag is not the version
//	CAS: the commit word names it       CAS of the commit word
//	completes it
//
// A process that stops or dies before the CAS of the commit word has changed nothing. After the
// CAS, the next process completes the record. The author writes its next record only when this
// one is complete. So a process that finds another version in the record has nothing left to do.
//
// A process that was stopped while it completed a record may resume at any time. It changes a
// word only if the word still has the value and the tag from before the record. No word has both
// again before 2^32 further tickets.
//
// The shares are in the slots. The work that is nobody's is the count minus what the dead owe and
// minus the shares. It is negative if participants did more than their shares.

// counterChange is a change that will go into a record.
type counterChange struct {
	n     int
	index [counterEntries]uint32
	value [counterEntries]uint32
}

func (ch *counterChange) set(index uint32, value uint64) {
	ch.index[ch.n], ch.value[ch.n] = index, uint32(value)
	ch.n++
}

// commit makes a change of the counter over c. The caller has the private lock, and has completed
// the record of c. ok is false if the commit word has changed from c.
func (t *counter) commit(c counterWord, ch *counterChange) (ok bool, err error) {
	version, err := t.version(ch)
	if err != nil {
		return false, err
	}
	slot := t.name.Slot()
	s := &t.slots[slot-1]
	putBetween(&s.head, version)
	for i := range ch.n {
		putBetween(&s.entries[i], uint64(ch.index[i])<<32|uint64(ch.value[i]))
	}
	if ch.n < counterEntries {
		putBetween(&s.entries[ch.n], 0)
	}
	crashpoint.Hit("counter.commit.recorded")
	to := counterNames(version, slot, c&counterWatched)
	if !t.swap(c, to) {
		return false, nil
	}
	crashpoint.Hit("counter.commit.named")
	err = t.complete(to)
	crashpoint.Hit("counter.commit.completed")
	return err == nil, err
}

// version returns a ticket that none of the words of a change has as its tag.
func (t *counter) version(ch *counterChange) (uint64, error) {
	for range 2 * counterEntries {
		v := t.words.tickets.Add(1) & counterVersions
		used := v == 0
		for _, index := range ch.index[:ch.n] {
			w := t.tagged(index)
			if w == nil {
				return 0, t.corrupt("a share is that of a slot that there is not")
			}
			used = used || taggedWord(w.Load()).tag() == uint32(v)
		}
		if !used {
			return v, nil
		}
	}
	return 0, t.corrupt("its tickets do not advance")
}

// complete carries out the record that c names, unless that was done.
func (t *counter) complete(c counterWord) error {
	if slot := c.slot(); slot < 1 || slot > len(t.slots) {
		return t.corrupt("its record is that of a slot that there is not")
	}
	s, version := &t.slots[c.slot()-1], c.version()
	for i := range s.entries {
		entry := s.entries[i].Load()
		// An author changes the head before the entries.
		if s.head.Load() != version {
			return nil
		}
		if entry>>32 == 0 {
			return nil
		}
		w := t.tagged(uint32(entry >> 32))
		if w == nil {
			return t.corrupt("a record changes a word that there is not")
		}
		for {
			// The loop ends: another process that changes the word between the load and the CAS
			// completes the same record.
			was := taggedWord(w.Load())
			if was.tag() == uint32(version) {
				break
			}
			// Nobody commits over c before the word has the tag. So if c is still there, was is
			// the value from before the record.
			if t.load().bare() != c.bare() {
				return nil
			}
			if w.CompareAndSwap(uint64(was), uint64(makeTagged(uint32(entry), uint32(version)))) {
				crashpoint.Hit("counter.commit.begun")
				break
			}
		}
	}
	return nil
}

// convert changes c, which is of the sole form and not 0, to the logged form, unless c has
// changed.
func (t *counter) convert(c counterWord) error {
	t.private.Lock()
	defer t.private.Unlock()
	var ch counterChange
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

// newPeriod returns a period that no share has. It is the low half of a ticket. A later ticket
// has the same low half only after 2^32 others.
func (t *counter) newPeriod() uint64 {
	var period uint64
	for range len(t.slots) + 1 {
		n := t.words.tickets.Add(1)
		period = uint64(uint32(n))
		if n <= math.MaxUint32 || !t.hasPeriod(period) {
			break
		}
	}
	return period
}

func (t *counter) hasPeriod(period uint64) bool {
	for i := range t.slots {
		if valueOf(&t.slots[i].period) == period {
			return true
		}
	}
	return false
}

// valueOf is the value of a tagged word.
func valueOf(w *atomic.Uint64) uint64 { return uint64(taggedWord(w.Load()).value()) }

// has is how much work the share of a slot stands for, in a logged form that is complete.
func (t *counter) has(s *counterSlot) uint64 {
	if valueOf(&s.period) != valueOf(&t.words.period) {
		return 0
	}
	return valueOf(&s.own)
}

// holder is the participant whose share the slot has.
func (s *counterSlot) holder() arenakernel.ParticipantID {
	return arenakernel.ParticipantID(valueOf(&s.name) & arenakernel.ParticipantIDMask)
}

// claimable is how much of a share others may claim.
func (t *counter) claimable(s *counterSlot) uint64 {
	own := t.has(s)
	return own - min(valueOf(&s.claimed), own)
}

// ownShare is the share of this participant, as a change needs it. Others also do work of this
// share, so the word may exceed the count. The participant's undone work is part of the count, so
// own is the count at most. Without this limit the share of a producer would grow for ever.
type ownShare struct {
	own, claimed uint64
	void         bool // the slot has no share of this period
}

// mine reads the share of this participant while the counter is count. ok is false if the slot
// has the share of a dead participant, which must be folded first.
func (t *counter) mine(count uint64) (h ownShare, ok bool) {
	s := &t.slots[t.name.Slot()-1]
	own := min(t.has(s), count)
	switch {
	case s.holder() == t.name && valueOf(&s.period) == valueOf(&t.words.period):
		return ownShare{own: own, claimed: min(valueOf(&s.claimed), own)}, true
	case own == 0:
		return ownShare{void: true}, true
	}
	return ownShare{}, false
}

// put adds to a change that the share h becomes own, of which claimed was claimed.
func (t *counter) put(ch *counterChange, h ownShare, own, claimed uint64) {
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

// attempt is the result of one attempt to make a change in a logged form.
type attempt struct {
	over bool       // there is nothing more to try
	made bool       // the change is made
	due  counterDue // what the caller does after it has unlocked the private lock
}

// addLogged makes one attempt to add n in a logged form. If the result is over and not made, the
// counter would overflow.
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
	var ch counterChange
	ch.set(counterCount, count+n)
	t.put(&ch, h, h.own+n, h.claimed) // others may claim what is added now
	if ok, err = t.commit(c, &ch); ok {
		crashpoint.Hit("counter.add.counted")
	}
	r.over, r.made = ok, ok
	return r, err
}

// doneLogged makes one attempt to subtract n in a logged form. If the result is over and not
// made, the counter is less than n.
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
	var ch counterChange
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

// fold makes one attempt to turn the share of a slot into work that the dead owe. The caller has
// the private lock, and has completed c. If due is not 0, the share is folded.
func (t *counter) fold(c counterWord, slot int) (due counterDue, err error) {
	s := &t.slots[slot-1]
	var ch counterChange
	ch.set(counterOwed, min(valueOf(&t.words.owed)+t.has(s), valueOf(&t.words.count)))
	ch.set(counterDeadID, uint64(s.holder()))
	ch.set(shareAt(slot, shareOwn), 0)
	ok, err := t.commit(c, &ch)
	if ok {
		due = dueDeath
	}
	return due, err
}

// counterDue is what a process has to do for the waiters after a change: 0 means nothing,
// dueDeath to make them look, and any other value is an untold zero to tell them of. A wake is a
// system call for each waiter, so no process wakes while it holds its private lock.
type counterDue counterWord

const dueDeath = counterDue(counterLogged)

// pay does what is due. The private lock is not held.
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

// lostAt is the dead participant that leaves work undone, or 0. A 0 was right at some moment
// after c was read. current is false if died may be another dead participant, because the commit
// word has changed from c in more than the watched bit.
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
		return 0, true, nil // a fold makes waiters look after it has changed owed
	}
	died = arenakernel.ParticipantID(valueOf(&t.words.dead) & arenakernel.ParticipantIDMask)
	switch {
	case t.load().bare() != c.bare():
		return died, false, nil // owed may belong to a later record that is only partly carried out
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

// view reads the state. If the counter changes all the time, view gives up reading all parts at
// one moment.
func (t *counter) view() (v counterView) {
	for range 1000 {
		c := t.load()
		v = counterView{word: c, count: c.count()}
		switch {
		case c.lost():
			v.owed, v.dead = v.count, c.owner()
		case c.ownedBy(t.me) && t.me != 0:
			v.own = v.count
		case c.logged():
			if t.complete(c) != nil {
				return counterView{word: c}
			}
			v.count = valueOf(&t.words.count)
			v.owed = valueOf(&t.words.owed)
			if v.owed != 0 {
				v.dead = arenakernel.ParticipantID(valueOf(&t.words.dead) & arenakernel.ParticipantIDMask)
			}
			if i := t.name.Slot(); i > 0 && t.slots[i-1].holder() == t.name {
				v.own = min(t.has(&t.slots[i-1]), v.count)
			}
		}
		if t.load().bare() == c.bare() {
			return v
		}
	}
	return v
}

// trouble is the participant whose death makes waits fail, and the error of those waits.
func (t *counter) trouble(v counterView) (*shmsync.Identity, error) {
	if v.owed == 0 {
		return nil, nil
	}
	return t.a.Who(v.dead), shmsync.ErrOwnerDead
}

// waiting reports whether anybody waits, as far as the arena records it.
func (t *counter) waiting(v counterView) bool {
	return v.word.watched() && len(t.a.WaitsOf(t.object)) > 0
}
