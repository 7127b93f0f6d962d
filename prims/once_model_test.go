//go:build linux

package prims

import (
	"errors"
	"fmt"

	"github.com/shmsync/shmsync/internal/model"
)

const (
	onProcs   = 3
	onThreads = onProcs + 3 // the callers, two reapers, and the periodic check of the waiters
)

// onWord is a onceWord. The runner in it is the number of a process, plus 1.
type onWord struct {
	announced, done bool
	runner, turn    uint8
}

// runs stands for onceWord.runs.
func (w onWord) runs(began onWord) bool {
	return !w.done && w.runner == began.runner && w.turn == began.turn
}

// low returns w without its turn, that is, the half of the word on which a waiter sleeps.
func (w onWord) low() onWord { w.turn = 0; return w }

// The stages of the life and death of a process.
const (
	onAlive = iota
	onDead  // none of its threads runs any more, but a system call may still write
	onGone
	onReaped // its slot is free, so a process with the same ID may join
)

type onThread struct {
	pc    uint8
	w     onWord // the word that the thread has read
	began onWord // the word with which its turn began
	of    uint8  // the number of the process that a reaper reaps
	again bool   // the process with that number has joined with the ID of a dead one
}

type onState struct {
	w       onWord
	life    [onProcs]uint8
	again   [onProcs]bool // a second process with this ID has joined
	wrote   [onProcs]bool // the process was killed in its function, and may still write
	stopped uint8         // the number of the stopped thread, plus 1
	kills   uint8
	died    bool // the first reaper has died, so the second reaper makes the wakes that the first one still owed
	thread  [onThreads]onThread
}

// The steps.
const (
	onIdle uint8 = iota
	onLoad
	onTake
	onAnnounce
	onSleep
	onAsleep
	onRun
	onFinishLoad
	onFinish
	onWake
	onEnded
	onReapLoad
	onReapSwap
	onReapWake
	onReapEnd
	onCheckWake
)

// onModel is a Once with processes that each call Do.
type onModel struct {
	callers int
	kills   uint8
	stops   bool
	cancel  bool
	reaper  bool // the first reaper may die
	bug     bug
}

func (m onModel) explore(b bug) model.Result {
	m.bug = b
	first := onState{}
	for i := range onProcs {
		first.thread[i].pc = onLoad
		if i >= m.callers {
			first.thread[i].pc, first.life[i], first.again[i] = onIdle, onReaped, true
		}
	}
	spec := model.Spec[onState]{Init: []onState{first}, Next: m.next, Check: m.check, Done: m.done, Show: m.show, Limit: 1 << 22}
	return spec.Explore()
}

const (
	onFirstReaper = onProcs
	onCheck       = onProcs + 2
)

func (m *onModel) show(s *onState) string {
	str := fmt.Sprintf("word %v, lives %v, stopped %d, steps", s.w, s.life, s.stopped)
	for i := range s.thread {
		str += fmt.Sprint(" ", s.thread[i].pc)
	}
	return str
}

// check requires that only one function runs at a time, that none runs while a dead process can
// still store, and that none runs after a function has returned. Do must not return before a
// function has returned.
func (m *onModel) check(s *onState) error {
	running := 0
	for i := range onProcs {
		t := &s.thread[i]
		switch {
		case s.life[i] != onAlive:
			if s.life[i] == onDead && s.wrote[i] {
				running++
			}
		case t.pc == onRun:
			running++
			if s.w.done {
				return errors.New("a function runs after one has returned")
			}
		case t.pc == onEnded && !s.w.done:
			return errors.New("Do has returned, and no function has")
		}
	}
	if running > 1 {
		return errors.New("two functions run, or a dead one still writes")
	}
	return nil
}

// held reports whether a process that is stopped for ever runs its function. Such a process is a
// visible holder, for which others may wait.
func (m *onModel) held(s *onState) bool {
	return s.stopped != 0 && s.stopped <= onProcs && !s.w.done && s.w.runner == s.stopped && s.life[s.stopped-1] == onAlive
}

func (m *onModel) done(s *onState) bool {
	for i := range s.thread {
		t := &s.thread[i]
		switch {
		case s.stopped == uint8(i+1):
		case i >= onProcs:
			if t.pc != onIdle {
				return false
			}
		case s.life[i] == onReaped, t.pc == onEnded, t.pc == onAsleep && m.held(s):
		default:
			return false
		}
	}
	return !s.died
}

func (m *onModel) next(s *onState, emit func(model.Step[onState])) {
	env := func(what string, f func(to *onState)) {
		to := *s
		f(&to)
		emit(model.Step[onState]{To: to, Label: what, By: "kernel", Optional: true})
	}
	for i := range onProcs {
		t := &s.thread[i]
		switch {
		case s.life[i] == onAlive && s.kills < m.kills:
			env(fmt.Sprintf("kills process %d", i), func(to *onState) {
				to.kills++
				to.life[i], to.wrote[i] = onDead, t.pc == onRun
				to.thread[i] = onThread{}
				if to.stopped == uint8(i+1) {
					to.stopped = 0
				}
			})
		case s.life[i] == onDead:
			to := *s
			to.life[i] = onGone
			emit(model.Step[onState]{To: to, Label: fmt.Sprintf("ends process %d", i), By: "kernel"})
		case s.life[i] == onReaped && !s.again[i]:
			env(fmt.Sprintf("a process with ID %d joins", i), func(to *onState) {
				to.life[i], to.again[i] = onAlive, true
				to.thread[i] = onThread{pc: onLoad}
			})
		}
	}
	if m.stops && s.stopped == 0 {
		for _, i := range []int{0, onFirstReaper} { // the callers are alike, so it is enough to stop one of them
			env(fmt.Sprintf("stops thread %d for ever", i), func(to *onState) { to.stopped = uint8(i + 1) })
		}
	}
	if m.reaper && !s.died && s.kills < m.kills && s.thread[onFirstReaper].pc != onIdle {
		env("kills the first reaper", func(to *onState) {
			to.kills++
			to.died, to.thread[onFirstReaper] = true, onThread{}
		})
	}
	for i := range s.thread {
		if s.stopped != uint8(i+1) && (i >= onProcs || s.life[i] == onAlive) {
			m.step(s, i, emit)
		}
	}
}

func (m *onModel) step(s *onState, i int, emit func(model.Step[onState])) {
	do := func(what string, f func(to *onState, t *onThread)) {
		to := *s
		f(&to, &to.thread[i])
		emit(model.Step[onState]{To: to, Label: what, By: threadNames[i]})
	}
	t := &s.thread[i]
	switch {
	case i == onCheck:
		m.stepCheck(s, do)
	case i >= onFirstReaper:
		m.stepReaper(s, i, do)
	case t.pc == onAsleep:
		if m.cancel {
			to := *s
			to.thread[i] = onThread{pc: onLoad} // the thread makes its next call
			emit(model.Step[onState]{To: to, Label: "its context ends", By: threadNames[i], Optional: true})
		}
	case t.pc != onEnded:
		do("does", func(to *onState, t *onThread) { m.call(to, i, t) })
	}
}

// free reports whether a caller that has read w may take the turn.
func (m *onModel) free(s *onState, w onWord) bool {
	if w.runner == 0 {
		return true
	}
	l := s.life[w.runner-1]
	return l == onGone || l == onReaped || l == onDead && m.bug == onTakesFromDead
}

func (m *onModel) swap(s *onState, from, to onWord) bool {
	now := s.w
	if m.bug == onNoTurn {
		now.turn, from.turn = 0, 0
	}
	if now != from {
		return false
	}
	s.w = to
	return true
}

func (m *onModel) wakeAll(s *onState) {
	for i := range onProcs {
		if s.thread[i].pc == onAsleep {
			s.thread[i] = onThread{pc: onLoad}
			if m.bug == onWokenIsDone {
				s.thread[i].pc = onEnded
			}
		}
	}
}

// call makes a step of Do.
func (m *onModel) call(s *onState, i int, t *onThread) {
	switch t.pc {
	case onLoad:
		switch t.w = s.w; {
		case t.w.done:
			*t = onThread{pc: onEnded}
		case m.free(s, t.w):
			t.pc = onTake
		case t.w.announced:
			t.pc = onSleep
		default:
			t.pc = onAnnounce
		}
	case onTake:
		to := onWord{announced: t.w.announced && m.bug != onTakeForgets, runner: uint8(i + 1), turn: t.w.turn + 1}
		if t.pc = onLoad; m.swap(s, t.w, to) {
			*t = onThread{pc: onRun, began: to}
		}
	case onAnnounce:
		to := t.w
		to.announced = true
		if t.pc = onLoad; m.swap(s, t.w, to) {
			t.pc, t.w = onSleep, to
		}
	case onSleep:
		if t.pc = onLoad; s.w.low() == t.w.low() || m.bug == onSleepsAnyway {
			*t = onThread{pc: onAsleep}
		}
	case onRun:
		t.pc = onFinishLoad
	case onFinishLoad:
		if t.w = s.w; !t.w.runs(t.began) {
			*t = onThread{pc: onEnded}
			return
		}
		t.pc = onFinish
		if m.bug == onWakesFirst {
			m.wakeAll(s)
		}
	case onFinish:
		to := onWord{announced: t.w.announced, done: true, turn: t.w.turn}
		if m.bug == onStores {
			s.w = to
		} else if !m.swap(s, t.w, to) {
			t.pc = onFinishLoad
			return
		}
		owes := t.w.announced && m.bug != onWakesFirst
		*t = onThread{pc: onEnded}
		if owes {
			t.pc = onWake
		}
	case onWake:
		m.wakeAll(s)
		*t = onThread{pc: onEnded}
	}
}

// stepReaper makes a step of a process that reaps.
func (m *onModel) stepReaper(s *onState, i int, do func(string, func(*onState, *onThread))) {
	t := &s.thread[i]
	switch t.pc {
	case onIdle:
		if i != onFirstReaper && s.died {
			do("reaps the first reaper", func(to *onState, _ *onThread) {
				to.died = false
				if m.bug != onReapSilent {
					m.wakeAll(to)
				}
			})
		}
		for p := range onProcs {
			if s.life[p] == onDead || s.life[p] == onGone {
				do(fmt.Sprintf("reaps process %d", p), func(_ *onState, t *onThread) { t.pc, t.of, t.again = onReapLoad, uint8(p), s.again[p] })
			}
		}
	case onReapLoad:
		do("reads the word", func(to *onState, t *onThread) {
			t.w = to.w
			switch mine := t.w.runner == t.of+1 && !t.w.done; {
			case mine && m.free(to, t.w):
				t.pc = onReapSwap
			default:
				t.pc = onReapWake
			}
		})
	case onReapSwap:
		do("makes the word nobody's", func(to *onState, t *onThread) {
			now := t.w
			now.runner = 0
			if m.bug == onReapWakesFirst {
				m.wakeAll(to)
				t.pc = onReapEnd
				if m.swap(to, t.w, now) {
					return
				}
			}
			if t.pc = onReapLoad; m.swap(to, t.w, now) {
				t.pc = onReapWake
			}
		})
	case onReapWake:
		do("wakes", func(to *onState, t *onThread) {
			if m.bug != onReapSilent && m.bug != onReapWakesFirst {
				m.wakeAll(to)
			}
			t.pc = onReapEnd
		})
	case onReapEnd:
		do("frees the slot", func(to *onState, t *onThread) {
			if to.life[t.of] == onGone && t.again == to.again[t.of] && !(to.w.runner == t.of+1 && !to.w.done) {
				to.life[t.of] = onReaped
			}
			*t = onThread{}
		})
	}
}

// stepCheck models a periodic check. The check makes a step only if it finds something that another process has left
// undone. In a model without stops the check makes no step, because there the protocol must not rely on it.
func (m *onModel) stepCheck(s *onState, do func(string, func(*onState, *onThread))) {
	if !m.stops {
		return
	}
	sleeps := false
	for i := range onProcs {
		sleeps = sleeps || s.thread[i].pc == onAsleep && s.stopped != uint8(i+1)
	}
	if sleeps && m.bug != onNoCheck && (s.w.done || m.free(s, s.w)) {
		do("finds what has come", func(to *onState, _ *onThread) { m.wakeAll(to) })
	}
}
