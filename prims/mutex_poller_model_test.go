//go:build linux

package prims

import (
	"testing"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/model"
)

// The words of the poller of process 0, whose threads park behind it.
const (
	wNode     = 5 + iota // the state of the poller's node
	wStack               // 1: the node is on the ready stack; 2: a process has died
	wWakeWord            // the doorbell
	wQueue               // the parked threads in order, two bits each; the top bit is the mutex of the queue
	wChan                // the word wChan+i is 1 when thread i has been woken
)

const queueLocked = 0x80

// Faults that a wait behind a poller could have.
const (
	wakeToNobody    bug = "a poller that finds no waiter for a wake does not pass the wake on"
	parkUnchecked   bug = "a waiter parks without comparing the word once more"
	checkThenWait   bug = "a waiter compares the word, and then says that it waits"
	rewaitForgotten bug = "the poller wakes one of two, and the node does not wait any more"
	wakeThenRewait  bug = "the poller wakes one of two, and then says that the other waits"
	readyForEver    bug = "a node that a dead process has made ready stays ready"
	readyUnrung     bug = "a node is made ready, and the doorbell is not rung"
	takeThenListen  bug = "the poller empties its stack, and then reads the doorbell that it sleeps on"
	parkedUnserved  bug = "a handoff does not look for waiters behind the poller"
	pollersUnrung   bug = "a reap does not ring the pollers"
	closeDropsTaken bug = "Close passes a wake on if the node is ready, but not if the poller has taken the wake"
	closeDropsReady bug = "Close passes no wake on if the node is ready"
)

// parks reports whether the thread parks behind the poller when it sleeps.
func (m *mutexModel) parks(x *model.Exec) bool { return m.poller && x.Process() == 0 }

// node changes the state of the poller's node by one CAS, and reports whether the CAS succeeded.
func (m *mutexModel) node(x *model.Exec, from, to arenakernel.NodeState) bool {
	return x.CAS(wNode, uint8(from), uint8(to))
}

// park stands for Queue.park: the thread puts itself on the queue, sleeps, and takes itself off the queue.
func (m *mutexModel) park(x *model.Exec) {
	queue := x.Load(wQueue)
	if queue&queueLocked != 0 && (x.PC() == sEnlist || x.PC() == sDelist) {
		x.Disable()
		return
	}
	switch x.PC() {
	case sEnlist:
		x.Say("says that it waits")
		if x.Ghost[gHandle] == handleShut {
			// These steps stand for Queue.needNode.
			x.Ghost[gHandle] = handleOpen
			m.node(x, arenakernel.NodeFree, arenakernel.NodeIdle)
			m.node(x, arenakernel.NodeReady, arenakernel.NodeIdle)
		}
		x.Mem[wQueue] |= queueLocked
		x.Goto(sCompare)
		if m.bug == checkThenWait {
			if x.Load(wWake) != *x.R(rWake) {
				x.Mem[wQueue] &^= queueLocked
				x.Goto(sTry)
			}
			return
		}
		m.node(x, arenakernel.NodeIdle, arenakernel.NodeWaiting)
	case sCompare:
		x.Say("compares the word")
		if m.bug == checkThenWait {
			m.node(x, arenakernel.NodeIdle, arenakernel.NodeWaiting)
		} else if x.Load(wWake) != *x.R(rWake) && m.bug != parkUnchecked {
			x.Goto(sUnlist)
			return
		}
		x.Mem[wQueue] = enqueue(queue&^queueLocked, x.Me)
		x.Goto(sParked)
	case sUnlist:
		x.Say("does not wait after all")
		m.setIdle(x, queue&^queueLocked)
		x.Mem[wQueue] &^= queueLocked
		x.Goto(sTry)
	case sParked:
		x.Say("parks")
		var quit uint8
		if m.cancel {
			quit = sDelist
		}
		x.SleepDeep(sWoken, quit, model.Wait{Word: wChan + x.Me})
	case sDelist:
		x.Say("takes itself off the queue")
		rest := dequeue(queue, x.Me)
		x.Mem[wQueue], x.Mem[wChan+x.Me] = rest, 0
		if rest != queue {
			m.setIdle(x, rest)
		}
		x.Goto(sQuit)
	}
}

// close stands for Queue.Close. A thread calls it when no other thread of its process is in a call.
func (m *mutexModel) close(x *model.Exec) {
	poller := &x.Thread[len(m.threads)]
	busy := x.Ghost[gHandle] != handleOpen
	for i := range m.threads {
		busy = busy || m.threads[i] == 0 && x.Thread[i].PC != sIdle
	}
	switch poller.PC {
	case sWakeLost, sWakeOne, sReady, sPush, sRing, sWakeKernel: // the poller still uses the queue; see Queue.alive
		busy = true
	}
	if busy {
		x.Disable()
		return
	}
	x.Say("closes its handle")
	ready := x.Load(wNode) == uint8(arenakernel.NodeReady)
	if !ready {
		x.Update(wNode, func(uint8) uint8 { return uint8(arenakernel.NodeFree) })
	}
	if poller.PC == sPollerDeliver {
		poller.R[rFlags] |= fClosed
	}
	x.Ghost[gHandle] = handleClosing
	*x.R(rBack) = sClosed
	x.Goto(sWakeLost)
	if m.bug == closeDropsTaken && !ready || m.bug == closeDropsReady && ready {
		x.Goto(sClosed)
	}
}

// setIdle stands for Queue.setIdle.
func (m *mutexModel) setIdle(x *model.Exec, queue uint8) {
	if queue == 0 {
		m.node(x, arenakernel.NodeWaiting, arenakernel.NodeIdle)
	}
}

// enqueue puts a thread at the end of a queue, and dequeue takes a thread out of it.
func enqueue(queue uint8, thread int) uint8 {
	if queue == 0 {
		return uint8(thread + 1)
	}
	return queue | uint8(thread+1)<<2
}

func dequeue(queue uint8, thread int) uint8 {
	switch me := uint8(thread + 1); {
	case queue&3 == me:
		return queue >> 2
	case queue>>2 == me:
		return queue & 3
	}
	return queue
}

// ready stands for Arena.ready with the poller's node. Afterwards the thread goes on at the step in rBack. If the node
// cannot be made ready, the thread goes on at the step in the second parameter.
func (m *mutexModel) ready(x *model.Exec, none uint8) {
	switch x.PC() {
	case sReady:
		x.Say("makes a node ready")
		if !m.current(x, 0) || !m.node(x, arenakernel.NodeWaiting, arenakernel.NodeReady) {
			m.goOn(x, none)
			return
		}
		x.Goto(sPush)
	case sPush:
		x.Say("pushes it on the stack")
		x.Update(wStack, func(v uint8) uint8 { return v | 1 })
		x.Goto(sRing)
		if m.bug == readyUnrung {
			m.goOn(x, *x.R(rBack))
		}
	case sRing:
		x.Say("rings the doorbell")
		x.Update(wWakeWord, func(v uint8) uint8 { return v + 1 })
		x.Wake(wWakeWord, model.All)
		m.goOn(x, *x.R(rBack))
	}
}

// serve is a step of the poller.
func (m *mutexModel) serve(x *model.Exec) {
	switch x.PC() {
	case sIdle:
		x.Require()
		x.Goto(sPollerTake)
		x.Say("reads the doorbell")
		*x.R(rHand) = x.Load(wWakeWord)
		if m.bug == takeThenListen {
			m.takeReady(x)
		}
	case sPollerTake:
		if m.bug == takeThenListen {
			*x.R(rHand) = x.Load(wWakeWord)
			x.Goto(sPollerSleep)
			return
		}
		m.takeReady(x)
	case sPollerNode:
		x.Say("takes the node")
		x.Idle()
		if m.node(x, arenakernel.NodeReady, arenakernel.NodeIdle) {
			x.Goto(sPollerDeliver)
			if m.closes {
				x.Goto(sPollerFind)
			}
		}
	case sPollerFind:
		x.Say("looks whose node it is")
		x.Goto(sPollerDeliver)
		if x.Ghost[gHandle] != handleOpen {
			x.Idle()
		}
	case sPollerDeath:
		// The dead process may have made the node ready and then died before it pushed the node on
		// the ready stack. While the node stays ready, no other process pushes it, so the poller
		// would get no wakes.
		x.Say("looks at its node after a death")
		x.Idle()
		if m.bug != readyForEver && m.node(x, arenakernel.NodeReady, arenakernel.NodeIdle) || x.Load(wQueue)&^queueLocked != 0 {
			x.Goto(sPollerDeliver)
		}
	case sPollerDeliver:
		m.deliver(x)
	case sPollerRewait:
		x.Say("says that others wait")
		m.rewait(x)
		x.Goto(sPollerWake)
		if m.bug == wakeThenRewait {
			x.Mem[wQueue] &^= queueLocked
			x.Idle()
		}
	case sPollerWake:
		x.Say("delivers")
		x.Mem[wChan+int(*x.R(rDead))] = 1
		x.Wake(wChan+int(*x.R(rDead)), 1)
		if m.bug == wakeThenRewait {
			x.Goto(sPollerRewait)
			return
		}
		x.Mem[wQueue] &^= queueLocked
		x.Idle()
	case sPollerSleep:
		x.Say("sleeps")
		x.Sleep(sIdle, 0, model.Wait{Word: wWakeWord, Value: *x.R(rHand)})
	default:
		m.step(x)
	}
}

// takeReady is the step in which the poller checks its ready stack and the count of deaths.
func (m *mutexModel) takeReady(x *model.Exec) {
	x.Say("looks at its stack")
	what := x.Load(wStack)
	x.CAS(wStack, what, 0)
	switch {
	case what&1 != 0:
		x.Goto(sPollerNode)
		if what&2 != 0 {
			x.Mem[wStack] = 2 // the death is handled in the next round
		}
	case what&2 != 0:
		x.Goto(sPollerDeath)
	case what != 0:
		x.Idle()
	case m.bug != takeThenListen:
		x.Goto(sPollerSleep)
	}
}

// deliver stands for Queue.deliver.
func (m *mutexModel) deliver(x *model.Exec) {
	queue := x.Load(wQueue)
	switch {
	case m.flag(x, fClosed):
		x.Say("has a wake for a queue that is closed")
		x.Idle()
	case queue&queueLocked != 0:
		x.Disable()
	case queue == 0 && m.bug == wakeToNobody:
		x.Say("has a wake for nobody")
		x.Idle()
	case queue == 0:
		x.Say("has a wake for nobody")
		*x.R(rBack) = sIdle
		x.Goto(sWakeLost)
	default:
		x.Say("takes the first off the queue")
		first := queue&3 - 1
		x.Mem[wQueue] = dequeue(queue, int(first)) | queueLocked
		*x.R(rDead) = first
		x.Goto(sPollerRewait)
		if m.bug == wakeThenRewait {
			x.Goto(sPollerWake)
		}
	}
}

// rewait stands for setWaiting, which makes the node wait again if the queue still has parked threads.
func (m *mutexModel) rewait(x *model.Exec) {
	if x.Load(wQueue)&^queueLocked != 0 && m.bug != rewaitForgotten {
		m.node(x, arenakernel.NodeIdle, arenakernel.NodeWaiting)
	}
}

// TestModelMutexPoller explores a Mutex for which threads of process 0 wait behind a poller, and a thread of process
// 1 sleeps in the kernel.
func TestModelMutexPoller(t *testing.T) {
	bugs := []bug{wakeToNobody, parkUnchecked, checkThenWait, rewaitForgotten, wakeThenRewait, readyUnrung, takeThenListen}
	few := mutexModel{threads: []int{0, 0, 1}, modes: noBiased, poller: true}
	canceled := mutexModel{threads: []int{0, 0, 1}, modes: noBiased, cancel: true, poller: true}
	mixed := mutexModel{threads: []int{0, 1}, modes: anyHold, cancel: true, poller: true}
	handoff := mutexModel{threads: []int{0, 1}, modes: noBiased, cancel: true, handoffs: true, poller: true}
	requireModels(t, []exploration{
		{"two and one", large, few.explore, bugs},
		{"two and one, canceled", large, canceled.explore, bugs},
		{"one and one, some biased", small, mixed.explore, nil},
		{"hand-off", small, handoff.explore, []bug{parkedUnserved, wakeToNobody}},
	})
}

// TestModelMutexPollerClose explores a Mutex while process 0, whose threads wait behind a poller, closes its handle
// and opens it again.
func TestModelMutexPollerClose(t *testing.T) {
	bugs := []bug{closeDropsTaken, closeDropsReady}
	handoff := mutexModel{threads: []int{0, 1}, modes: noBiased, cancel: true, handoffs: true, poller: true, closes: true}
	two := mutexModel{threads: []int{0, 1, 1}, modes: noBiased, poller: true, closes: true}
	requireModels(t, []exploration{
		{"one and one, hand-off", large, handoff.explore, bugs},
		{"one and two", large, two.explore, bugs},
	})
}

// TestModelMutexPollerDeath explores a Mutex while a process dies. That process has waiters behind a poller, or wakes
// such waiters.
func TestModelMutexPollerDeath(t *testing.T) {
	two := mutexModel{threads: []int{0, 1}, modes: noBiased, cancel: true, kills: 1, policy: PolicyReport, poller: true}
	successor := mutexModel{threads: []int{0, 0, 1}, modes: noBiased, poller: true, successor: true}
	requireModels(t, []exploration{
		{"one and one", small, two.explore, []bug{pollersUnrung}},
		{"after a death", large, successor.explore, []bug{readyForEver}},
	})
}
