//go:build linux

package prims

import (
	"errors"
	"fmt"

	"github.com/shmsync/shmsync/internal/model"
)

const meThreads = 4

// meWord is an eventState.
type meWord struct {
	seq       uint8
	announced bool
}

func (w meWord) set() bool { return w.seq&1 != 0 }

// meThread is a goroutine in a process of its own. It also does the periodic check of that process.
type meThread struct {
	pc     uint8
	w      meWord
	at     uint8 // how many operations it has finished
	began  uint8 // the sequence at which its wait began
	seq    uint8 // the sequence on which it sleeps
	looked uint8 // the sequence at its last periodic check, plus 1
	checks bool  // the periodic check is about to wake the waiters
	dead   bool
}

type meState struct {
	w       meWord
	wrong   string
	stopped uint8 // 0, or the number of the stopped thread plus 1
	kills   uint8
	owes    bool // a process has died and no reaper has woken the waiters
	thread  [meThreads]meThread
}

// The steps of a thread.
const (
	meIdle uint8 = iota
	meEnded
	meTurn
	meSwap
	meWake
	meWait
	meLook
	meAnnounce
	meSleep
	meAsleep
)

// meModel is the model of a manual-reset Event. Each thread has a string of operations: S sets and R
// resets. A string of one small letter is a wait: s waits for the set, r waits for the reset.
type meModel struct {
	threads []string
	kills   uint8
	stops   bool
	cancel  bool
	bug     bug
}

func (m meModel) explore(b bug) model.Result {
	m.bug = b
	var first []meState
	for _, looked := range []uint8{0, 1} { // 1: a periodic check has seen the first sequence
		for seq := range uint8(2) {
			s := meState{w: meWord{seq: seq}}
			for i, ops := range m.threads {
				t := &s.thread[i]
				if t.pc, t.looked = meTurn, looked*(seq+1); ops == "s" || ops == "r" {
					t.pc = meWait
				}
			}
			first = append(first, s)
		}
	}
	spec := model.Spec[meState]{Init: first, Next: m.next, Check: m.check, Done: m.done, Show: m.show, Limit: 1 << 22}
	return spec.Explore()
}

func (m *meModel) show(s *meState) string { return fmt.Sprintf("%+v", *s) }

func (m *meModel) check(s *meState) error {
	if s.wrong != "" {
		return errors.New(s.wrong)
	}
	return nil
}

// done reports whether every thread has ended. It ignores a thread that is dead or stopped, and a thread that waits
// if no thread has set or reset the Event since the wait began.
func (m *meModel) done(s *meState) bool {
	for i := range m.threads {
		t := &s.thread[i]
		switch {
		case s.stopped == uint8(i+1), t.dead, t.pc == meEnded:
		case t.pc == meAsleep && t.began == s.w.seq:
		default:
			return false
		}
	}
	return true
}

func (m *meModel) next(s *meState, emit func(model.Step[meState])) {
	env := func(what string, optional bool, f func(to *meState)) {
		to := *s
		f(&to)
		emit(model.Step[meState]{To: to, Label: what, By: "kernel", Optional: optional})
	}
	if s.owes {
		env("reaps", false, func(to *meState) {
			to.owes = false
			if m.bug != meReapSilent {
				m.wake(to)
			}
		})
	}
	for i := range m.threads {
		t := &s.thread[i]
		if s.stopped == uint8(i+1) || t.dead || t.pc == meEnded {
			continue
		}
		if s.kills < m.kills {
			env(fmt.Sprintf("kills thread %d", i), true, func(to *meState) {
				to.kills++
				to.owes, to.thread[i] = true, meThread{dead: true}
			})
		}
		if m.stops && s.stopped == 0 {
			env(fmt.Sprintf("stops thread %d for ever", i), true, func(to *meState) { to.stopped = uint8(i + 1) })
		}
		if m.cancel && t.pc == meAsleep {
			env(fmt.Sprintf("ends the context of thread %d", i), true, func(to *meState) { to.thread[i].pc = meEnded })
		}
		do := func(what string, f func(to *meState, t *meThread)) {
			to := *s
			f(&to, &to.thread[i])
			emit(model.Step[meState]{To: to, Label: what, By: threadNames[i]})
		}
		if t.pc != meAsleep {
			do("does", func(to *meState, t *meThread) {
				if m.step(to, i, t); t.pc != meSwap && t.pc != meAnnounce {
					t.w = meWord{} // no step reads it again
				}
			})
		}
		m.stepCheck(s, t, do)
	}
}

// stepCheck is a periodic check that wakes a waiter. Only a model with stops has this step. The other models show that
// without stops no wait depends on the check.
func (m *meModel) stepCheck(s *meState, t *meThread, do func(string, func(*meState, *meThread))) {
	switch {
	case !m.stops || m.bug == meNoCheck:
	case t.checks:
		do("wakes what its check has found", func(to *meState, t *meThread) {
			t.checks = false
			m.wake(to)
		})
	case t.pc == meAsleep && (t.looked != s.w.seq+1 && m.bug != meChecksAnnounced || !s.w.announced):
		do("checks", func(to *meState, t *meThread) { t.looked, t.checks = to.w.seq+1, true })
	}
}

func (m *meModel) wake(s *meState) {
	for i := range s.thread {
		if t := &s.thread[i]; t.pc == meAsleep {
			if t.pc = meLook; m.bug == meWokenIsDone {
				m.ends(s, t)
			}
		}
	}
}

// ends makes a wait end.
func (m *meModel) ends(s *meState, t *meThread) {
	if t.pc = meEnded; s.w.seq == t.began {
		s.wrong = "a wait has ended, and nobody has turned the Event"
	}
}

func (m *meModel) step(s *meState, i int, t *meThread) {
	switch ops := m.threads[i]; t.pc {
	case meTurn:
		t.w = s.w
		switch {
		case int(t.at) == len(ops):
			*t = meThread{pc: meEnded}
		case t.w.set() == (ops[t.at] == 'S'):
			t.at++
		default:
			if t.pc = meSwap; m.bug == meWakesFirst && t.w.announced {
				m.wake(s)
			}
		}
	case meSwap:
		if s.w != t.w && !(m.bug == meForgets && s.w.seq == t.w.seq) {
			t.pc = meTurn
			return
		}
		s.w = meWord{seq: t.w.seq + 1}
		t.at++
		if t.pc = meTurn; t.w.announced && m.bug != meWakesFirst && m.bug != meSilent {
			t.pc = meWake
		}
	case meWake:
		m.wake(s)
		t.pc = meTurn
	case meWait:
		t.w = s.w
		t.began, t.seq = s.w.seq, s.w.seq
		if t.pc = meLook; t.w.set() == (ops == "s") {
			t.pc = meEnded
		}
	case meLook:
		switch t.w = s.w; {
		case m.bug == meParity && t.w.set() == (ops == "s"), m.bug != meParity && t.w.seq != t.seq:
			m.ends(s, t)
		case t.w.announced:
			t.pc, t.seq = meSleep, t.w.seq
		default:
			t.pc, t.seq = meAnnounce, t.w.seq
		}
	case meAnnounce:
		if s.w != t.w {
			t.pc = meLook
			return
		}
		s.w.announced = true
		t.pc = meSleep
	case meSleep:
		if t.pc = meAsleep; s.w.seq != t.seq && m.bug != meSleepsAnyway {
			t.pc = meLook
		}
	}
}
