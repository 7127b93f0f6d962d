//go:build linux

package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/model"
)

// The states of a node.
const (
	seqQIdle uint8 = iota
	qQueued
	qAsleep
	qLeft
	qResolved
)

// The words of the model of an Event with automatic reset. Each of the two waiters is a
// participant. The stamps say which waits are queued; the monitor has the list.
const (
	vState = iota // an tokenState
	vNext         // 0 if nobody is queued
	vLatch        // 0, or 1 plus the thread that holds it
	vSpare
	vNode   // state of the node of each waiter
	vStamp  = vNode + eventModelWaiters
	vHanded = vStamp + eventModelWaiters
	vAcked  = vHanded + eventModelWaiters
)

const eventModelWaiters = 2

// The states of a node are those of the model of a sequence, and these.
const (
	vResolvedHand = qResolved + iota
	vResolvedSpare
)

// A stamp says that a node is queued, or that its wait is over, and whether that is accounted
// for.
const (
	vStamped   = 1
	vAccounted = 2
)

// The registers of a thread.
const (
	rvSeen  = iota // the state that it has seen
	rvWakes        // the waiters that it has to wake, one bit each
	rvThen         // the step after it has got the queue lock
	rvAfter        // the step after resolving
	rvLast         // the step after the wakes
	rvWho          // 1 plus the waiter whose wait it ends
)

// Ghost counters, which no thread reads.
const (
	gvReaped = iota
	gvMade   // tokens that were made
	gvTaken
	gvDropped // sets without effect, because there was a token already
)

// The steps of a thread.
const (
	vsIdle uint8 = iota
	vsClaimNext
	vsClaimSwap
	vsEnter
	vsReplay
	vsResolve
	vsForget
	vsGive
	vsAccount
	vsDrop
	vsResolved
	vsWake
	vsClaimLocked
	vsQueue
	vsAnnounce
	vsSleep
	vsGiveUp
	vsUnlink
	vsBack
	vsSetSwap
	vsSetNext
	vsAloneNext
	vsAloneState
	vsSetLocked
	vsFence
	vsReap
	vsWakeAll
	vsReaped
	vsLeave
)

// eventModel is an Event, two waiters, and its setters.
type eventModel struct {
	setters int
	sets    uint8 // number of tokens that are made
	giveUp  bool
	kills   int

	bug bug
}

func (m eventModel) explore(b bug) model.Result {
	m.bug = b
	y := model.System{
		Kills: m.kills, Check: m.check, Show: m.show,
		MaySleep: func(s *model.Sys, i int) bool { return vPlace(s) == tokenUnset && s.Mem[vSpare] == 0 },
		Done:     m.conserved,
	}
	for i := range eventModelWaiters {
		y.Threads = append(y.Threads, model.ThreadSpec{Name: fmt.Sprint("W", i), Process: i, Run: m.wait, Mortal: m.kills > 0})
	}
	for i := range m.setters {
		y.Threads = append(y.Threads, model.ThreadSpec{Name: fmt.Sprint("S", i), Process: eventModelWaiters + i, Run: m.set, Mortal: m.kills > 0})
	}
	if m.kills > 0 {
		y.Threads = append(y.Threads, model.ThreadSpec{Name: "reaper", Process: model.Threads - 1, Run: m.reap})
	}
	return y.Explore()
}

func vPlace(s *model.Sys) tokenState { return tokenState(s.Mem[vState]).place() }

// check: no token is taken that was not made.
func (m *eventModel) check(s *model.Sys) error {
	if s.Ghost[gvTaken]+s.Ghost[gvDropped] > s.Ghost[gvMade] {
		return fmt.Errorf("%d tokens made, %d taken, %d dropped", s.Ghost[gvMade], s.Ghost[gvTaken], s.Ghost[gvDropped])
	}
	return nil
}

// conserved: when nothing happens any more, each token was taken, or is there.
func (m *eventModel) conserved(s *model.Sys) bool {
	there := uint8(0)
	if vPlace(s) == tokenSet {
		there = 1
	}
	return !m.unreaped(s) && s.Ghost[gvMade] == s.Ghost[gvTaken]+s.Ghost[gvDropped]+there && s.Mem[vSpare] == 0
}

func (m *eventModel) unreaped(s *model.Sys) bool {
	for p, l := range s.Life {
		if l != model.Alive && s.Ghost[gvReaped]&(1<<p) == 0 {
			return true
		}
	}
	return false
}

func (m *eventModel) show(s *model.Sys) string {
	return fmt.Sprintf("%v, next %d, latch %d, spare %d, nodes %v, stamps %v, handed %v, acked %v, ghosts %v", tokenState(s.Mem[vState]), s.Mem[vNext], s.Mem[vLatch],
		s.Mem[vSpare], s.Mem[vNode:vStamp], s.Mem[vStamp:vHanded], s.Mem[vHanded:vAcked], s.Mem[vAcked:vAcked+2], s.Ghost)
}

// swap is the CAS of the state.
func (m *eventModel) swap(x *model.Exec, seen uint8, place tokenState) bool {
	return x.CAS(vState, seen, uint8(tokenState(seen).to(place)))
}

func (m *eventModel) gone(x *model.Exec, thread int) bool { return x.LifeOf(thread) == model.Gone }

// first is the first queued waiter that is alive.
func (m *eventModel) first(x *model.Exec) (who int, ok bool) {
	for i := range eventModelWaiters {
		if x.Load(vStamp+i) == vStamped && !m.gone(x, i) {
			switch x.Load(vNode + i) {
			case qQueued, qAsleep:
				return i, true
			}
		}
	}
	return 0, false
}

// locked carries out the steps that all threads share. It reports whether it took one.
func (m *eventModel) locked(x *model.Exec) bool {
	who := int(*x.R(rvWho)) - 1
	switch x.PC() {
	case vsEnter:
		x.Say("takes the queue lock")
		switch owner := x.Load(vLatch); {
		case owner == 0:
			x.CAS(vLatch, 0, uint8(x.Me+1))
			x.Goto(*x.R(rvThen))
		case m.gone(x, int(owner-1)):
			x.Say("takes the queue lock after a death")
			x.CAS(vLatch, owner, uint8(x.Me+1))
			set(x, vNext, 1)
			x.Goto(vsReplay)
		default:
			refence(x, int(owner-1))
		}
	case vsReplay:
		x.Say("replays")
		for i := range eventModelWaiters {
			switch over := x.Load(vNode+i) >= vResolvedHand; {
			case x.Load(vStamp+i) == vAccounted, x.Load(vStamp+i) != 0 && m.gone(x, i) && !over:
				set(x, vStamp+i, 0)
			case x.Load(vStamp+i) == vStamped && over:
				*x.R(rvWho) = uint8(i + 1)
				if *x.R(rvThen) != vsResolve {
					*x.R(rvAfter) = *x.R(rvThen)
				}
				x.Goto(vsGive)
				return true
			}
		}
		x.Goto(*x.R(rvThen))
	case vsResolve:
		m.resolve(x)
	case vsForget:
		x.Say("forgets the spare ones")
		if s := x.Load(vState); tokenState(s).place() == tokenTaken {
			m.swap(x, s, tokenSet)
		}
		x.Goto(vsResolve)
	case vsGive:
		x.Say("takes the token out of the hand")
		from := tokenHand
		if m.bug == eventHandsUntaken {
			from = tokenSet
		}
		if s := x.Load(vState); x.Load(vNode+who) == vResolvedHand && tokenState(s).place() == from {
			m.swap(x, s, tokenUnset)
		}
		x.Goto(vsAccount)
	case vsAccount:
		x.Say("attributes it")
		if m.bug != eventUnattributed {
			set(x, vHanded+who, x.Load(vHanded+who)+1)
		}
		if x.Load(vNode+who) == vResolvedSpare {
			set(x, vSpare, x.Load(vSpare)-1)
		}
		set(x, vStamp+who, vAccounted)
		x.Goto(vsDrop)
	case vsDrop:
		x.Say("drops the stamp")
		set(x, vStamp+who, 0)
		*x.R(rvWho) = 0
		x.Goto(vsResolve)
	case vsLeave:
		x.Say("leaves the queue lock")
		set(x, vLatch, 0)
		x.Goto(vsWake)
	case vsWake:
		wakes := x.R(rvWakes)
		for i := range eventModelWaiters {
			if *wakes&(1<<i) != 0 {
				x.Say(fmt.Sprintf("wakes W%d", i))
				*wakes &^= 1 << i
				x.Wake(vNode+i, 1)
				return true
			}
		}
		x.Say("has nobody to wake")
		m.goOn(x, *x.R(rvLast))
	default:
		return false
	}
	return true
}

// resolve is one round of resolving.
func (m *eventModel) resolve(x *model.Exec) {
	s := x.Load(vState)
	place := tokenState(s).place()
	who, queued := m.first(x)
	spare := x.Load(vSpare)
	grant := func(result uint8) {
		x.Say(fmt.Sprintf("ends the wait of W%d", who))
		if x.Load(vNode+who) == qAsleep {
			*x.R(rvWakes) |= 1 << who
		}
		set(x, vNode+who, result)
		*x.R(rvWho) = uint8(who + 1)
		x.Goto(vsGive)
	}
	x.Say("resolves")
	switch {
	case place == tokenTaken:
		set(x, vSpare, 0)
		x.Goto(vsForget)
	case queued && place == tokenHand:
		grant(vResolvedHand)
	case queued && spare > 0:
		grant(vResolvedSpare)
	case queued && place == tokenSet:
		if m.bug == eventHandsUntaken {
			grant(vResolvedHand)
			return
		}
		m.swap(x, s, tokenHand)
	case queued:
		x.Goto(*x.R(rvAfter))
	case place == tokenHand:
		m.swap(x, s, tokenSet)
	case spare > 0:
		if m.swap(x, s, tokenTaken) {
			x.Ghost[gvDropped] += spare - 1
			if place == tokenSet {
				x.Ghost[gvDropped]++
			}
		}
	default:
		set(x, vNext, 0)
		x.Goto(*x.R(rvAfter))
	}
}

// goOn goes to a step. If the thread becomes idle, goOn clears its registers.
func (m *eventModel) goOn(x *model.Exec, pc uint8) {
	x.Goto(pc)
	if pc == vsIdle {
		for r := range model.Registers {
			*x.R(r) = 0
		}
		x.Idle()
	}
}

// wait is Wait.
func (m *eventModel) wait(x *model.Exec) {
	if m.locked(x) {
		return
	}
	seen, node := x.R(rvSeen), vNode+x.Me
	slow := func() {
		*seen = 0
		*x.R(rvThen), *x.R(rvAfter), *x.R(rvLast) = vsResolve, vsClaimLocked, vsSleep
		x.Goto(vsEnter)
	}
	claimed := func() {
		x.Ghost[gvTaken]++
	}
	switch x.PC() {
	case vsIdle:
		x.Say("calls Wait")
		*seen = x.Load(vState)
		x.Goto(vsClaimNext)
		if tokenState(*seen).place() != tokenSet {
			slow()
		}
	case vsClaimNext:
		x.Say("looks whether somebody is queued")
		x.Goto(vsClaimSwap)
		if x.Load(vNext) != 0 {
			slow()
		}
	case vsClaimSwap:
		x.Say("takes the token")
		if m.swap(x, *seen, tokenUnset) {
			claimed()
			m.goOn(x, vsIdle)
			return
		}
		slow()
	case vsClaimLocked:
		x.Say("looks again")
		x.Goto(vsQueue)
		if s := x.Load(vState); tokenState(s).place() == tokenSet && x.Load(vNext) == 0 && m.swap(x, s, tokenUnset) {
			claimed()
			*x.R(rvLast) = vsIdle
			x.Goto(vsLeave)
		}
	case vsQueue:
		x.Say("queues")
		set(x, node, qQueued)
		set(x, vStamp+x.Me, vStamped)
		x.Goto(vsAnnounce)
	case vsAnnounce:
		x.Say("announces itself")
		set(x, vNext, 1)
		*x.R(rvAfter) = vsLeave
		x.Goto(vsResolve)
		if m.bug == eventNoSecondCheck {
			x.Goto(vsLeave)
		}
	case vsSleep:
		switch x.Load(node) {
		case vResolvedHand, vResolvedSpare:
			x.Say("knows that it has the token")
			set(x, vAcked+x.Me, x.Load(vAcked+x.Me)+1)
			claimed()
			x.Goto(vsBack)
		case qQueued:
			x.Say("goes to sleep")
			x.CAS(node, qQueued, qAsleep)
		default:
			x.Say("sleeps")
			quit := uint8(0)
			if m.giveUp {
				quit = vsGiveUp
			}
			x.Sleep(vsSleep, quit, model.Wait{Word: node, Value: qAsleep})
		}
	case vsBack:
		x.Say("keeps its node")
		if x.Load(vStamp+x.Me) != 0 {
			x.Disable() // this thread would take a second token
			return
		}
		set(x, node, qIdle)
		m.goOn(x, vsIdle)
	case vsGiveUp:
		x.Say("gives up")
		x.Goto(vsSleep)
		if x.CAS(node, qAsleep, qLeft) {
			*x.R(rvThen), *x.R(rvLast) = vsUnlink, vsIdle
			x.Goto(vsEnter)
		}
	case vsUnlink:
		x.Say("unlinks its node")
		set(x, vStamp+x.Me, 0)
		set(x, node, qIdle)
		*x.R(rvAfter) = vsLeave
		x.Goto(vsResolve)
	}
}

// set is Set.
func (m *eventModel) set(x *model.Exec) {
	if m.locked(x) {
		return
	}
	seen := x.R(rvSeen)
	slow := func(after uint8) {
		*seen = 0
		*x.R(rvThen), *x.R(rvAfter), *x.R(rvLast) = vsResolve, after, vsIdle
		x.Goto(vsEnter)
	}
	switch x.PC() {
	case vsIdle:
		x.Say("calls Set")
		if x.Ghost[gvMade] >= m.sets {
			x.Disable()
		}
		*seen = x.Load(vState)
		switch tokenState(*seen).place() {
		case tokenSet:
			x.Goto(vsAloneNext)
		case tokenUnset:
			x.Goto(vsSetSwap)
		default:
			slow(vsSetLocked)
		}
	case vsSetSwap:
		x.Say("sets")
		if m.swap(x, *seen, tokenSet) {
			x.Ghost[gvMade]++
			*seen = 0
			x.Goto(vsSetNext)
			return
		}
		slow(vsSetLocked)
	case vsSetNext:
		x.Say("looks whether somebody is queued")
		if x.Load(vNext) == 0 {
			m.goOn(x, vsIdle)
			return
		}
		slow(vsLeave)
	case vsAloneNext:
		x.Say("looks whether somebody is queued")
		x.Goto(vsAloneState)
		if x.Load(vNext) != 0 {
			slow(vsSetLocked)
		}
	case vsAloneState:
		x.Say("looks whether it is set still")
		if x.Load(vState) == *seen {
			m.goOn(x, vsIdle)
			return
		}
		slow(vsSetLocked)
	case vsSetLocked:
		x.Say("sets, with the queue lock")
		s := x.Load(vState)
		*x.R(rvAfter) = vsLeave
		x.Goto(vsResolve)
		switch {
		case tokenState(s).place() == tokenSet:
			x.Goto(vsLeave)
		case m.swap(x, s, tokenSet):
			x.Ghost[gvMade]++
		}
	}
}

// reap reaps the dead.
func (m *eventModel) reap(x *model.Exec) {
	if m.locked(x) {
		return
	}
	switch x.PC() {
	case vsIdle:
		if !m.unreaped(x.Sys) {
			x.Disable()
		}
		x.Say("sees a death")
		x.Require()
		*x.R(rvThen), *x.R(rvAfter), *x.R(rvLast) = vsReap, vsReap, vsWakeAll
		x.Goto(vsFence)
	case vsFence:
		x.Say("fences the dying")
		x.Membarrier()
		x.Goto(vsEnter)
	case vsReap:
		x.Say("takes back what the dead do not know")
		for i := range eventModelWaiters {
			if n := x.Load(vHanded+i) - x.Load(vAcked+i); n > 0 && m.gone(x, i) {
				set(x, vHanded+i, x.Load(vAcked+i))
				set(x, vSpare, x.Load(vSpare)+n)
			}
			if m.gone(x, i) {
				set(x, vStamp+i, 0)
			}
		}
		*x.R(rvAfter) = vsLeave
		x.Goto(vsResolve)
	case vsWakeAll:
		x.Say("wakes all whose wait is over")
		for i := range eventModelWaiters {
			if x.Load(vNode+i) >= vResolvedHand {
				x.Wake(vNode+i, model.All)
			}
		}
		x.Goto(vsReaped)
	case vsReaped:
		x.Say("has reaped it")
		for p, l := range x.Life {
			if l == model.Gone {
				x.Ghost[gvReaped] |= 1 << p
			}
		}
		m.goOn(x, vsIdle)
	}
}

func set(x *model.Exec, w int, v uint8) { x.Update(w, func(uint8) uint8 { return v }) }

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
