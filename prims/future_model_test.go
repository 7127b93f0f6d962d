//go:build linux

package prims

import (
	"errors"
	"fmt"

	"github.com/shmsync/shmsync/internal/model"
)

const (
	fuKept    = 2 // how many results are kept
	fuRounds  = 4 // the rounds that a model has at most
	fuThreads = 6
)

// The threads. Each thread is a process.
const (
	fuProducer = iota // claims and sets
	fuSetter
	fuWaiter
	fuResetter // resets, and sets the next round
	fuReaper
	fuCheck // the periodic check of the waiter
)

// fuWord is a futureState. The producer in it is the number of a thread, plus 1.
type fuWord struct {
	seq                  uint8
	announced, abandoned bool
	producer             uint8
}

func (w fuWord) over() bool   { return w.seq&1 != 0 }
func (w fuWord) round() uint8 { return w.seq / 2 }

// fuResult is a futureResult. The tag is the number of the round, plus 1. The value is the number
// of the thread that has set the Future, plus 1, or fuDied.
type fuResult struct{ tag, value uint8 }

const fuDied = 99

func (r fuResult) of(round uint8) bool { return r.tag == round+1 }

type fuThread struct {
	pc, ret uint8 // ret is the next step after the step that ends a round
	w       fuWord
	r       fuResult
	round   uint8 // the round in which it waits
	last    uint8 // the round whose result its wait returns
	left    uint8 // how many more rounds it resets
	sets    bool  // it decided a round
}

type fuState struct {
	w       fuWord
	results [fuKept]fuResult
	outcome [fuRounds]uint8 // the result of each round, to find a second result of a round
	life    uint8           // the producer is alive, dead, gone or reaped
	again   bool
	beside  bool // a round has begun although a dead process could still store
	wrong   string
	stopped uint8 // the number of the stopped thread, plus 1
	kills   uint8
	thread  [fuThreads]fuThread
}

// The steps.
const (
	fuIdle uint8 = iota
	fuDone
	fuEndLoad // the first step of fuModel.end, which ends the round if it is decided or its producer is dead
	fuEndSlot
	fuEndAgain
	fuEndDecide
	fuEndSwap
	fuEndWake
	fuClaim
	fuSet
	fuSetSlot
	fuSetAgain
	fuSetDecide
	fuWait
	fuWaitLook
	fuWaitLoad
	fuWaitAnnounce
	fuWaitSleep
	fuAsleep
	fuJudge
	fuJudgeLoad
	fuReset
	fuReapEnd
)

type fuModel struct {
	claim, set, waits bool
	rounds            uint8 // how often the resetter resets
	kills             uint8
	again             bool // a participant with the ID of the dead process may join
	stops             bool
	bug               bug
}

func (m fuModel) explore(b bug) model.Result {
	m.bug = b
	first := fuState{}
	begin := func(on bool, i int, ret uint8) {
		if on {
			first.thread[i] = fuThread{pc: fuEndLoad, ret: ret}
		}
	}
	begin(m.claim, fuProducer, fuClaim)
	begin(m.set, fuSetter, fuSet)
	begin(m.waits, fuWaiter, fuWait)
	begin(m.rounds > 0, fuResetter, fuReset)
	first.thread[fuResetter].left = m.rounds
	if !m.claim {
		first.life = onReaped
	}
	spec := model.Spec[fuState]{Init: []fuState{first}, Next: m.next, Check: m.check, Done: m.done, Show: m.show, Limit: 1 << 23}
	return spec.Explore()
}

func (m *fuModel) show(s *fuState) string {
	str := fmt.Sprintf("word %v, results %v, life %d, stopped %d, steps", s.w, s.results, s.life, s.stopped)
	for i := range s.thread {
		str += fmt.Sprint(" ", s.thread[i].pc)
	}
	return str
}

func (m *fuModel) check(s *fuState) error {
	switch {
	case s.wrong != "":
		return errors.New(s.wrong)
	case s.beside:
		return errors.New("a round began although the dead producer still writes")
	}
	return nil
}

// done reports whether every thread has ended. It ignores a thread that is stopped, and a thread
// that waits for a result that no thread will set.
func (m *fuModel) done(s *fuState) bool {
	decided := s.results[s.w.round()%fuKept].of(s.w.round()) || s.w.over()
	for i := range s.thread {
		t := &s.thread[i]
		switch {
		case s.stopped == uint8(i+1), t.pc == fuIdle, t.pc == fuDone:
		case i == fuProducer && s.life != onAlive:
		case t.pc == fuAsleep && t.round == s.w.round() && !decided && m.nobodySets(s):
		case i == fuResetter && t.pc == fuReset && !s.w.over() && !decided && m.nobodySets(s):
		default:
			return false
		}
	}
	return s.life == onAlive || s.life == onReaped || s.stopped == fuReaper+1
}

// nobodySets reports whether this round stays without a result: no thread will set it, and no death can end it.
func (m *fuModel) nobodySets(s *fuState) bool {
	for _, i := range []int{fuProducer, fuSetter} {
		t := &s.thread[i]
		if t.pc != fuIdle && t.pc != fuDone && s.stopped != uint8(i+1) && (i != fuProducer || s.life == onAlive) {
			return false
		}
	}
	return s.w.producer == 0 || s.stopped == fuProducer+1 && s.life == onAlive
}

func (m *fuModel) next(s *fuState, emit func(model.Step[fuState])) {
	env := func(what string, optional bool, f func(to *fuState)) {
		to := *s
		f(&to)
		emit(model.Step[fuState]{To: to, Label: what, By: "kernel", Optional: optional})
	}
	switch {
	case s.life == onAlive && s.kills < m.kills:
		env("kills the producer", true, func(to *fuState) {
			to.kills++
			to.life, to.thread[fuProducer] = onDead, fuThread{}
			if to.stopped == fuProducer+1 {
				to.stopped = 0
			}
		})
	case s.life == onDead:
		env("ends the producer", false, func(to *fuState) { to.life = onGone })
	case s.life == onGone:
		// While the reaper runs, a run without this step must end, too: no wait may depend on another reaper.
		env("another process reaps the producer", s.stopped != fuReaper+1, func(to *fuState) {
			t := fuThread{pc: fuEndLoad, ret: fuDone}
			for t.pc != fuDone {
				m.step(to, fuCheck, &t)
			}
			m.wake(to)
			to.life = onReaped
		})
	case s.life == onReaped && m.again && !s.again:
		env("a process with the ID of the producer joins", true, func(to *fuState) {
			to.life, to.again = onAlive, true
			to.thread[fuProducer] = fuThread{pc: fuEndLoad, ret: fuClaim}
		})
	}
	if m.stops && s.stopped == 0 {
		for _, i := range []int{fuProducer, fuSetter, fuResetter, fuReaper} {
			if pc := s.thread[i].pc; pc != fuIdle && pc != fuDone {
				env(fmt.Sprintf("stops thread %d for ever", i), true, func(to *fuState) { to.stopped = uint8(i + 1) })
			}
		}
	}
	for i := range s.thread {
		if s.stopped == uint8(i+1) || i == fuProducer && s.life != onAlive {
			continue
		}
		do := func(what string, f func(to *fuState, t *fuThread)) {
			to := *s
			f(&to, &to.thread[i])
			emit(model.Step[fuState]{To: to, Label: what, By: threadNames[i]})
		}
		switch pc := s.thread[i].pc; {
		case i == fuCheck:
			m.stepCheck(s, do)
		case i == fuReaper && pc == fuIdle:
			if s.life == onDead || s.life == onGone {
				do("reaps", func(_ *fuState, t *fuThread) { *t = fuThread{pc: fuEndLoad, ret: fuReapEnd} })
			}
		case pc == fuIdle, pc == fuDone, pc == fuAsleep:
		default:
			do("does", func(to *fuState, t *fuThread) { m.step(to, i, t) })
		}
	}
}

// dead reports whether thread i treats the producer n as dead.
func (m *fuModel) dead(s *fuState, i int, n uint8) bool {
	if n == 0 || int(n-1) == i {
		return false
	}
	if n-1 != fuProducer || s.life == onAlive {
		return n-1 == fuProducer && (m.bug == fuReapByID && i == fuReaper || m.bug == fuReapedAnyways)
	}
	return true
}

// decide stores the result of a round by one CAS.
func (m *fuModel) decide(s *fuState, t *fuThread, value uint8) bool {
	round := t.w.round()
	slot := &s.results[round%fuKept]
	if *slot != t.r && m.bug != fuStores {
		return false
	}
	*slot = fuResult{round + 1, value}
	switch {
	case s.outcome[round] != 0:
		s.wrong = fmt.Sprintf("round %d has two results", round)
	case value == fuDied && s.life == onAlive:
		s.wrong = "a living producer is said to have died"
	}
	s.outcome[round] = value
	return true
}

func (m *fuModel) wake(s *fuState) {
	if t := &s.thread[fuWaiter]; t.pc == fuAsleep {
		t.pc, t.ret = fuEndLoad, fuWaitLoad
	}
}

// call makes a thread first end the round if it can end. The parameter ret is the step after that.
func call(t *fuThread, ret uint8) { t.pc, t.ret, t.r = fuEndLoad, ret, fuResult{} }

func (m *fuModel) step(s *fuState, i int, t *fuThread) {
	switch t.pc {
	case fuEndLoad:
		t.w, t.r = s.w, fuResult{}
		if t.pc = fuEndSlot; t.w.over() || m.bug == fuReapSilent && i == fuReaper {
			t.pc = t.ret
		}
	case fuEndSlot:
		t.r = s.results[t.w.round()%fuKept]
		switch {
		case t.r.of(t.w.round()):
			if t.pc = fuEndSwap; m.bug == fuLookOnce && !t.sets {
				t.pc = t.ret
			}
			if m.bug == fuWakesFirst {
				m.wake(s)
			}
		case m.dead(s, i, t.w.producer):
			if t.pc = fuEndAgain; m.bug == fuNoRecheck {
				t.pc = fuEndDecide
			}
		default:
			t.pc = t.ret
		}
	case fuEndAgain:
		if t.pc = fuEndDecide; s.w != t.w {
			t.pc = fuEndLoad
		}
	case fuEndDecide:
		if !m.decide(s, t, fuDied) {
			t.pc = fuEndLoad
			return
		}
		t.pc, t.r = fuEndSwap, fuResult{t.w.round() + 1, fuDied}
	case fuEndSwap:
		if s.w != t.w && !(m.bug == fuForgets && s.w.seq == t.w.seq) {
			t.pc = fuEndLoad
			return
		}
		announced := t.w.announced
		s.w = fuWord{seq: t.w.seq + 1, abandoned: t.r.value == fuDied, producer: t.w.producer}
		t.w = s.w
		if t.pc = t.ret; announced && m.bug != fuWakesFirst {
			t.pc = fuEndWake
		}
	case fuEndWake:
		m.wake(s)
		t.pc = t.ret
	case fuClaim:
		switch to := t.w; {
		case t.w.over() || t.w.producer != 0:
			*t = fuThread{pc: fuDone}
		case s.w != t.w:
			call(t, fuClaim)
		default:
			to.producer = uint8(i + 1)
			s.w = to
			call(t, fuSet)
		}
	case fuSet:
		if t.pc = fuSetSlot; t.w.over() {
			m.setDone(t)
		}
	case fuSetSlot:
		t.r = s.results[t.w.round()%fuKept]
		switch {
		case t.r.of(t.w.round()):
			call(t, fuSet)
		case m.bug == fuNoRecheck:
			t.pc = fuSetDecide
		default:
			t.pc = fuSetAgain
		}
	case fuSetAgain:
		if t.pc = fuSetDecide; s.w.round() != t.w.round() {
			call(t, fuSet)
		}
	case fuSetDecide:
		if !m.decide(s, t, uint8(i+1)) {
			call(t, fuSet)
			return
		}
		t.sets = true
		call(t, fuDone)
		if t.left > 0 {
			t.ret = fuReset
		}
	case fuReset:
		to := fuWord{seq: t.w.seq + 1}
		switch {
		case !t.w.over(): // the next step loads the word again
			call(t, fuReset)
		case t.w.abandoned && (s.life == onAlive || s.life == onDead) && !s.again && m.bug != fuResetsBeside:
			call(t, fuReset)
		case s.w != t.w:
			call(t, fuReset)
		default:
			s.beside = s.w.abandoned && s.life == onDead && !s.again
			s.w = to
			t.left--
			t.sets = false
			call(t, fuSet)
		}
	case fuWait, fuWaitLook, fuWaitLoad, fuWaitAnnounce, fuWaitSleep, fuJudge, fuJudgeLoad:
		m.stepWaiter(s, t)
	case fuReapEnd:
		if m.bug != fuReapSilent {
			m.wake(s) // in place of the wake that the dead process did not make
		}
		if s.life == onGone && !(s.w.producer == fuProducer+1 && !s.w.over()) {
			s.life = onReaped
		}
		*t = fuThread{}
	}
}

// setDone ends a call of Set. If the thread still has rounds to reset, it goes on with a reset.
func (m *fuModel) setDone(t *fuThread) {
	t.pc = fuDone
	if t.left > 0 {
		call(t, fuReset)
	}
}

func (m *fuModel) stepWaiter(s *fuState, t *fuThread) {
	switch t.pc {
	case fuWait:
		t.round, t.last = t.w.round(), t.w.round()
		if t.pc = fuWaitLook; t.w.over() {
			t.pc = fuJudge
		}
	case fuWaitLook:
		call(t, fuWaitLoad)
	case fuWaitLoad:
		switch t.w = s.w; {
		case t.w.seq != 2*t.round:
			t.pc = fuJudge
		case t.w.announced:
			t.pc = fuWaitSleep
		default:
			t.pc = fuWaitAnnounce
		}
	case fuWaitAnnounce:
		if s.w != t.w {
			t.pc = fuWaitLoad
			return
		}
		s.w.announced = true
		t.pc = fuWaitSleep
	case fuWaitSleep:
		if t.pc = fuAsleep; s.w.seq != 2*t.round && m.bug != fuSleepsAnyway {
			t.pc = fuWaitLook
		}
	case fuJudge:
		r := s.results[t.last%fuKept]
		if !r.of(t.last) {
			t.pc = fuJudgeLoad
			return
		}
		switch {
		case r.tag == 0 || s.outcome[r.tag-1] != r.value:
			s.wrong = "a wait ended with a result that no round had"
		case r.tag-1 != t.round && s.w.round() < t.round+fuKept:
			s.wrong = "a wait ended with the result of another round"
		}
		*t = fuThread{pc: fuDone}
	case fuJudgeLoad:
		last := s.w.round()
		if !s.w.over() {
			last--
		}
		if last == t.last {
			s.wrong = "a result is not there"
		}
		t.pc, t.last = fuJudge, last
	}
}
