//go:build linux

package prims

import (
	"errors"
	"fmt"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/model"
)

const (
	barProcs  = 3
	barKept   = 2 // how many broken phases have a record
	barPhases = 5
)

// barEvents is the word of the eventcount, on which waiters sleep.
type barEvents struct {
	seq       uint32
	announced bool
}

// barBreak is a record of a broken phase. The field at is 1 more than the number of the phase, because 0 means that
// there is no record.
type barBreak struct{ at, dead, lost uint8 }

type barThread struct {
	pc    uint8
	then  uint8 // the next step after tell
	left  uint8 // how many more turns the thread has
	phase uint64
	c     uint8 // the commit word that the thread has read
	s     barrierState
	e     barEvents
	b     barBreak
	seq   uint32 // the sequence on which the thread sleeps
	slot  uint8  // the slot whose share the thread reaps
	op    uint8
}

// barState is a Barrier. In this model, a commit is one step. This is correct, because records make a commit act like
// one step, as TestModelCounter shows.
type barState struct {
	commit uint8
	s      barrierState
	share  [barProcs]barrierShare
	breaks [barKept]barBreak
	events barEvents
	killed [barProcs]bool
	again  [barProcs]bool // a newcomer has the slot of the dead process, and the same ID
	stop   bool           // process 0 is stopped for ever
	thread [barProcs]barThread

	// The field ended says how each phase ended: 0 not yet, 1 without a break, 2 broken. The field lost says how many
	// parties a broken phase lost.
	ended, lost [barPhases]uint8
	completions [barPhases]uint8
	bad         string // a violation that a step has found
}

// The steps of a thread.
const (
	barIdle uint8 = iota
	barRead
	barCommit
	barRun
	barTellEvents
	barTellRead
	barTellSwap
	barTellWake
	barJudge
	barLook
	barAnnounce
	barSleep
	barAsleep
	barResetRead
	barResetBreak
	barResetRecheck
	barResetSwap
	barResetCommit
	barOver
)

// The changes that a thread makes.
const (
	barArrive uint8 = iota
	barComplete
	barReap
)

type barModel struct {
	parties    uint64
	turns      [barProcs]uint8
	completion bool
	kills      bool
	comesBack  bool
	stops      bool
	bug        bug
}

func barID(p int) arenakernel.ParticipantID { return arenakernel.ParticipantID(p + 1) }

func (m barModel) explore(b bug) model.Result {
	m.bug = b
	first := barState{s: barrierState{pending: m.parties, expected: m.parties}}
	for i, n := range m.turns {
		if first.thread[i].left = n; n == 0 {
			first.thread[i].pc = barOver
			continue
		}
		// Each process is registered as one party.
		first.share[i].name = barID(i)
		first.s.register(&first.share[i], 1)
	}
	spec := model.Spec[barState]{Init: []barState{first}, Next: m.next, Check: m.check, Done: m.done, Show: m.show, Limit: 1 << 23}
	return spec.Explore()
}

func (m *barModel) show(s *barState) string {
	return fmt.Sprintf("%v, broken %x, completer %v, commit %d, shares %+v, breaks %v, events %+v", &s.s, s.s.broken, s.s.completer, s.commit, s.share, s.breaks, s.events)
}

// done reports whether the model may end in this state. That is so if no thread has turns left, or if the threads
// that have turns left wait for a party that may never arrive: its process is stopped or has ended its turns.
func (m *barModel) done(s *barState) bool {
	for i := range s.thread {
		t := &s.thread[i]
		switch {
		case t.pc == barOver, s.killed[i], i == 0 && s.stop, t.pc == barIdle:
		case t.pc == barAsleep && t.phase == s.s.phase && !s.s.isBroken() && s.stop && !s.killed[0]:
			if _, left := s.s.in(&s.share[0]); left == 0 && s.s.completer != barID(0) {
				return false
			}
		case t.pc == barAsleep && t.phase == s.s.phase && !s.s.isBroken() && m.gone(s):
		default:
			return false
		}
	}
	return true
}

// gone reports whether a living process has ended its turns and is still a party. Other parties may then wait for
// ever.
func (m *barModel) gone(s *barState) bool {
	for i := range s.thread {
		if t := &s.thread[i]; t.pc == barOver && m.turns[i] > 0 && !s.killed[i] {
			return true
		}
	}
	return false
}

func (m *barModel) check(s *barState) error {
	if s.bad != "" {
		return errors.New(s.bad)
	}
	for p := range s.completions {
		if s.completions[p] > 1 {
			return fmt.Errorf("the completion of phase %d has run twice", p)
		}
	}
	return nil
}

func (m *barModel) dead(s *barState, n arenakernel.ParticipantID) bool {
	return n != 0 && s.killed[n-1] && !s.again[n-1]
}

func (m *barModel) next(s *barState, emit func(model.Step[barState])) {
	event := func(what string, f func(to *barState)) {
		to := *s
		f(&to)
		emit(model.Step[barState]{To: to, Label: what, By: "kernel", Optional: true})
	}
	if m.kills && !s.killed[0] {
		event("process 0 is killed", func(to *barState) { to.killed[0] = true; to.thread[0] = barThread{pc: barOver} })
	}
	if m.stops && !s.stop && !s.killed[0] {
		event("process 0 stops for ever", func(to *barState) { to.stop = true })
	}
	if m.comesBack && s.killed[0] && !s.again[0] && s.share[0].parties == 0 && s.s.completer != barID(0) {
		event("its ID comes back", func(to *barState) {
			to.again[0] = true
			to.s.take(&to.share[0], barID(0))
			to.s.register(&to.share[0], 1)
			to.commit++
		})
	}
	for i := range s.thread {
		if !s.killed[i] && !(i == 0 && s.stop) {
			m.step(s, i, emit)
		}
	}
}

func (m *barModel) step(s *barState, i int, emit func(model.Step[barState])) {
	do := func(what string, f func(to *barState, t *barThread) error) {
		to := *s
		if err := f(&to, &to.thread[i]); err != nil {
			to.bad = err.Error()
		}
		emit(model.Step[barState]{To: to, Label: what, By: processNames[i]})
	}
	t := &s.thread[i]
	switch t.pc {
	case barIdle:
		if t.left == 0 {
			do("ends", func(_ *barState, t *barThread) error { *t = barThread{pc: barOver}; return nil })
			return
		}
		do("arrives", func(_ *barState, t *barThread) error {
			*t = barThread{left: t.left - 1, op: barArrive, pc: barRead}
			return nil
		})
	case barRead, barCommit, barRun:
		do("changes", func(to *barState, t *barThread) error { return m.change(to, t, i) })
	case barTellEvents, barTellRead, barTellSwap, barTellWake:
		do("tells", func(to *barState, t *barThread) error { m.tell(to, t); return nil })
	case barJudge, barLook, barAnnounce, barSleep:
		do("waits", func(to *barState, t *barThread) error { return m.wait(to, t, i) })
	case barAsleep:
		if m.owed(s, t) {
			do("checks", func(_ *barState, t *barThread) error { t.pc = barLook; return nil })
		}
	case barResetRead, barResetBreak, barResetRecheck, barResetSwap, barResetCommit:
		do("resets", func(to *barState, t *barThread) error { return m.reset(to, t, i) })
	}
}

// owed reports whether the periodic check of a sleeping thread finds work that a stopped or dead process has left
// undone. In a model without deaths and stops, owed returns false, because no wait may depend on the check.
func (m *barModel) owed(s *barState, t *barThread) bool {
	if m.bug == barNoCheck || !m.stops && !m.kills {
		return false
	}
	return s.events.seq != t.seq || s.s.sequence() != t.seq || m.lost(s) != 0
}

// lost looks for a dead process that is a party or runs the completion. It returns the slot of this process plus 1.
// It returns 0 if there is no such process.
func (m *barModel) lost(s *barState) uint8 {
	for i := range s.share {
		parties, _ := s.s.in(&s.share[i])
		if m.dead(s, s.share[i].name) && (parties > 0 || s.s.completer == s.share[i].name) {
			return uint8(i + 1)
		}
	}
	return 0
}

// change makes one step of a change of the state. The first step reads the state, and the second step commits the
// change.
func (m *barModel) change(s *barState, t *barThread, i int) error {
	switch t.pc {
	case barRead:
		t.c, t.s, t.pc = s.commit, s.s, barCommit
	case barCommit:
		if s.commit != t.c && m.bug != barBlind {
			t.pc = barRead
			return nil
		}
		return m.commit(s, t, i)
	case barRun:
		s.completions[s.s.phase]++
		t.op, t.pc = barComplete, barRead
	}
	return nil
}

func (m *barModel) commit(s *barState, t *barThread, i int) error {
	was := t.s
	is := was
	share := s.share // the same as when the thread read the commit word, which has not changed since
	me := barID(i)
	next := barJudge
	switch t.op {
	case barArrive:
		t.phase = was.phase
		switch {
		case was.completer != 0 && !was.isBroken():
			// The thread waits for the end of this phase and then arrives. So it needs one more turn.
			t.left++
		default:
			is.take(&share[i], me)
			if !is.isBroken() && is.pending > 0 {
				completer := me
				if !m.completion {
					completer = 0
				}
				is.count(&share[i], 1, 0, completer)
				if is.completer == me && was.completer == 0 {
					next = barRun
				}
			}
		}
	case barComplete:
		if is.completer != me {
			return errors.New("another process has ended the completion")
		}
		is.end()
	case barReap:
		h := &share[t.slot]
		if m.dead(s, h.name) {
			if is.completer == h.name {
				is.giveUp()
			}
			if is.lose(h); s.again[t.slot] {
				return errors.New("a reaper loses the parties of a living participant")
			}
		}
		next = barLook
	}
	m.publish(s, was, is)
	s.share = share
	if t.pc = next; was.sequence() != is.sequence() && next != barRun {
		t.pc, t.then = barTellEvents, next
	}
	t.s = barrierState{}
	return nil
}

func (m *barModel) publish(s *barState, was, is barrierState) {
	if is.phase != was.phase {
		if was.isBroken() {
			s.ended[was.phase], s.lost[was.phase] = 2, uint8(was.lost)
		} else {
			s.ended[was.phase] = 1
		}
	}
	s.s = is
	s.commit++
}

// tell makes one step of the method Barrier.tell, which stores the sequence of the state in the word events and wakes
// the waiters.
func (m *barModel) tell(s *barState, t *barThread) {
	switch t.pc {
	case barTellEvents:
		if t.e, t.pc = s.events, barTellRead; m.bug == barStateFirst {
			if t.s, t.pc = s.s, barTellSwap; t.e.seq == t.s.sequence() {
				t.pc = t.then
			}
		}
	case barTellRead:
		if t.s, t.pc = s.s, barTellSwap; t.e.seq == t.s.sequence() {
			t.pc = t.then
		}
		if m.bug == barWakeFirst {
			m.wakeAll(s)
		}
	case barTellSwap:
		if m.bug == barStateFirst {
			t.e = s.events // the mistake: the events are read after the state
		}
		if s.events != t.e {
			t.pc = barTellEvents
			return
		}
		s.events = barEvents{seq: t.s.sequence()}
		if t.pc = t.then; t.e.announced && m.bug != barWakeFirst {
			t.pc = barTellWake
		}
	case barTellWake:
		m.wakeAll(s)
		t.pc = t.then
	}
	if t.pc == t.then {
		t.s, t.e = barrierState{}, barEvents{}
	}
}

func (m *barModel) wakeAll(s *barState) {
	for i := range s.thread {
		if s.thread[i].pc == barAsleep {
			s.thread[i].pc = barLook
		}
	}
}

func (m *barModel) wait(s *barState, t *barThread, i int) error {
	switch t.pc {
	case barJudge:
		var r barrierBreak
		if b := s.breaks[t.phase%barKept]; b.at > 0 {
			lap := t.phase>>barrierLapOfPhase + uint64(int64(b.at)-1-int64(t.phase))
			r = barrierBreak(b.dead) | barrierBreak(b.lost)<<barrierLostShift | barrierRecorded | barrierBreak(lap)<<barrierLapShift
		}
		v := s.s.verdict(t.phase, r)
		switch {
		case !v.over:
			t.pc, t.seq = barLook, uint32(t.phase)<<1
		case v.broken && v.dead == 0:
			*t = barThread{left: t.left}
		case v.broken:
			if s.ended[t.phase] == 1 {
				return fmt.Errorf("a wait for phase %d fails, although the phase ended without a break", t.phase)
			}
			if s.ended[t.phase] == 2 && v.lost != uint64(s.lost[t.phase]) {
				return fmt.Errorf("phase %d has lost %d parties, and a wait reports %d", t.phase, s.lost[t.phase], v.lost)
			}
			*t = barThread{left: t.left, pc: barResetRead}
		case s.ended[t.phase] != 1:
			return fmt.Errorf("a wait for phase %d returns no error, although the phase has not ended or has broken", t.phase)
		default:
			*t = barThread{left: t.left}
		}
	case barLook:
		switch n := m.lost(s); {
		case n != 0 && m.bug != barNoReap:
			t.pc, t.op, t.slot = barRead, barReap, n-1
		case s.events.seq != s.s.sequence() && m.bug != barTellOnce:
			t.pc, t.then = barTellEvents, barLook
		case s.events.seq != t.seq:
			t.pc = barJudge
		default:
			t.pc = barAnnounce
		}
	case barAnnounce:
		if s.events.seq != t.seq {
			t.pc = barJudge
			return nil
		}
		s.events.announced = true
		t.pc = barSleep
	case barSleep:
		if t.pc = barLook; s.events.seq == t.seq || m.bug == barSleepsAnyway {
			t.pc = barAsleep
		}
	}
	return nil
}

func (m *barModel) reset(s *barState, t *barThread, i int) error {
	record := func() *barBreak { return &s.breaks[t.s.phase%barKept] }
	want := barBreak{uint8(t.s.phase + 1), uint8(t.s.broken.dead()), uint8(t.s.lost)}
	end := func() { *t = barThread{left: t.left} }
	switch t.pc {
	case barResetRead:
		t.c, t.s, t.pc = s.commit, s.s, barResetBreak
		switch n := m.lost(s); {
		case n != 0 && m.bug != barNoReap:
			*t = barThread{left: t.left, phase: t.phase, pc: barRead, op: barReap, slot: n - 1}
		case !t.s.isBroken():
			end()
		case m.bug == barBreakLast:
			t.pc = barResetCommit
		}
	case barResetBreak:
		t.b = *record()
		if t.pc = barResetRecheck; t.b == want {
			t.pc = barResetCommit
		}
	case barResetRecheck:
		if t.pc = barResetSwap; s.commit != t.c {
			t.pc = barResetRead
		}
	case barResetSwap:
		if m.bug == barBreakLast {
			*record() = want
			t.pc, t.then, t.s = barTellEvents, barIdle, barrierState{}
			return nil
		}
		if *record() != t.b {
			t.pc = barResetRead
			return nil
		}
		*record() = want
		t.pc = barResetCommit
	case barResetCommit:
		if s.commit != t.c {
			t.pc = barResetRead
			return nil
		}
		was := t.s
		is := was
		is.begin(0)
		m.publish(s, was, is)
		if m.bug == barBreakLast {
			t.pc = barResetSwap
			return nil
		}
		*t = barThread{left: t.left, pc: barTellEvents, then: barIdle}
	}
	return nil
}
