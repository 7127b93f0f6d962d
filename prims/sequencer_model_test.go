//go:build linux

package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/model"
)

// The words of the model of a sequence. The heap is a set of waiters, a bit each, which
// only the holder of the queue lock looks at; the truth behind it are the nodes.
const (
	qValue     = iota
	seqQNext   // the word next: the complement of a token
	qQueueLock // 0, or the number of the thread that holds it + 1
	qHeap
	qNode // the nodes, one word each from here on
)

// The states of a node.
const (
	seqQIdle uint8 = iota
	qQueued
	qAsleep
	qLeft
	qResolved
)

// The registers of a thread.
const (
	rqToken   = iota
	rqSeen    // the value that it has seen
	rqWakes   // the waiters that it has to wake, one bit each
	rqThen    // where it goes on with the queue lock
	rqAfter   // where it goes on after the wakes
	rqResolve // whether it resolves
)

// The steps of a thread.
const (
	qsIdle uint8 = iota
	qsLook
	qsLookNextFirst
	qsEnter
	qsReplayClear
	qsReplayFill
	qsCheckLocked
	qsQueue
	qsLink
	qsAnnounce
	qsSecondCheck
	qsResolveLook
	qsResolveOne
	qsResolveNext
	qsLeave
	qsWake
	qsSleep
	qsGiveUp
	qsUnlink
	qsCount
	qsLookNext
	qsFence
	qsReap
	qsWakeAll
	qsReaped
)

// sequenceModel is a sequence, its waiters, and its counters.
type sequenceModel struct {
	waiters, counters int
	tokens            int // the greatest token
	giveUp            bool
	kills             int

	bug bug
}

func (m sequenceModel) explore(b bug) model.Result {
	m.bug = b
	y := model.System{
		Kills: m.kills, Spurious: true,
		Check: m.check, MaySleep: m.maySleep, Show: m.show,
		Done: func(s *model.Sys) bool { return !m.unreaped(s) },
	}
	for i := range m.waiters {
		y.Threads = append(y.Threads, model.ThreadSpec{Name: fmt.Sprint("W", i), Process: i, Run: m.wait, Mortal: m.kills > 0})
	}
	for i := range m.counters {
		y.Threads = append(y.Threads, model.ThreadSpec{Name: fmt.Sprint("C", i), Process: m.waiters + i, Run: m.count, Mortal: m.kills > 0})
	}
	if m.kills > 0 {
		y.Threads = append(y.Threads, model.ThreadSpec{Name: "reaper", Process: model.Threads - 1, Run: m.reap})
	}
	return y.Explore()
}

// complement is a token as the word next stores it: inverted, so that 0 means that nobody waits.
func complement(token uint8) uint8 { return ^token }

func (m *sequenceModel) check(s *model.Sys) error { return nil }

// maySleep: its token has not come.
func (m *sequenceModel) maySleep(s *model.Sys, i int) bool {
	return s.Mem[qValue] < s.Thread[i].R[rqToken]
}

func (m *sequenceModel) show(s *model.Sys) string {
	return fmt.Sprintf("value %d, next %d, latch %d, heap %b, nodes %v", s.Mem[qValue], ^s.Mem[seqQNext], s.Mem[qQueueLock], s.Mem[qHeap], s.Mem[qNode:qNode+m.waiters])
}

func (m *sequenceModel) unreaped(s *model.Sys) bool {
	for p, l := range s.Life {
		if l != model.Alive && s.Ghost[0]&(1<<p) == 0 {
			return true
		}
	}
	return false
}

func set(x *model.Exec, w int, v uint8) { x.Update(w, func(uint8) uint8 { return v }) }

// locked are the steps that everybody has in common. It reports whether it did one.
func (m *sequenceModel) locked(x *model.Exec) bool {
	switch x.PC() {
	case qsEnter:
		x.Say("takes the queue lock")
		switch owner := x.Load(qQueueLock); {
		case owner == 0:
			x.CAS(qQueueLock, 0, uint8(x.Me+1))
			x.Goto(*x.R(rqThen))
		case m.gone(x, owner):
			x.Say("takes the queue lock after a death")
			x.CAS(qQueueLock, owner, uint8(x.Me+1))
			x.Goto(qsReplayClear)
		default:
			refence(x, int(owner-1))
		}
	case qsReplayClear:
		x.Say("clears the heap")
		set(x, qHeap, 0)
		set(x, seqQNext, ^uint8(0))
		x.Goto(qsReplayFill)
	case qsReplayFill:
		x.Say("fills the heap")
		set(x, qHeap, m.there(x))
		// The purpose of the caller comes after the resolve.
		*x.R(rqResolve) = 1
		x.Goto(*x.R(rqThen))
	case qsResolveLook:
		x.Say("resolves: reads the value")
		*x.R(rqSeen) = x.Load(qValue)
		x.Goto(qsResolveOne)
	case qsResolveOne:
		heap := x.Load(qHeap)
		x.Goto(qsResolveNext)
		for i := range m.waiters {
			if heap&(1<<i) != 0 && x.Thread[i].R[rqToken] <= *x.R(rqSeen) {
				x.Say(fmt.Sprintf("ends the wait of W%d", i))
				set(x, qHeap, heap&^(1<<i))
				node := x.Load(qNode + i)
				if node == qAsleep {
					*x.R(rqWakes) |= 1 << i
				}
				if node == qQueued || node == qAsleep {
					set(x, qNode+i, qResolved)
				}
				x.Goto(qsResolveOne)
				return true
			}
		}
		x.Say("finds no more")
	case qsResolveNext:
		x.Say("stores next")
		next := uint8(0)
		for i := range m.waiters {
			if x.Load(qHeap)&(1<<i) != 0 {
				next = max(next, complement(x.Thread[i].R[rqToken]))
			}
		}
		if m.bug == sequenceNextTooFar {
			next = 0
		}
		set(x, seqQNext, next)
		x.Goto(qsLeave)
	case qsLeave:
		if *x.R(rqResolve) != 0 {
			x.Say("has replayed, and resolves")
			*x.R(rqResolve) = 0
			x.Goto(qsResolveLook)
			break
		}
		x.Say("leaves the queue lock")
		set(x, qQueueLock, 0)
		x.Goto(qsWake)
	case qsWake:
		wakes := x.R(rqWakes)
		x.Goto(*x.R(rqAfter))
		for i := range m.waiters {
			if *wakes&(1<<i) != 0 {
				x.Say(fmt.Sprintf("wakes W%d", i))
				*wakes &^= 1 << i
				x.Wake(qNode+i, 1)
				x.Goto(qsWake)
				return true
			}
		}
		x.Say("has nobody to wake")
		m.atEnd(x)
	default:
		return false
	}
	return true
}

// refence is the step of a waiter for a queue lock that thread owner holds: if that is
// dying, its reaper fences it.
func refence(x *model.Exec, owner int) {
	if x.Process() != model.Threads-1 || x.LifeOf(owner) != model.Condemned {
		x.Disable()
		return
	}
	x.Say("fences the holder of the queue lock")
	x.Membarrier()
}

// atEnd forgets what a thread that is idle need not know.
func (m *sequenceModel) atEnd(x *model.Exec) {
	if x.PC() == qsIdle {
		m.idle(x)
	}
}

func (m *sequenceModel) idle(x *model.Exec) {
	for r := range model.Registers {
		*x.R(r) = 0
	}
	x.Idle()
}

func (m *sequenceModel) gone(x *model.Exec, owner uint8) bool { return m.dead(x, int(owner-1)) }

func (m *sequenceModel) dead(x *model.Exec, thread int) bool { return x.LifeOf(thread) == model.Gone }

// there is the set of those whose nodes are on a queue.
func (m *sequenceModel) there(x *model.Exec) (heap uint8) {
	for i := range m.waiters {
		switch x.Load(qNode + i) {
		case qQueued, qAsleep, qLeft:
			if !m.dead(x, i) {
				heap |= 1 << i
			}
		}
	}
	return heap
}

// wait is Wait.
func (m *sequenceModel) wait(x *model.Exec) {
	token, node := x.R(rqToken), qNode+x.Me
	if m.locked(x) {
		return
	}
	switch x.PC() {
	case qsIdle:
		x.Say("calls Wait")
		*token = uint8(x.Choose(m.tokens) + 1)
		x.Goto(qsLook)
	case qsLook:
		x.Say("looks at the value")
		*x.R(rqThen), *x.R(rqAfter) = qsCheckLocked, qsSleep
		x.Goto(qsEnter)
		if x.Load(qValue) >= *token {
			m.idle(x)
		}
	case qsCheckLocked:
		x.Say("looks again")
		x.Goto(qsQueue)
		if x.Load(qValue) >= *token {
			*x.R(rqAfter) = qsIdle
			x.Goto(qsLeave)
		}
	case qsQueue:
		x.Say("marks its node")
		set(x, node, qQueued)
		x.Goto(qsLink)
	case qsLink:
		x.Say("links its node")
		set(x, qHeap, x.Load(qHeap)|1<<x.Me)
		x.Goto(qsAnnounce)
	case qsAnnounce:
		x.Say("announces its token")
		next := max(x.Load(seqQNext), complement(*token))
		if m.bug == sequencePlainNext {
			x.Store(seqQNext, next)
		} else {
			set(x, seqQNext, next)
		}
		x.Goto(qsSecondCheck)
		if m.bug == sequenceNoSecondCheck {
			x.Goto(qsLeave)
		}
	case qsSecondCheck:
		x.Say("looks a second time")
		x.Goto(qsLeave)
		if x.Load(qValue) >= *token {
			x.Goto(qsResolveLook)
		}
	case qsSleep:
		switch x.Load(node) {
		case qResolved:
			x.Say("comes back")
			set(x, node, seqQIdle)
			m.idle(x)
		case qQueued:
			x.Say("goes to sleep")
			x.CAS(node, qQueued, qAsleep)
		default:
			x.Say("sleeps")
			quit := uint8(0)
			if m.giveUp {
				quit = qsGiveUp
			}
			x.Sleep(qsSleep, quit, model.Wait{Word: node, Value: qAsleep})
		}
	case qsGiveUp:
		x.Say("gives up")
		x.Goto(qsSleep)
		if x.CAS(node, qAsleep, qLeft) {
			*x.R(rqThen), *x.R(rqAfter) = qsUnlink, qsIdle
			x.Goto(qsEnter)
		}
	case qsUnlink:
		x.Say("unlinks its node")
		set(x, qHeap, x.Load(qHeap)&^(1<<x.Me))
		set(x, node, seqQIdle)
		x.Goto(qsResolveLook)
	}
}

// count is Increment.
func (m *sequenceModel) count(x *model.Exec) {
	if m.locked(x) {
		return
	}
	switch x.PC() {
	case qsIdle:
		x.Say("calls Increment")
		if int(x.Load(qValue)) >= m.tokens {
			x.Disable() // enough for every token
		}
		*x.R(rqThen), *x.R(rqAfter) = qsResolveLook, qsIdle
		x.Goto(qsCount)
		if m.bug == sequenceLooksFirst {
			x.Goto(qsLookNextFirst)
		}
	case qsLookNextFirst:
		x.Say("looks for a token")
		*x.R(rqSeen) = x.Load(seqQNext)
		x.Goto(qsCount)
	case qsCount:
		x.Say("counts")
		if m.bug == sequencePlainCount {
			v := x.Load(qValue) + 1
			x.Store(qValue, v)
		} else {
			x.Update(qValue, func(v uint8) uint8 { return v + 1 })
		}
		*x.R(rqToken) = x.Load(qValue)
		x.Goto(qsLookNext)
	case qsLookNext:
		x.Say("looks for a token")
		next := x.Load(seqQNext)
		if m.bug == sequenceLooksFirst {
			next = *x.R(rqSeen)
		}
		v := *x.R(rqToken)
		*x.R(rqToken), *x.R(rqSeen) = 0, 0
		x.Goto(qsEnter)
		if ^v > next {
			m.idle(x)
		}
	}
}

// reap reaps the dead.
func (m *sequenceModel) reap(x *model.Exec) {
	if m.locked(x) {
		return
	}
	switch x.PC() {
	case qsIdle:
		if !m.unreaped(x.Sys) {
			x.Disable()
		}
		x.Say("sees a death")
		x.Require()
		*x.R(rqThen), *x.R(rqAfter) = qsReap, qsWakeAll
		x.Goto(qsFence)
	case qsFence:
		x.Say("fences the dying")
		x.Membarrier()
		x.Goto(qsEnter)
		if m.bug == sequenceReapSilent {
			x.Goto(qsWakeAll)
		}
	case qsReap:
		x.Say("drops the waits of the dead")
		heap := x.Load(qHeap)
		for i := range m.waiters {
			if m.dead(x, i) {
				heap &^= 1 << i
			}
		}
		set(x, qHeap, heap)
		*x.R(rqResolve) = 0
		x.Goto(qsResolveLook)
	case qsWakeAll:
		x.Say("wakes all whose wait is over")
		if m.bug != sequenceReapWakesNone {
			for i := range m.waiters {
				if x.Load(qNode+i) == qResolved {
					x.Wake(qNode+i, model.All)
				}
			}
		}
		x.Goto(qsReaped)
	case qsReaped:
		x.Say("has reaped it")
		for p, l := range x.Life {
			if l == model.Gone {
				x.Ghost[0] |= 1 << p
			}
		}
		m.idle(x)
	}
}
