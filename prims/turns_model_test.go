//go:build linux

package prims

import (
	"errors"
	"fmt"

	"github.com/shmsync/shmsync/internal/model"
)

// turnsModel is a FairMutex. A wait for it is in the queue of all processes, and also on the line of its
// process, the list of the process's own waits. The first wait of a line has the turn: only its goroutine
// sleeps in the kernel. The model has the queue, the lines, the nodes, and the wakes in the runtime and in the
// kernel. Each goroutine waits for the lock a number of times, and may give up at any step of a wait. One
// process may be killed, and the others reap it. A stop is only a delay in this model, so it needs no step.
//
// The model has one private lock, and not one in each process, because the records of all processes take effect
// one after the other.
type turnsModel struct {
	process []uint8 // of each goroutine
	calls   uint8   // of each goroutine
	cancels bool
	mortal  uint8 // the process that may be killed, plus 1
	bug     bug
}

const turnsMost = 4

const (
	turnsAppendLate  bug = "a wait is appended after the private lock was left"
	turnsCancelKeeps bug = "a cancelled wait keeps the turn"
	turnsNoEnd       bug = "the end of a hold does not pass the turn"
)

var errTurnsTogether = errors.New("two have the lock")
var errTurnsOrder = errors.New("a later wait was granted first")

// The states of a node.
const (
	tnIdle uint8 = iota
	tnQueued
	tnAsleep
	tnResolved
	tnLeft
)

// The steps of a goroutine.
const (
	tpIdle uint8 = iota
	tpLock
	tpAppend
	tpLeaveLock
	tpAppendLate
	tpAwaitTurn
	tpBlocked
	tpPoll
	tpAsleep
	tpLeaveLine
	tpInside
	tpUnlock
	tpGrant
	tpWake
	tpHoldEnded
	tpGivenUp
	tpCleanUp
	tpCleanGrant
	tpCleanWake
	tpCleanLine
	tpDead
)

type turnsThread struct {
	at, node, calls uint8
	turn, token     bool // of its wait
	woken           bool // the kernel has woken the goroutine
	owes            uint8
	stamp           uint8
}

type turnsState struct {
	thread   [turnsMost]turnsThread
	queue    [turnsMost]uint8    // goroutines plus 1, in order of arrival
	line     [2][turnsMost]uint8 // the line of each process, in the same form
	held     [2]bool             // for each process: a goroutine of its line holds the lock
	owner    uint8               // the goroutine that holds the lock, or to which it was granted, plus 1
	private  uint8               // the goroutine that has the private lock, plus 1
	arrivals uint8
	killed   bool
	reaped   bool
	wrong    bool
}

func turnsPush(q *[turnsMost]uint8, i uint8) {
	for k := range q {
		if q[k] == 0 {
			q[k] = i
			return
		}
	}
}

func turnsRemove(q *[turnsMost]uint8, i uint8) (first bool) {
	for k := range q {
		if q[k] == i {
			copy(q[k:], q[k+1:])
			q[turnsMost-1] = 0
			return k == 0
		}
	}
	return false
}

// giveTurn gives the turn to the first goroutine of the line of a process.
func (s *turnsState) giveTurn(process uint8) {
	if i := s.line[process][0]; i != 0 {
		s.thread[i-1].turn, s.thread[i-1].token = true, true
	}
}

func (m *turnsModel) append(s *turnsState, i uint8) {
	p := m.process[i]
	s.thread[i].turn = s.line[p][0] == 0 && !s.held[p]
	turnsPush(&s.line[p], i+1)
}

func (m *turnsModel) leaveLine(s *turnsState, i uint8, granted bool) {
	p := m.process[i]
	first := turnsRemove(&s.line[p], i+1)
	switch {
	case granted:
		s.held[p] = true
	case first && !s.held[p] && m.bug != turnsCancelKeeps:
		s.giveTurn(p)
	}
}

// grant grants the lock to the first wait of the queue if the lock is free. It returns the goroutine that must
// be woken, plus 1.
func (m *turnsModel) grant(s *turnsState) (owes uint8) {
	for s.owner == 0 && s.queue[0] != 0 {
		i := s.queue[0]
		turnsRemove(&s.queue, i)
		w := &s.thread[i-1]
		if w.node != tnQueued && w.node != tnAsleep {
			continue
		}
		for _, k := range s.queue {
			if k != 0 && s.thread[k-1].stamp < w.stamp && s.thread[k-1].node != tnLeft {
				s.wrong = true
			}
		}
		if w.node == tnAsleep {
			owes = i
		}
		w.node, s.owner = tnResolved, i
	}
	return owes
}

func (m *turnsModel) explore(b bug) model.Result {
	m.bug = b
	var s turnsState
	for i := range s.thread {
		s.thread[i].at = tpDead
	}
	for i := range m.process {
		s.thread[i] = turnsThread{at: tpIdle, calls: m.calls}
	}
	spec := model.Spec[turnsState]{
		Init: []turnsState{s},
		Next: m.next,
		Check: func(s *turnsState) error {
			inside := 0
			for _, t := range s.thread {
				if t.at == tpInside || t.at == tpUnlock {
					inside++
				}
			}
			switch {
			case inside > 1:
				return errTurnsTogether
			case s.wrong:
				return errTurnsOrder
			}
			return nil
		},
		Done: func(s *turnsState) bool {
			for i, t := range s.thread {
				if i < len(m.process) && t.at != tpDead && (t.at != tpIdle || t.calls != 0) {
					return false
				}
			}
			return !s.killed || s.reaped
		},
		Show: func(s *turnsState) string { return fmt.Sprintf("%+v", *s) },
	}
	return spec.Explore()
}

func (m *turnsModel) next(s *turnsState, emit func(model.Step[turnsState])) {
	for i := range uint8(len(m.process)) {
		m.nextOf(s, i, emit)
	}
	m.deaths(s, emit)
}

// deaths adds the steps in which a process is killed and then reaped. A reaper can take the private lock when no
// living goroutine has it.
func (m *turnsModel) deaths(s *turnsState, emit func(model.Step[turnsState])) {
	if m.mortal == 0 {
		return
	}
	of := func(i uint8) bool { return i != 0 && m.process[i-1] == m.mortal-1 }
	if !s.killed {
		to := *s
		to.killed = true
		for i := range m.process {
			if of(uint8(i) + 1) {
				to.thread[i].at = tpDead
			}
		}
		emit(model.Step[turnsState]{To: to, Label: "kill", By: "environment", Optional: true})
		return
	}
	if s.reaped || s.private != 0 && !of(s.private) {
		return
	}
	to := *s
	to.reaped, to.private = true, 0
	if of(to.owner) {
		to.owner = 0
	}
	for i := range m.process {
		if of(uint8(i) + 1) {
			turnsRemove(&to.queue, uint8(i)+1)
		}
	}
	m.grant(&to)
	for i := range to.thread {
		// The periodic check wakes a sleeper whose wait is over, because the process that should have woken it
		// may be dead.
		if t := &to.thread[i]; t.at == tpAsleep && t.node == tnResolved {
			t.woken = true
		}
	}
	emit(model.Step[turnsState]{To: to, Label: "reap", By: "reaper"})
}

func (m *turnsModel) nextOf(s *turnsState, i uint8, emit func(model.Step[turnsState])) {
	var to turnsState
	t := &to.thread[i]
	begin := func() { to = *s }
	step := func(label string, at uint8) {
		t.at = at
		emit(model.Step[turnsState]{To: to, Label: label, By: namesG[i]})
	}
	p := m.process[i]
	// giveUp models the end of the context, at any step of the wait.
	giveUp := func() {
		if n := s.thread[i].node; m.cancels && (n == tnQueued || n == tnAsleep) {
			begin()
			t.node, t.at = tnLeft, tpGivenUp
			emit(model.Step[turnsState]{To: to, Label: "give up", By: namesG[i], Optional: true})
		}
	}
	switch now := s.thread[i]; now.at {
	case tpIdle:
		if now.calls > 0 && s.private == 0 {
			begin()
			t.calls--
			to.private = i + 1
			step("take the private lock", tpLock)
		}
	case tpLock:
		begin()
		if to.owner == 0 && to.queue[0] == 0 {
			to.owner, to.private = i+1, 0
			step("take the lock", tpInside)
			return
		}
		to.arrivals++
		t.stamp, t.node, t.turn, t.token, t.woken = to.arrivals, tnQueued, false, false, false
		turnsPush(&to.queue, i+1)
		if m.bug == turnsAppendLate {
			to.private = 0
			step("join, leave the private lock", tpAppendLate)
			return
		}
		step("join", tpAppend)
	case tpAppend:
		begin()
		m.append(&to, i)
		step("append", tpLeaveLock)
	case tpLeaveLock:
		begin()
		to.private = 0
		step("leave the private lock", tpAwaitTurn)
	case tpAppendLate:
		begin()
		m.append(&to, i)
		step("append", tpAwaitTurn)
	case tpAwaitTurn:
		begin()
		switch {
		case now.turn:
			step("has the turn", tpPoll)
		case now.node == tnResolved:
			step("sees the end", tpLeaveLine)
		default:
			step("block", tpBlocked)
		}
		giveUp()
	case tpBlocked:
		if now.token {
			begin()
			t.token = false
			step("woken", tpAwaitTurn)
		}
		giveUp()
	case tpPoll:
		begin()
		if now.node == tnResolved {
			step("sees the end", tpLeaveLine)
		} else {
			t.node = tnAsleep
			step("sleep", tpAsleep)
		}
		giveUp()
	case tpAsleep:
		if now.woken {
			begin()
			step("woken", tpLeaveLine)
		}
		giveUp()
	case tpLeaveLine:
		begin()
		m.leaveLine(&to, i, true)
		t.node = tnIdle
		step("leave the line, accept", tpInside)
	case tpInside:
		if s.private == 0 {
			begin()
			to.private = i + 1
			step("unlock: take the private lock", tpUnlock)
		}
	case tpUnlock:
		begin()
		to.owner = 0
		step("free", tpGrant)
	case tpGrant:
		begin()
		t.owes = m.grant(&to)
		to.private = 0
		step("grant, leave the private lock", tpWake)
	case tpWake:
		begin()
		if now.owes != 0 {
			to.thread[now.owes-1].woken = true
			t.owes = 0
		}
		step("wake", tpHoldEnded)
	case tpHoldEnded:
		begin()
		if to.held[p] && m.bug != turnsNoEnd {
			to.held[p] = false
			to.giveTurn(p)
		}
		step("the hold has ended", tpIdle)
	case tpGivenUp:
		if s.private == 0 {
			begin()
			to.private = i + 1
			step("clean up: take the private lock", tpCleanUp)
		}
	case tpCleanUp:
		begin()
		turnsRemove(&to.queue, i+1)
		step("off the queue", tpCleanGrant)
	case tpCleanGrant:
		begin()
		t.owes = m.grant(&to)
		to.private, t.node = 0, tnIdle
		step("grant, leave the private lock", tpCleanWake)
	case tpCleanWake:
		begin()
		if now.owes != 0 {
			to.thread[now.owes-1].woken = true
			t.owes = 0
		}
		step("wake", tpCleanLine)
	case tpCleanLine:
		begin()
		m.leaveLine(&to, i, false)
		step("leave the line", tpIdle)
	}
}
