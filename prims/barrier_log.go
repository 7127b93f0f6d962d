package prims

import (
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("barrier.tell.before_wake")
	_ = crashpoint.Register("barrier.reap.lost")
)

func (x *Barrier) slotOf(slot int) *barrierSlot { return x.slots.at(slot) }

// recordOf returns the change record of a slot. The recordLog calls it.
func (x *Barrier) recordOf(slot int) (head *atomic.Uint64, entries []atomic.Uint64) {
	s := x.slotOf(slot)
	if s == nil {
		return nil, nil
	}
	return &s.head, s.entries[:]
}

func (x *Barrier) load() counterWord { return x.recordLog.load() }

// at reads the state that the commit word c describes. If ok is false, the commit word has changed since the caller
// read c, and s may mix parts of later states.
func (x *Barrier) at(c counterWord) (s barrierState, ok bool, err error) {
	if err := x.complete(c); err != nil {
		return s, false, err
	}
	w := x.words
	s = barrierState{
		phase: valueOf(&w.era)<<32 | valueOf(&w.phase), reset: valueOf(&w.resetEra)<<32 | valueOf(&w.reset),
		pending: valueOf(&w.pending), expected: valueOf(&w.expected), lost: valueOf(&w.lost), skipped: valueOf(&w.skipped),
		completer: arenakernel.ParticipantID(valueOf(&w.completer) & arenakernel.ParticipantIDMask),
		broken:    barrierBroken(valueOf(&w.broken)),
	}
	return s, x.word.Load() == uint64(c), nil
}

// share returns the share that the slot record holds: how many of the parties belong to its participant.
func (s *barrierSlot) share() barrierShare {
	return barrierShare{
		name: arenakernel.ParticipantID(valueOf(&s.name) & arenakernel.ParticipantIDMask), phase: valueOf(&s.era)<<32 | valueOf(&s.phase),
		parties: valueOf(&s.parties), left: valueOf(&s.left),
		gone: arenakernel.ParticipantID(valueOf(&s.gone) & arenakernel.ParticipantIDMask), goneIn: valueOf(&s.goneIn),
	}
}

// read returns the state.
func (x *Barrier) read() (barrierState, error) {
	for {
		// The loop repeats only if another call has changed the Barrier. So the loop is lock-free.
		if s, ok, err := x.at(x.load()); ok || err != nil {
			return s, err
		}
	}
}

// change passes the state and the share of a slot to the function rule, and publishes what rule has changed in them.
// It returns the state before and after the change. It may call rule several times, so rule must have no other
// effect, and must not wait.
func (x *Barrier) change(slot int, rule func(s *barrierState, h *barrierShare)) (was, is barrierState, err error) {
	x.private.Lock()
	defer x.private.Unlock()
	for {
		// The loop repeats only if another call has changed the Barrier. So the loop is lock-free.
		c := x.load()
		s, ok, err := x.at(c)
		if err != nil {
			return s, s, err
		}
		record := x.slotOf(slot)
		if record == nil {
			return s, s, x.corrupt("a slot has no record")
		}
		had := record.share()
		if !ok || x.load() != c {
			continue
		}
		to := &x.scratch
		to.is, to.has, to.ch.n = s, had, 0
		rule(&to.is, &to.has)
		to.ch.differState(&s, &to.is)
		to.ch.differShare(slot, &had, &to.has)
		if to.ch.n == 0 {
			return s, s, nil
		}
		if ok, err := x.commit(c, &to.ch); ok || err != nil {
			return s, to.is, err
		}
	}
}

// differState adds to ch each word that differs between the old state s and the new state.
func (ch *recordChange) differState(s, is *barrierState) {
	ch.differ(barrierPhase, s.phase, is.phase)
	ch.differ(barrierEra, s.phase>>32, is.phase>>32)
	ch.differ(barrierPending, s.pending, is.pending)
	ch.differ(barrierExpected, s.expected, is.expected)
	ch.differ(barrierCompleter, uint64(s.completer), uint64(is.completer))
	ch.differ(barrierBrokenWord, uint64(s.broken), uint64(is.broken))
	ch.differ(barrierLost, s.lost, is.lost)
	ch.differ(barrierSkipped, s.skipped, is.skipped)
	ch.differ(barrierReset, s.reset, is.reset)
	ch.differ(barrierResetEra, s.reset>>32, is.reset>>32)
}

func (ch *recordChange) differShare(slot int, had, has *barrierShare) {
	ch.differ(barrierShareAt(slot, barrierShareName), uint64(had.name), uint64(has.name))
	ch.differ(barrierShareAt(slot, barrierSharePhase), had.phase, has.phase)
	ch.differ(barrierShareAt(slot, barrierShareEra), had.phase>>32, has.phase>>32)
	ch.differ(barrierShareAt(slot, barrierShareParties), had.parties, has.parties)
	ch.differ(barrierShareAt(slot, barrierShareLeft), had.left, has.left)
	ch.differ(barrierShareAt(slot, barrierShareGone), uint64(had.gone), uint64(has.gone))
	ch.differ(barrierShareAt(slot, barrierShareGoneIn), had.goneIn, has.goneIn)
}

// differ adds the word with this index to the change ch if from and to differ.
func (ch *recordChange) differ(index uint32, from, to uint64) {
	if uint32(from) != uint32(to) {
		ch.set(index, to)
	}
}

// tell makes waiters notice a change of the state. Waiters sleep on the word events, an eventcount. If events has
// another sequence than the state, tell stores the sequence of the state in events. If a waiter has announced itself,
// tell also wakes the waiters. The process that has changed the state calls tell. But this process may be stopped or
// die before the call, so the waiters and the periodic checks call tell, too.
//
//	a change               tell                        a waiter for phase p
//	commit word            events: e                   events: announced, if the sequence is 2p
//	                       state: its sequence         sleep while the sequence is 2p
//	                       CAS of e: the sequence,
//	                       no announcement; wake
//
// tell reads the state after it has loaded e from events, so the state is at least as new as e. If events changes
// before the CAS, the CAS fails. There is one exception: after exactly 2^31 phases, events has the same value again, so
// the CAS of a process that was stopped for so long succeeds.
func (x *Barrier) tell() error {
	for {
		// If the CAS fails, another process has changed the word events. So the loop is lock-free.
		e := x.eventcount.load()
		s, err := x.read()
		if err != nil || e.sequence() == s.sequence() {
			return err
		}
		x.noteCPU(e)
		if x.eventcount.swap(e, eventcountState(s.sequence())) {
			if e.announced() {
				crashpoint.Hit("barrier.tell.before_wake")
				x.wakeAll()
			}
			return nil
		}
	}
}

// tellOf calls tell if the word events has another sequence than the given one. The caller has just read a state with
// this sequence.
func (x *Barrier) tellOf(sequence uint32) error {
	if x.eventcount.load().sequence() == sequence {
		return nil
	}
	return x.tell()
}

// look finishes what a stopped or dead process has left undone. If participants have died since the last reap of this
// handle, look reaps them: it breaks the phases that they leave incomplete.
func (x *Barrier) look() {
	if x.deaths.Load() != x.a.Deaths() {
		x.reap(x.absent)
	}
	x.tell()
}

// absent reports whether a participant is dead or has left the arena.
func (x *Barrier) absent(n arenakernel.ParticipantID) bool { return !x.a.Current(n) }

// scan looks for deaths that a.Deaths does not count yet. A process marks a participant dead before it counts the
// death, and may be stopped in between.
func (x *Barrier) scan() {
	dead := false
	x.holders(func(n arenakernel.ParticipantID) { dead = x.a.Dead(n) || dead })
	if dead {
		x.reap(x.absent)
	}
}

// holders calls f for each participant that has parties or runs the completion.
func (x *Barrier) holders(f func(arenakernel.ParticipantID)) {
	s, err := x.read()
	if err != nil {
		return
	}
	if s.completer != 0 {
		f(s.completer)
	}
	for _, slot := range x.slots.load().of {
		if slot == nil {
			continue
		}
		if h := slot.share(); h.name != 0 && h.parties > 0 {
			f(h.name)
		}
	}
}

// reap breaks the phases that dead participants leave incomplete.
//
// One pass over the slots is enough. If the last change of a dead participant has taken effect, but is not carried
// out yet, the first read of the state carries it out. After that, only reapers, and a new participant that takes over
// the slot, change the share of the dead participant. Their change marks the parties of the share as lost.
//
// A process that has no slot record cannot change the Barrier, and its reap does nothing; see repairBarrier.
func (x *Barrier) reap(absent func(arenakernel.ParticipantID) bool) {
	deaths := x.a.Deaths()
	if x.slotOf(x.slot) == nil {
		return
	}
	s, err := x.read()
	if err != nil {
		return
	}
	lost := false
	if s.completer != 0 && absent(s.completer) {
		was, is, _ := x.change(x.slot, func(s *barrierState, _ *barrierShare) {
			if s.completer != 0 && absent(s.completer) {
				s.giveUp()
			}
		})
		lost = was != is
	}
	for i, slot := range x.slots.load().of {
		if slot == nil {
			continue
		}
		if h := slot.share(); h.parties == 0 || h.name == 0 || !absent(h.name) {
			continue
		}
		was, is, err := x.change(i+1, func(s *barrierState, h *barrierShare) {
			if h.name != 0 && absent(h.name) {
				s.lose(h)
			}
		})
		if err != nil {
			return
		}
		lost = lost || was != is
	}
	x.deaths.Store(deaths)
	if lost {
		crashpoint.Hit("barrier.reap.lost")
	}
}

// seen returns the state, and the share of each slot, indexed by slot number minus 1. It takes all known deaths
// into account but does not change the Barrier. The method State and the tools use it.
func (x *Barrier) seen() (s barrierState, shares []barrierShare, err error) {
	for {
		// The loop repeats only if another call has changed the Barrier. So the loop is lock-free.
		c := x.load()
		s, ok, err := x.at(c)
		if err != nil {
			return s, nil, err
		}
		of := x.slots.load().of
		shares = make([]barrierShare, len(of))
		for i, slot := range of {
			if slot != nil {
				shares[i] = slot.share()
			}
		}
		if !ok || x.load() != c {
			continue
		}
		if s.completer != 0 && x.absent(s.completer) {
			s.giveUp()
		}
		for i := range shares {
			if h := &shares[i]; h.name != 0 && x.absent(h.name) {
				s.lose(h)
			}
		}
		return s, shares, x.slots.load().err
	}
}

func (x *Barrier) corrupt(detail string) error {
	return x.eventcount.fail(shmsync.ErrCorrupt, nil, detail)
}
