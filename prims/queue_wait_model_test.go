//go:build linux

package prims

import (
	"errors"
	"fmt"

	"github.com/shmsync/shmsync/internal/model"
)

// lineModel models calls that wait for items of a Queue: the announcement, the sleep, and the wakes. The ring is only
// a number of items here, which changes in one step; ringModel models the ring itself. Waits for room are the same,
// with Put and Get exchanged. Each thread puts, gets, or shuts the queue down, and is a process of its own. At any
// step, even in its sleep, one thread may be killed and one thread may be stopped for ever.
type lineModel struct {
	puts, gets int
	shutdown   bool
	cancel     bool // contexts of waits may end
	kills      uint8
	stops      bool
	bug        bug
}

const lineThreads = 5

// lineWord models a park.Word.
type lineWord struct {
	announced bool
	sequence  uint8
}

type lineThread struct {
	pc         uint8
	word       lineWord // the value that the thread has read from the wake word, to sleep on or to change
	announced  bool     // the thread has announced itself since its last sleep
	slept      bool
	sawStopped bool
	canceled   bool
}

type lineState struct {
	items   uint8
	stopped bool // the queue was shut down
	word    lineWord
	asleep  [lineThreads]uint8 // the sleepers, as thread + 1, in the order of the kernel's queue
	halted  uint8              // the thread that is stopped for ever, plus 1
	kills   uint8
	owed    bool // a dead thread has not been reaped yet
	thread  [lineThreads]lineThread
}

// The steps.
const (
	lineIdle uint8 = iota
	linePut
	lineLook
	lineBump
	lineDeliver
	lineFlag
	lineTry
	lineAnnounce
	lineSleep
	lineAsleep
	linePass
	linePassLook
	lineShut
	lineShutBump
	lineShutWake
	lineEnded
)

func (m lineModel) explore(b bug) model.Result {
	m.bug = b
	first := lineState{}
	for i := range lineThreads {
		switch {
		case i < m.puts:
			first.thread[i].pc = linePut
			if b == lineLooksFirst {
				first.thread[i].pc = lineLook
			}
		case i < m.puts+m.gets:
			first.thread[i].pc = lineFlag
		case i == m.puts+m.gets && m.shutdown:
			first.thread[i].pc = lineShut
		default:
			first.thread[i].pc = lineEnded
		}
	}
	spec := model.Spec[lineState]{Init: []lineState{first}, Next: m.next, Check: m.check, Done: m.done, Show: m.show, Limit: 1 << 23}
	return spec.Explore()
}

func (m *lineModel) isGet(i int) bool { return i >= m.puts && i < m.puts+m.gets }

func (m *lineModel) show(s *lineState) string {
	str := fmt.Sprintf("items %d, stopped %v, word %v, asleep %v, halted %d, steps", s.items, s.stopped, s.word, s.asleep, s.halted)
	for i := range s.thread {
		str += fmt.Sprint(" ", s.thread[i].pc)
	}
	return str
}

func (m *lineModel) check(s *lineState) error {
	if s.items > uint8(m.puts) {
		return errors.New("an item is there twice")
	}
	return nil
}

// done reports whether all calls have returned, except those that wait while there is no item.
func (m *lineModel) done(s *lineState) bool {
	for i := range s.thread {
		switch s.thread[i].pc {
		case lineEnded:
		case lineAsleep:
			if s.halted != uint8(i+1) && (s.items > 0 || s.stopped) {
				return false
			}
		default:
			if s.halted != uint8(i+1) {
				return false
			}
		}
	}
	return !s.owed
}

func (m *lineModel) next(s *lineState, emit func(model.Step[lineState])) {
	env := func(i int, what string, f func(to *lineState)) {
		to := *s
		f(&to)
		emit(model.Step[lineState]{To: to, Label: what, By: threadNames[i], Optional: true})
	}
	for i := range s.thread {
		t := &s.thread[i]
		if t.pc == lineEnded || s.halted == uint8(i+1) {
			continue
		}
		if s.kills < m.kills {
			env(i, "is killed", func(to *lineState) {
				to.kills++
				to.owed = true
				to.unqueue(i)
				to.thread[i] = lineThread{pc: lineEnded}
			})
		}
		if m.stops && s.halted == 0 {
			env(i, "is stopped for ever", func(to *lineState) { to.halted = uint8(i + 1) })
		}
		if m.cancel && m.isGet(i) && (t.pc == lineAsleep || t.pc == lineFlag && t.slept && !t.canceled) {
			env(i, "its context ends", func(to *lineState) {
				to.unqueue(i)
				to.thread[i] = lineThread{pc: lineFlag, slept: true, canceled: true} // it tries once more
			})
		}
		if t.pc != lineAsleep {
			to := *s
			x := lineExec{lineModel: m, s: &to, t: &to.thread[i], me: i}
			x.step()
			emit(model.Step[lineState]{To: to, Label: x.said, By: threadNames[i]})
		}
	}
	if s.owed {
		to := *s
		to.owed = false
		if m.bug != lineReapSilent {
			to.bump()
			to.wake(lineThreads)
		}
		emit(model.Step[lineState]{To: to, Label: "wakes all after the death", By: "reaper"})
	}
	if m.stops && m.bug != lineNoCheck {
		// The periodic check of a process that is not stopped. The protocol may rely on it only if a thread is
		// stopped.
		for i := range s.thread {
			if s.thread[i].pc == lineAsleep && s.halted != uint8(i+1) && (s.items > 0 || s.stopped) {
				to := *s
				to.bump()
				to.wake(lineThreads)
				emit(model.Step[lineState]{To: to, Label: "finds something", By: "check"})
				break
			}
		}
	}
}

func (s *lineState) bump() { s.word = lineWord{false, s.word.sequence + 1} }

func (s *lineState) unqueue(i int) {
	n := 0
	for _, t := range s.asleep {
		if t != 0 && t != uint8(i+1) {
			s.asleep[n] = t
			n++
		}
	}
	clear(s.asleep[n:])
}

// wake wakes the first n sleepers. A stopped sleeper uses up a wake although it does not go on.
func (s *lineState) wake(n int) {
	for ; n > 0 && s.asleep[0] != 0; n-- {
		i := int(s.asleep[0] - 1)
		s.unqueue(i)
		s.thread[i] = lineThread{pc: lineFlag, slept: true}
	}
}

type lineExec struct {
	*lineModel
	s    *lineState
	t    *lineThread
	me   int
	said string
}

func (x *lineExec) to(pc uint8, said string) { x.t.pc, x.said = pc, said }

func (x *lineExec) end(said string) {
	*x.t = lineThread{pc: lineEnded}
	x.said = said
}

func (x *lineExec) step() {
	s, t := x.s, x.t
	switch t.pc {
	case linePut:
		if s.stopped {
			x.end("is refused")
			return
		}
		s.items++
		if x.bug == lineLooksFirst {
			if t.word.announced {
				x.to(lineBump, "puts")
			} else {
				x.end("puts")
			}
			return
		}
		x.to(lineLook, "puts")
	case lineLook:
		t.word = s.word
		switch {
		case x.bug == lineLooksFirst && !x.isGet(x.me):
			x.to(linePut, "looks at the word")
		case t.word.announced:
			x.to(lineBump, "sees an announcement")
		default:
			x.end("sees none")
		}
	case lineBump:
		if s.word != t.word {
			x.to(lineLook, "loses the word")
			return
		}
		if s.bump(); x.bug == lineKeepsSequence {
			s.word.sequence--
		}
		x.to(lineDeliver, "changes the word")
	case lineDeliver:
		if x.bug != lineForgetsWake {
			s.wake(1)
		}
		x.end("wakes one")
	case lineFlag:
		t.sawStopped = s.stopped
		x.to(lineTry, "reads the flag")
	case lineTry:
		switch {
		case s.items > 0:
			s.items--
			if t.slept && x.bug != lineNoPass {
				x.to(linePass, "gets an item")
			} else {
				x.end("gets an item")
			}
		case t.sawStopped:
			if t.slept {
				x.to(linePass, "finds that it was shut down")
			} else {
				x.end("finds that it was shut down")
			}
		case t.canceled && x.bug == lineLeaves:
			x.end("finds nothing after the end of its context")
		case t.canceled:
			x.to(linePass, "finds nothing after the end of its context")
		case !t.announced:
			x.to(lineAnnounce, "finds nothing")
		default:
			x.to(lineSleep, "finds nothing again")
		}
	case lineAnnounce:
		s.word.announced = true
		t.word, t.announced = s.word, true
		if x.bug == lineSleepsAtOnce {
			x.to(lineSleep, "announces itself")
			return
		}
		x.to(lineFlag, "announces itself")
	case lineSleep:
		t.announced = false
		if s.word != t.word && x.bug != lineSleepsAnyway {
			t.slept = true
			x.to(lineFlag, "sees another word")
			return
		}
		*t = lineThread{pc: lineAsleep}
		for k := range s.asleep {
			if s.asleep[k] == 0 {
				s.asleep[k] = uint8(x.me + 1)
				break
			}
		}
		x.said = "sleeps"
	case linePass:
		if x.bug != lineNoReannounce {
			s.word.announced = true
		}
		x.to(linePassLook, "announces the others")
	case linePassLook:
		if (s.items > 0 || s.stopped) && x.bug != linePassBlind {
			x.to(lineLook, "sees more")
			return
		}
		x.end("sees no more")
	case lineShut:
		s.stopped = true
		x.to(lineShutBump, "shuts down")
	case lineShutBump:
		s.bump()
		x.to(lineShutWake, "changes the word")
	case lineShutWake:
		if x.bug != lineShutsSilent {
			s.wake(lineThreads)
		}
		x.end("wakes all")
	}
}
