//go:build linux

package prims

import (
	"errors"
	"fmt"

	"github.com/shmsync/shmsync/internal/model"
)

const (
	mqThreads = 4
	mqRange   = 8 // how many values mqCell.next can have; the counter can have more
	mqFar     = 2 // how far ahead a token can be announced
)

// mqCell models a tokenCellState. All tokens belong to one cell.
type mqCell struct {
	seq       uint8
	announced bool
	next      uint8
}

func (c mqCell) ahead(v uint8) uint8 { return (c.next - v) % mqRange }
func (c mqCell) due(v uint8) bool    { return c.announced && (c.ahead(v) == 0 || c.ahead(v) > mqFar) }

// mqThread is a goroutine in a separate process, together with the periodic check of that process.
type mqThread struct {
	pc     uint8
	cell   mqCell // the word that the thread has read
	value  uint8  // the counter that the thread has read, or the new value that it has stored
	jump   uint8  // by how much the thread has increased the counter
	at     uint8  // how many operations the thread has done
	turns  uint8  // the value of turns when the wait began
	token  uint8  // the token that the thread waits for
	seq    uint8  // the sequence that the thread sleeps on
	looked uint8  // the sequence at the last periodic check, plus 1
	checks bool   // a periodic check is about to wake the thread
	seen   uint8  // the turns that the thread has read, to judge its wait
	dead   bool
	over   bool // the wait of the thread was over at some moment
	came   bool // the counter reached the token before the waits were ended
}

type mqState struct {
	value, turns uint8
	cell         mqCell
	wrong        string
	stopped      uint8 // thread plus 1
	kills        uint8
	owes         bool // a process has died and is not reaped yet
	thread       [mqThreads]mqThread
}

// The steps.
const (
	mqIdle uint8 = iota
	mqEnded
	mqCount    // the next operation
	mqLook     // checks the cell after a count
	mqHit      // changes the word of the cell
	mqWake     // wakes all
	mqTurned   // has ended the waits, and is about to set the counter or to make all waiters check
	mqMakeLook // makes all waiters check
	mqTurnHit  // changes the word
	mqTurnWake // wakes all
	mqBegin    // begins a wait
	mqRead     // reads the cell
	mqValue    // reads the counter
	mqHelp     // changes the word of the cell, because it is due
	mqHelpWake // wakes all
	mqAnnounce // announces its token
	mqAgain    // checks the counter once more
	mqTurns    // reads turns, to judge the wait: when it begins, after each sleep, and when it seems to be over
	mqJudge    // reads the counter, and judges
	mqSleep    // goes to sleep
	mqAsleep   // sleeps
)

// sequencerModel is one cell of a Sequencer. Each thread has a string of operations. A digit increases the
// counter by that number, C ends all waits, and R ends all waits and sets the counter to 0. A string that is
// one small letter is a wait: a for the counter 1, b for 2, and so on.
type sequencerModel struct {
	threads []string
	first   uint8 // the initial value of the counter
	kills   uint8
	stops   bool
	cancel  bool
	bug     bug
}

func (m sequencerModel) explore(b bug) model.Result {
	m.bug = b
	var first []mqState
	for _, old := range []mqCell{{}, {announced: true, next: (m.first + 1) % mqRange}, {announced: true, next: (m.first + mqRange - 1) % mqRange}} {
		s := mqState{value: m.first, cell: old} // an earlier wait that gave up may have announced a token
		for i, ops := range m.threads {
			t := &s.thread[i]
			if t.pc = mqCount; ops[0] >= 'a' {
				t.pc, t.token = mqBegin, ops[0]-'a'+1
			}
		}
		first = append(first, s)
	}
	spec := model.Spec[mqState]{Init: first, Next: m.next, Check: m.check, Done: m.done, Show: m.show, Limit: 1 << 22}
	return spec.Explore()
}

func (m *sequencerModel) show(s *mqState) string { return fmt.Sprintf("%+v", *s) }

func (m *sequencerModel) check(s *mqState) error {
	if s.wrong != "" {
		return errors.New(s.wrong)
	}
	return nil
}

// isOver reports whether the wait of t is over.
func (s *mqState) isOver(t *mqThread) bool { return s.value >= t.token || s.turns != t.turns }

// resets reports whether a thread is about to set the counter back. If so, counts of other threads may be lost.
func (m *sequencerModel) resets(s *mqState) bool {
	for i, ops := range m.threads {
		if t := &s.thread[i]; t.pc == mqTurned && ops[t.at-1] == 'R' {
			return true
		}
	}
	return false
}

// done reports whether each thread has ended. It ignores threads that are stopped or dead, and waits that were never
// over.
func (m *sequencerModel) done(s *mqState) bool {
	for i := range m.threads {
		t := &s.thread[i]
		switch {
		case s.stopped == uint8(i+1), t.dead, t.pc == mqEnded:
		case t.pc == mqAsleep && !t.over:
		default:
			return false
		}
	}
	return true
}

func (m *sequencerModel) next(s *mqState, emit func(model.Step[mqState])) {
	emitNoted := func(to mqState, what, by string, optional bool) {
		for i := range m.threads { // a wait that is over ends, even if the counter is set back
			if t := &to.thread[i]; t.pc > mqBegin {
				t.over = t.over || to.turns != t.turns || to.value >= t.token && !m.resets(&to)
				t.came = t.came || to.turns == t.turns && to.value >= t.token
			}
		}
		emit(model.Step[mqState]{To: to, Label: what, By: by, Optional: optional})
	}
	env := func(what string, optional bool, f func(to *mqState)) {
		to := *s
		f(&to)
		emitNoted(to, what, "kernel", optional)
	}
	if s.owes {
		env("reaps", false, func(to *mqState) {
			to.owes = false
			if m.bug != mqReapsTheSleeping {
				to.cell = mqCell{seq: to.cell.seq + 1}
			}
			if m.bug != mqReapSilent {
				m.wake(to)
			}
		})
	}
	for i := range m.threads {
		t := &s.thread[i]
		if s.stopped == uint8(i+1) || t.dead || t.pc == mqEnded {
			continue
		}
		if s.kills < m.kills {
			env(fmt.Sprintf("kills thread %d", i), true, func(to *mqState) {
				to.kills++
				to.owes, to.thread[i] = true, mqThread{dead: true}
			})
		}
		if m.stops && s.stopped == 0 {
			env(fmt.Sprintf("stops thread %d for ever", i), true, func(to *mqState) { to.stopped = uint8(i + 1) })
		}
		if m.cancel && t.pc == mqAsleep {
			env(fmt.Sprintf("ends the context of thread %d", i), true, func(to *mqState) { to.thread[i] = mqThread{pc: mqEnded} })
		}
		do := func(what string, f func(to *mqState, t *mqThread)) {
			to := *s
			f(&to, &to.thread[i])
			emitNoted(to, what, fmt.Sprint("thread ", i), false)
		}
		if t.pc != mqAsleep {
			do("does", func(to *mqState, t *mqThread) { m.step(to, i, t) })
		}
		m.stepCheck(s, t, do)
	}
}

// stepCheck models the periodic check of a waiter. It has a step only where the check would find something to
// do. Unless a thread is stopped, the protocol must work without this step.
func (m *sequencerModel) stepCheck(s *mqState, t *mqThread, do func(string, func(*mqState, *mqThread))) {
	switch {
	case !m.stops || m.bug == mqNoCheck:
	case t.checks:
		do("wakes what its check has found", func(to *mqState, t *mqThread) {
			t.checks = false
			m.wake(to)
		})
	case t.pc != mqAsleep: // the check wakes nobody here, and runs again later
	case s.isOver(t) && (s.value >= t.token || m.bug != mqCheckForgetsTurns) && m.bug != mqCheckTrustsTheWord:
		do("finds that its wait is over", func(to *mqState, t *mqThread) { t.checks = true })
	case (t.looked != s.cell.seq+1 || !s.cell.announced):
		do("checks", func(to *mqState, t *mqThread) { t.looked, t.checks = to.cell.seq+1, true })
	}
}

func (m *sequencerModel) wake(s *mqState) {
	for i := range s.thread {
		if t := &s.thread[i]; t.pc == mqAsleep {
			if t.pc = mqTurns; m.bug == mqWokenIsDone {
				m.ends(s, t)
			}
		}
	}
}

// ends ends a wait.
func (m *sequencerModel) ends(s *mqState, t *mqThread) {
	if !s.isOver(t) {
		s.wrong = "a wait has ended before it was over"
	}
	*t = mqThread{pc: mqEnded}
}

// hits changes the word of the cell if it is still c, the value that was read before. It reports whether it
// changed the word, and whether a waiter must be woken.
func (m *sequencerModel) hits(s *mqState, c mqCell) (ok, wakes bool) {
	if s.cell != c {
		return false, false
	}
	s.cell = mqCell{seq: c.seq + 1}
	return true, c.announced
}

func (m *sequencerModel) step(s *mqState, i int, t *mqThread) {
	switch ops := m.threads[i]; t.pc {
	case mqCount:
		if int(t.at) == len(ops) {
			*t = mqThread{pc: mqEnded}
			return
		}
		switch op := ops[t.at]; op {
		case 'C', 'R':
			s.turns++
			t.pc = mqTurned
		default:
			if m.bug == mqLooksFirst && t.jump == 0 {
				t.cell, t.jump = s.cell, op-'0'
				return
			}
			t.jump = op - '0'
			s.value += t.jump
			t.value, t.pc = s.value, mqLook
		}
		t.at++
	case mqLook:
		if m.bug != mqLooksFirst {
			t.cell = s.cell
		}
		due := t.cell.due(t.value)
		if m.bug == mqReachedOnly {
			due = t.cell.announced && t.cell.next == t.value%mqRange
		}
		if due || t.cell.announced && t.jump > mqFar && m.bug != mqJumpLikeAny {
			t.pc = mqHit
			return
		}
		*t = mqThread{pc: mqCount, at: t.at}
	case mqHit:
		ok, wakes := m.hits(s, t.cell)
		switch {
		case !ok && m.bug != mqLooksFirst && m.bug != mqHitGivesUp:
			t.pc = mqLook
		case ok && wakes && m.bug != mqSilent:
			t.pc = mqWake
		default:
			*t = mqThread{pc: mqCount, at: t.at}
		}
	case mqWake, mqTurnWake:
		m.wake(s)
		*t = mqThread{pc: mqCount, at: t.at}
	case mqTurned:
		if ops[t.at-1] == 'R' {
			s.value = 0
		}
		t.pc = mqMakeLook
	case mqMakeLook:
		t.cell, t.pc = s.cell, mqTurnHit
	case mqTurnHit:
		ok, wakes := m.hits(s, t.cell)
		switch {
		case !ok:
			t.pc = mqMakeLook
		case wakes:
			t.pc = mqTurnWake
		default:
			*t = mqThread{pc: mqCount, at: t.at}
		}
	case mqBegin:
		t.turns, t.pc = s.turns, mqTurns
	case mqRead:
		t.cell, t.pc = s.cell, mqValue
	case mqValue:
		t.value = s.value
		switch {
		case s.isOver(t):
			t.pc, t.value, t.cell = mqTurns, 0, mqCell{}
		case t.cell.due(t.value) && m.bug != mqNoHelp:
			t.pc = mqHelp
		default:
			t.pc = mqAnnounce
		}
	case mqHelp:
		t.pc = mqRead
		if _, wakes := m.hits(s, t.cell); wakes {
			t.pc = mqHelpWake
		}
	case mqHelpWake:
		m.wake(s)
		t.pc = mqRead
	case mqAnnounce:
		ahead := min(t.token-t.value, mqFar)
		to := t.cell
		if !to.announced || to.ahead(t.value) > ahead || m.bug == mqOverwrites {
			to.announced, to.next = true, (t.value+ahead)%mqRange
		}
		if s.cell != t.cell {
			t.pc = mqRead
			return
		}
		s.cell = to
		t.seq, t.cell, t.pc = to.seq, to, mqAgain
		if m.bug == mqNoSecondLook {
			t.pc = mqSleep
		}
	case mqAgain:
		passed := s.value-t.value >= t.cell.ahead(t.value) && m.bug != mqForgetsTheNearer
		switch t.pc = mqSleep; {
		case s.isOver(t):
			t.pc = mqTurns
		case passed:
			t.pc = mqHelp
			return
		}
		t.value, t.cell = 0, mqCell{}
	case mqTurns:
		if t.pc = mqJudge; m.bug == mqJudgesCountFirst {
			t.seen = s.value
		} else {
			t.seen = s.turns
		}
	case mqJudge:
		turns, value := t.seen, s.value
		if m.bug == mqJudgesCountFirst {
			turns, value = s.turns, t.seen
		}
		switch t.seen = 0; {
		case value >= t.token:
			m.ends(s, t)
		case turns != t.turns:
			if t.came && s.value >= t.token {
				s.wrong = "a wait was cancelled after its token was reached"
			}
			m.ends(s, t)
		default: // the wait is not over, or the counter was set back
			t.pc = mqRead
		}
	case mqSleep:
		if t.pc = mqAsleep; s.cell.seq != t.seq && m.bug != mqSleepsAnyway {
			t.pc = mqTurns
		}
	}
}
