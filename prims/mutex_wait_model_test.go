//go:build linux

package prims

import (
	"github.com/shmsync/shmsync/internal/model"
	"github.com/shmsync/shmsync/internal/park"
)

// sleep stands for waiter.sleep.
func (m *mutexModel) sleep(x *model.Exec) {
	self := uint8(nameOf(x.Process()))
	switch x.PC() {
	case sAsk:
		m.ask(x, self)
	case sHand:
		x.Say("reads the handoff word")
		*x.R(rHand) = x.Load(wHandoff)
		x.Goto(sAnnounce)
	case sAnnounce:
		x.Say("announces")
		*x.R(rWake) = m.announce(x)
		x.Goto(sLook)
	case sLook:
		o := unpack(x.Load(wOwner))
		if o.kind() == kindBiased && m.bug != noFence {
			x.Say("sees a biased hold")
			*x.R(rOwner) = pack(o)
			x.Goto(sFence)
			return
		}
		x.Say("looks again")
		m.decide(x, o)
	case sFence:
		x.Say("fences")
		x.Membarrier()
		x.Goto(sLookAgain)
		if m.bug == noLookAfterFence {
			m.decide(x, unpack(*x.R(rOwner)))
		}
	case sLookAgain:
		x.Say("looks once more")
		m.decide(x, unpack(x.Load(wOwner)))
	case sRecord:
		x.Say("writes its record")
		m.set(x, fRecord)
		x.Goto(sSleep)
	case sSleep:
		m.goToSleep(x)
	}
}

// ask chooses at random whether the thread asks for a handoff. In the code, a thread asks if it has lost for long and
// if the last handoff was long enough ago. In the model, that can be so at any step. The request is optional: no thread
// may rely on it. If another thread of the process has used up the request, ask makes it again.
func (m *mutexModel) ask(x *model.Exec, self uint8) {
	asks := false
	if m.flag(x, fSlept) {
		asks = x.Choose(2) == 1
		if asks {
			x.Optional()
		}
	}
	x.Goto(sAnnounce)
	switch {
	case !asks:
		x.Say("does not ask for a handoff")
	case m.bug == staleStarver && m.flag(x, fAsked):
		x.Say("believes that its request stands")
	case x.Load(wStarving) == self || x.CAS(wStarving, 0, self):
		x.Say("asks for a handoff")
		m.set(x, fAsked)
	default:
		x.Say("sees that a waiter of another process has asked")
		m.unset(x, fAsked)
	}
	if m.flag(x, fAsked) {
		x.Goto(sHand)
	}
}

// decide makes the thread sleep if a waiter may sleep while the owner word is o.
func (m *mutexModel) decide(x *model.Exec, o ownerWord) {
	switch {
	case !m.blocks(x, o):
		x.Goto(sTry)
	case m.parks(x):
		x.Goto(sEnlist)
	case m.reaper:
		x.Goto(sRecord)
	default:
		x.Goto(sSleep)
	}
	if x.PC() != sTry {
		*x.R(rOwner) = 0
		if m.bug == sleepOnOwner {
			*x.R(rOwner) = pack(o)
		}
		m.set(x, fSlept)
	}
}

// blocks stands for Mutex.blocks.
func (m *mutexModel) blocks(x *model.Exec, o ownerWord) bool {
	switch {
	case o.held():
		return m.current(x, processOf(o))
	case o.kind() == kindReserved:
		return (o.participant() != nameOf(x.Process()) || !m.slept(x) && x.PC() != sLeaveLook && x.PC() != sLeaveFence) && m.current(x, processOf(o))
	}
	return false
}

func (m *mutexModel) goToSleep(x *model.Exec) {
	var quit uint8
	if m.cancel {
		quit = sQuit
		if x.Choose(2) == 1 {
			x.Say("finds that its context has ended")
			x.Optional()
			x.Goto(sQuit)
			return
		}
	}
	x.Say("sleeps")
	wake := model.Wait{Word: wWake, Value: *x.R(rWake)}
	hand := model.Wait{Word: wHandoff, Value: *x.R(rHand)}
	switch {
	case m.bug == sleepOnOwner:
		x.Sleep(sWoken, quit, model.Wait{Word: wOwner, Value: *x.R(rOwner)})
	case !m.flag(x, fAsked):
		x.Sleep(sWoken, quit, wake)
	case m.bug == sleepOnHandoffOnly, m.bug == staleStarver:
		x.Sleep(sWoken, quit, hand)
	default:
		x.Sleep(sWoken, quit, wake, hand)
	}
}

// leave stands for waiter.leave.
func (m *mutexModel) leave(x *model.Exec) {
	self := nameOf(x.Process())
	switch x.PC() {
	case sLeave:
		x.Goto(sGiveBack)
		if !m.handoffs {
			m.leaveOthers(x)
		}
		if m.flag(x, fAsked) {
			x.Say("takes its request back")
			x.CAS(wStarving, uint8(self), 0)
			return
		}
		x.Say("leaves")
	case sGiveBack:
		x.Say("gives a reservation back")
		if x.CAS(wOwner, pack(makeOwner(kindReserved, self)), 0) {
			m.set(x, fGaveBack)
		}
		m.leaveOthers(x)
	case sLeaveAnnounce:
		x.Say("announces for the others")
		m.announce(x)
		x.Goto(sLeaveLook)
	case sLeaveLook, sLeaveFence:
		o := unpack(x.Load(wOwner))
		if x.PC() == sLeaveFence {
			x.Say("fences and checks again")
			x.Membarrier()
			o = unpack(x.Load(wOwner))
		} else if o.kind() == kindBiased && m.bug != noFence {
			x.Say("sees a biased hold")
			x.Goto(sLeaveFence)
			return
		} else {
			x.Say("looks whether somebody will wake them")
		}
		if m.blocks(x, o) || m.bug == leaveDoesNotWake {
			x.Idle()
			return
		}
		*x.R(rBack) = sIdle
		x.Goto(sWakeNext)
	}
}

// leaveOthers makes the thread go on with the last steps of leave. They ensure that the other waiters lose no wake.
func (m *mutexModel) leaveOthers(x *model.Exec) {
	switch {
	case m.bug == leaveAtOnce, !m.flag(x, fSlept|fGaveBack):
		x.Idle()
	case m.bug == leaveWithoutAnnounce:
		x.Goto(sLeaveLook)
	default:
		x.Goto(sLeaveAnnounce)
	}
}

// wakeNext stands for WakeWord.Release. The thread goes on at rBack.
func (m *mutexModel) wakeNext(x *model.Exec) {
	if x.PC() != sWakeNext {
		m.wakeOne(x)
		return
	}
	x.Say("bumps")
	w := park.Word(x.Load(wWake))
	if !w.Announced() {
		m.goOn(x, *x.R(rBack))
		return
	}
	next := uint8(w.Bumped())
	if m.bitOnly {
		next = uint8(w &^ 1)
	}
	x.CAS(wWake, uint8(w), next)
	x.Goto(sWakeOne)
}

// wakeOne stands for WaitList.DeliverOne. DeliverOne begins with the sleepers in the kernel or with the pollers,
// depending on the sequence. The model chooses at random.
func (m *mutexModel) wakeOne(x *model.Exec) {
	x.Say("wakes one")
	if m.poller && x.PC() == sWakeOne && x.Choose(2) == 1 {
		x.Say("turns to the pollers first")
		m.set(x, fPollerFirst)
		x.Goto(sReady)
		return
	}
	w := wWake
	if m.bug == sleepOnOwner {
		w = wOwner
	}
	woken := x.Wake(w, 1)
	if m.poller && woken == 0 && x.PC() == sWakeOne {
		x.Goto(sReady)
		return
	}
	m.unset(x, fPollerFirst)
	m.goOn(x, *x.R(rBack))
}

// readyOrKernel makes the poller's node ready. If the node is not waiting, the next step depends on what wakeOne has
// tried before. If wakeOne began with the pollers, the thread now wakes a sleeper in the kernel. If wakeOne has tried
// the kernel already, the thread goes on at rBack.
func (m *mutexModel) readyOrKernel(x *model.Exec) {
	none := *x.R(rBack)
	if m.flag(x, fPollerFirst) {
		none = sWakeKernel
	}
	m.ready(x, none)
	if x.PC() != sPush && x.PC() != sRing && x.PC() != sWakeKernel {
		m.unset(x, fPollerFirst)
	}
}
