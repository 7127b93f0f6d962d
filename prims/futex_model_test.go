//go:build linux

package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/model"
)

// The model of a Futex has one word, the state, which fits into a byte.
const wState = 0

// The registers of a thread.
const (
	rState = iota // the state that it has seen
	rToken        // the token that it waits for
	rNotes        // the notes: nRecord, nAnnounced, nStop
)

// The notes of a thread.
const (
	nRecord    = 1 << iota // the thread has an announce record
	nAnnounced             // the thread has announced itself in this call
	nStop                  // the thread calls Stop instead of Post
)

// The steps of a thread.
const (
	tIdle uint8 = iota
	tLook
	tAnnounce
	tRecord
	tSleep
	tQuit
	tPost
	tSwap
	tWake
	tClear
	tFence
	tSurvey
	tSurveyWord
	tDeliver
	tReaped
)

// futexModel is a Futex, its waiters, and its posters.
type futexModel struct {
	waiters, posters int
	tokens           int // the greatest token
	stop             bool
	kills            int

	bug bug
}

func (m futexModel) explore(b bug) model.Result {
	m.bug = b
	y := model.System{
		Kills: m.kills, Spurious: true, Restart: true,
		Check: m.check, MaySleep: m.maySleep, Show: m.show, Canon: m.canon,
		Done:     func(s *model.Sys) bool { return !m.unreaped(s) },
		Symmetry: &model.Symmetry{Threads: m.waiters, Rename: m.rename},
	}
	for i := range m.waiters {
		y.Threads = append(y.Threads, model.ThreadSpec{Name: fmt.Sprint("W", i), Process: i, Run: m.wait, Mortal: m.kills > 0})
	}
	for i := range m.posters {
		y.Threads = append(y.Threads, model.ThreadSpec{Name: fmt.Sprint("P", i), Process: m.waiters + i, Run: m.post, Mortal: m.kills > 0})
	}
	if m.kills > 0 {
		y.Threads = append(y.Threads, model.ThreadSpec{Name: "reaper", Process: model.Threads - 1, Run: m.reap})
	}
	return y.Explore()
}

func (m *futexModel) check(*model.Sys) error { return nil }

// maySleep reports whether it is correct that a thread sleeps: its token is not reached, the Futex is not stopped, and
// the bit announced is set.
func (m *futexModel) maySleep(s *model.Sys, i int) bool {
	state := futexState(s.Mem[wState])
	return !state.reached(uint64(s.Thread[i].R[rToken])) && !state.stopped() && state.announced()
}

// canon makes states of the model equal that differ only in an old value. If the Futex has changed since a thread read
// its state, the value that the thread has read has no effect any more.
func (m *futexModel) canon(s *model.Sys) {
	const old = 0xff
	for i := range s.Thread {
		t := &s.Thread[i]
		switch t.PC {
		case tAnnounce, tRecord, tSleep, tSwap:
			if t.R[rState] != s.Mem[wState] && m.bug != postClearsLate {
				t.R[rState] = old
			}
		default:
			t.R[rState] = 0
		}
	}
}

// rename gives the waiters other numbers, because the model treats all waiters alike.
func (m *futexModel) rename(s *model.Sys, to *[model.Threads]uint8) {
	old := s.Ghost[gReaped]
	s.Ghost[gReaped] = 0
	for i := range to {
		s.Ghost[gReaped] |= old >> i & 1 << to[i]
	}
}

func (m *futexModel) show(s *model.Sys) string { return futexState(s.Mem[wState]).String() }

func (m *futexModel) unreaped(s *model.Sys) bool {
	for p, l := range s.Life {
		if l != model.Alive && s.Ghost[gReaped]&(1<<p) == 0 {
			return true
		}
	}
	return false
}

// wait is a step of Wait, for any token.
func (m *futexModel) wait(x *model.Exec) {
	notes := x.R(rNotes)
	state := futexState(x.Load(wState))
	switch x.PC() {
	case tIdle:
		x.Say("calls Wait")
		*x.R(rToken) = uint8(x.Choose(m.tokens) + 1)
		x.Goto(tLook)
	case tLook, tQuit:
		x.Say("looks")
		*notes &^= nRecord
		*x.R(rState) = uint8(state)
		known := state.announced() || m.bug == sleepUnannounced || m.bug == announceOnce && *notes&nAnnounced != 0
		switch {
		case state.reached(uint64(*x.R(rToken))), state.stopped(), x.PC() == tQuit:
			x.Idle()
		case known:
			m.toSleep(x)
		default:
			x.Goto(tAnnounce)
		}
	case tAnnounce:
		x.Say("announces")
		s := *x.R(rState)
		x.Goto(tLook)
		if x.CAS(wState, s, s|uint8(futexAnnounced)) {
			*x.R(rState) |= uint8(futexAnnounced)
			if m.bug == announceOnce {
				*notes |= nAnnounced
			}
			m.toSleep(x)
		}
	case tRecord:
		x.Say("writes its record")
		*notes |= nRecord
		x.Goto(tSleep)
	case tSleep:
		if x.Choose(2) == 1 {
			x.Say("finds that its context has ended")
			x.Optional()
			x.Goto(tQuit)
			return
		}
		x.Say("sleeps")
		x.Sleep(tLook, tQuit, model.Wait{Word: wState, Value: *x.R(rState)})
	}
}

func (m *futexModel) toSleep(x *model.Exec) {
	x.Goto(tSleep)
	if m.kills > 0 {
		x.Goto(tRecord)
	}
}

// post is a step of Post or Stop.
func (m *futexModel) post(x *model.Exec) {
	stop := *x.R(rNotes)&nStop != 0
	state := futexState(x.Load(wState))
	switch x.PC() {
	case tIdle:
		x.Say("calls Post")
		choices := 1
		if m.stop {
			choices = 2
		}
		if x.Choose(choices) == 1 {
			x.Say("calls Stop")
			*x.R(rNotes) = nStop
		} else if int(state.counter()) == m.tokens {
			x.Disable() // every token has been reached, so there are no more posts
		}
		x.Goto(tPost)
		if m.bug == postWakesFirst {
			x.Goto(tWake)
		}
	case tPost:
		x.Say("reads the state")
		*x.R(rState) = uint8(state)
		x.Goto(tSwap)
		if state.stopped() || int(state.counter()) == m.tokens && !stop {
			x.Idle()
		}
	case tSwap:
		m.swap(x, futexState(*x.R(rState)), stop)
	case tWake:
		x.Say("wakes")
		n := model.All
		if m.bug == postWakesOne || m.bug == stopDoesNotWakeAll && stop {
			n = 1
		}
		x.Wake(wState, n)
		switch m.bug {
		case postWakesFirst:
			x.Goto(tPost)
		case postClearsLate:
			x.Goto(tClear)
		default:
			x.Idle()
		}
	case tClear:
		x.Say("takes the announcement down")
		x.Update(wState, func(v uint8) uint8 { return v &^ uint8(futexAnnounced) })
		x.Idle()
	}
}

// swap is the CAS of Post or Stop.
func (m *futexModel) swap(x *model.Exec, s futexState, stop bool) {
	x.Say("posts")
	next := s.posted()
	if stop {
		x.Say("stops")
		next = s.stop()
	}
	if m.bug == postClearsLate {
		next |= s & futexAnnounced
	}
	switch {
	case !x.CAS(wState, uint8(s), uint8(next)):
		x.Goto(tPost)
	case m.bug == postWakesFirst, !s.announced() && !stop:
		x.Idle()
	default:
		x.Goto(tWake)
	}
}

// reap is a step of a reaper. It wakes the waiters if a waiter has an announce record, or if the bit announced is set.
func (m *futexModel) reap(x *model.Exec) {
	switch x.PC() {
	case tIdle:
		if !m.unreaped(x.Sys) {
			x.Disable()
		}
		x.Say("sees a death")
		x.Require()
		x.Goto(tFence)
	case tFence:
		x.Say("fences the dying")
		x.Membarrier()
		x.Goto(tSurvey)
	case tSurvey:
		x.Say("looks for announce records")
		x.Goto(tSurveyWord)
		for i := range m.waiters {
			if x.Thread[i].R[rNotes]&nRecord != 0 {
				x.Goto(tDeliver)
			}
		}
		if m.bug == futexReapSilent {
			x.Goto(tReaped)
		}
	case tSurveyWord:
		x.Say("looks whether somebody has announced himself")
		x.Goto(tReaped)
		if futexState(x.Load(wState)).announced() {
			x.Goto(tDeliver)
		}
	case tDeliver:
		x.Say("wakes for a lost wake")
		n := model.All
		if m.bug == futexReapByRecord {
			n = 1
		}
		x.Wake(wState, n)
		x.Goto(tReaped)
	case tReaped:
		x.Say("has reaped it")
		for p, l := range x.Life {
			if l == model.Gone {
				x.Ghost[gReaped] |= 1 << p
			}
		}
		x.Idle()
	}
}
