//go:build linux

package prims

import (
	"errors"
	"fmt"

	"github.com/shmsync/shmsync/internal/model"
)

// cwWord is the commit word. This model has only the sole form.
type cwWord struct {
	count, ticket uint8 // ticket: the ticket of a zero of which the waiters have not been told; otherwise 0
	watched       bool
}

type cwEvents struct{ ticket, seq uint8 }

// cwThread is a process that changes the counter, a waiter, or the periodic check.
type cwThread struct {
	pc     uint8
	left   uint8 // number of calls that are still to come
	add    bool
	c      cwWord
	e      cwEvents
	to     uint8 // ticket of the zero that the thread makes
	began  uint8 // ticket of the events when the wait began
	then   uint8 // the step that follows after the thread has told the waiters
	seen   bool  // the counter was 0 during the wait
	missed bool  // the counter became 0 after the waiter had made the word watched
}

const cwThreads = 5

type cwState struct {
	commit  cwWord
	events  cwEvents
	tickets uint8
	stopped bool // thread 0 is stopped
	looked  uint8
	thread  [cwThreads]cwThread
}

// The steps of a thread.
const (
	cwIdle uint8 = iota
	cwLoad
	cwTicket
	cwSwap
	cwTellEvents
	cwTellLook
	cwTellSwap
	cwTellCommit
	cwWake
	cwBegin
	cwRead
	cwLook
	cwWatch
	cwReread
	cwSleep
	cwAsleep
	cwCheckEvents
	cwEnded
)

// cwModel is the model of a counter that processes change, and for which waiters wait.
type cwModel struct {
	calls   []uint8 // calls of each process that changes the counter
	waiters int
	stops   bool
	bug     bug
}

func (m cwModel) explore(b bug) model.Result {
	m.bug = b
	first := cwState{commit: cwWord{count: 1}}
	for i := range first.thread {
		switch {
		case i < len(m.calls):
			first.thread[i].left = m.calls[i]
		case i < len(m.calls)+m.waiters:
			first.thread[i].pc = cwBegin
		case i > len(m.calls)+m.waiters || !m.stops: // a check is needed only if a process may stop before a wake
			first.thread[i].pc = cwEnded
		}
	}
	spec := model.Spec[cwState]{Init: []cwState{first}, Next: m.next, Check: m.check, Done: m.done, Show: m.show, Limit: 1 << 23}
	return spec.Explore()
}

func (m *cwModel) checker() int { return len(m.calls) + m.waiters }

func (m *cwModel) show(s *cwState) string {
	return fmt.Sprintf("commit %+v, events %+v, threads %+v", s.commit, s.events, s.thread)
}

func (m *cwModel) check(s *cwState) error {
	for i := len(m.calls); i < m.checker(); i++ {
		if t := &s.thread[i]; t.pc == cwEnded && !t.seen {
			return errors.New("a wait has ended without a zero")
		}
	}
	return nil
}

// done reports whether the model may end in this state. A waiter may sleep for ever if the counter
// has not become 0.
func (m *cwModel) done(s *cwState) bool {
	for i := range s.thread {
		t := &s.thread[i]
		switch {
		case i == 0 && s.stopped, t.pc == cwIdle, t.pc == cwEnded:
		case t.pc == cwAsleep && !t.missed && s.commit.count != 0:
		default:
			return false
		}
	}
	return true
}

func (m *cwModel) next(s *cwState, emit func(model.Step[cwState])) {
	if m.stops && !s.stopped {
		to := *s
		to.stopped = true
		emit(model.Step[cwState]{To: to, Label: "process 0 stops for ever", By: "kernel", Optional: true})
	}
	for i := range s.thread {
		if i != 0 || !s.stopped {
			m.step(s, i, emit)
		}
	}
}

func (m *cwModel) step(s *cwState, i int, emit func(model.Step[cwState])) {
	do := func(what string, f func(to *cwState, t *cwThread)) {
		to := *s
		f(&to, &to.thread[i])
		emit(model.Step[cwState]{To: to, Label: what, By: threadNames[i], Optional: s.thread[i].pc == cwIdle && i != m.checker()})
	}
	t := &s.thread[i]
	switch t.pc {
	case cwIdle:
		if i == m.checker() {
			m.stepCheck(s, do)
			return
		}
		if t.left == 0 {
			return
		}
		do("calls Add", func(_ *cwState, t *cwThread) { t.left, t.add, t.pc = t.left-1, true, cwLoad })
		if s.commit.count > 0 {
			do("calls Done", func(_ *cwState, t *cwThread) { t.left, t.add, t.pc = t.left-1, false, cwLoad })
		}
	case cwLoad, cwTicket, cwSwap:
		do("changes the counter", func(to *cwState, t *cwThread) { m.change(to, t) })
	case cwTellEvents, cwTellLook, cwTellSwap, cwTellCommit, cwWake:
		do("tells", func(to *cwState, t *cwThread) { m.tell(to, t) })
	case cwBegin, cwRead, cwLook, cwWatch, cwReread, cwSleep:
		do("waits", func(to *cwState, t *cwThread) { m.wait(to, t) })
	case cwCheckEvents:
		do("checks", func(to *cwState, t *cwThread) {
			to.looked = to.events.seq
			m.wakeAll(to)
			*t = cwThread{}
		})
	}
}

// stepCheck is the periodic check of a waiter. It has a step only where a process has left something undone
// that the check finishes.
func (m *cwModel) stepCheck(s *cwState, do func(string, func(*cwState, *cwThread))) {
	switch {
	case s.commit.count == 0 && s.commit.ticket != 0:
		do("finds an untold zero", func(to *cwState, t *cwThread) { t.c, t.pc, t.then = to.commit, cwTellEvents, cwCheckEvents })
	case s.looked != s.events.seq, s.commit.count == 0 && m.sleeps(s):
		do("finds what has come", func(_ *cwState, t *cwThread) { t.pc = cwCheckEvents })
	}
}

func (m *cwModel) sleeps(s *cwState) bool {
	for i := range s.thread {
		if s.thread[i].pc == cwAsleep {
			return true
		}
	}
	return false
}

func (m *cwModel) change(s *cwState, t *cwThread) {
	switch t.pc {
	case cwLoad:
		t.c, t.pc = s.commit, cwSwap
		switch {
		case t.c.count == 0 && t.c.ticket != 0 && t.add && m.bug != cwNoTell:
			t.pc, t.then = cwTellEvents, cwLoad
		case !t.add && t.c.count == 0:
			*t = cwThread{left: t.left} // the call panics
		case !t.add && t.c.count == 1 && t.c.watched && m.bug != cwPlain:
			t.pc = cwTicket
		}
	case cwTicket:
		s.tickets++
		if t.to, t.pc = s.tickets, cwSwap; m.bug == cwSameAgain {
			t.to = 1
		}
	case cwSwap:
		if s.commit != t.c {
			*t = cwThread{left: t.left, add: t.add, pc: cwLoad}
			return
		}
		switch {
		case t.add:
			s.commit = cwWord{count: t.c.count + 1, watched: t.c.watched}
		case t.c.count > 1:
			s.commit.count--
		case !t.c.watched || m.bug == cwPlain:
			s.commit = cwWord{}
			m.isZero(s)
			if t.c.watched {
				s.events.seq++
				*t = cwThread{left: t.left, pc: cwWake}
				return
			}
		default:
			s.commit = cwWord{ticket: t.to, watched: true}
			m.isZero(s)
			*t = cwThread{left: t.left, c: s.commit, pc: cwTellEvents}
			if m.bug == cwWakeFirst {
				m.wakeAll(s)
			}
			return
		}
		*t = cwThread{left: t.left}
	}
}

// isZero records that the counter has become 0.
func (m *cwModel) isZero(s *cwState) {
	for i := len(m.calls); i < m.checker(); i++ {
		t := &s.thread[i]
		t.seen = t.seen || t.pc != cwBegin
		t.missed = t.missed || t.pc == cwSleep || t.pc == cwAsleep
	}
}

func (m *cwModel) wakeAll(s *cwState) {
	for i := range s.thread {
		if s.thread[i].pc == cwAsleep {
			s.thread[i].pc = cwRead
		}
	}
}

func (m *cwModel) tell(s *cwState, t *cwThread) {
	told := func() { *t = cwThread{left: t.left, add: t.add, pc: t.then} }
	switch t.pc {
	case cwTellEvents:
		if t.e, t.pc = s.events, cwTellLook; t.e.ticket == t.c.ticket {
			t.pc = cwTellCommit
		}
	case cwTellLook:
		if t.pc = cwTellSwap; s.commit != t.c {
			told()
		}
	case cwTellSwap:
		if t.pc = cwTellEvents; s.events == t.e {
			s.events, t.pc = cwEvents{t.c.ticket, s.events.seq + 1}, cwTellCommit
		}
	case cwTellCommit:
		if s.commit != t.c {
			told()
			return
		}
		s.commit = cwWord{}
		if t.pc = cwWake; m.bug == cwWakeFirst {
			told()
		}
	case cwWake:
		m.wakeAll(s)
		told()
	}
}

func (m *cwModel) wait(s *cwState, t *cwThread) {
	switch t.pc {
	case cwBegin:
		t.began, t.pc, t.seen = s.events.ticket, cwRead, s.commit.count == 0
	case cwRead:
		t.e, t.pc = s.events, cwLook
	case cwLook:
		t.c = s.commit
		switch {
		case t.c.count == 0, t.e.ticket != t.began && m.bug != cwNoTicket:
			*t = cwThread{pc: cwEnded, seen: t.seen || t.c.count == 0}
		case t.c.watched:
			t.pc = cwSleep
		default:
			t.pc = cwWatch
		}
	case cwWatch:
		if t.pc = cwRead; s.commit == t.c {
			s.commit.watched = true
			if t.pc = cwSleep; m.bug == cwLateRead {
				t.pc = cwReread
			}
		}
	case cwReread:
		t.e, t.pc = s.events, cwSleep
	case cwSleep:
		if t.pc = cwRead; s.events.seq == t.e.seq {
			t.pc = cwAsleep
		}
	}
}
