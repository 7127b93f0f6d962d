//go:build linux

package prims

import (
	"github.com/shmsync/shmsync/internal/model"
	"github.com/shmsync/shmsync/internal/park"
)

// step makes one step of a thread, which locks and unlocks for ever.
func (m *mutexModel) step(x *model.Exec) {
	switch x.PC() {
	case sIdle:
		m.call(x)
	case sWoken:
		m.woken(x)
	case sTry, sQuit:
		m.try(x)
	case sTook, sUnask:
		m.took(x)
	case sInside, sRelease, sLookWake:
		m.unlock(x)
	case sAskAfter, sReserve, sTakeAsk, sRevoke, sBumpHand, sWakeHand, sTouch:
		m.reserve(x)
	case sAsk, sHand, sAnnounce, sLook, sFence, sLookAgain, sRecord, sSleep:
		m.sleep(x)
	case sLeave, sGiveBack, sLeaveAnnounce, sLeaveLook, sLeaveFence:
		m.leave(x)
	case sWakeNext, sWakeOne, sWakeKernel:
		m.wakeNext(x)
	case sClosed:
		x.Ghost[gHandle] = handleShut
		x.Idle()
	case sEnlist, sCompare, sUnlist, sParked, sDelist:
		m.park(x)
	case sReady, sPush, sRing:
		m.readyOrKernel(x)
	default:
		m.meetDeath(x)
	}
}

func (m *mutexModel) flag(x *model.Exec, f uint8) bool { return *x.R(rFlags)&f != 0 }
func (m *mutexModel) set(x *model.Exec, f uint8)       { *x.R(rFlags) |= f }
func (m *mutexModel) unset(x *model.Exec, f uint8)     { *x.R(rFlags) &^= f }

// current stands for Arena.current: it reports whether process p is not marked dead.
func (m *mutexModel) current(x *model.Exec, p int) bool { return x.Load(wDead)&(1<<p) == 0 }

// call begins a call of a thread.
func (m *mutexModel) call(x *model.Exec) {
	modes, closes := len(m.modes), 0
	if m.closes && x.Process() == 0 {
		closes = 1
	}
	k := x.Choose(modes + m.recoverers + closes)
	switch {
	case closes == 1 && x.Ghost[gHandle] == handleClosing:
		x.Disable() // a process opens its handle again only after Close has ended
		return
	case k == modes+m.recoverers:
		m.close(x)
		return
	}
	if k < modes {
		x.Say("calls Lock")
		*x.R(rMode) = m.modes[k]
		x.Goto(sTry)
		return
	}
	o := unpack(x.Load(wOwner))
	if o.kind() != kindOwnerDead && o != ownerNotRecoverable {
		x.Disable()
		return
	}
	x.Say("calls Recover")
	if x.CAS(wOwner, pack(o), pack(makeOwner(kindRecovering, nameOf(x.Process())))) {
		x.Ghost[gDirty] = 0
		m.set(x, fInside)
		x.Goto(sRecoverEnd)
	}
}

// woken is the step after a sleep. Even if the thread was woken, its context may have ended.
func (m *mutexModel) woken(x *model.Exec) {
	x.Goto(sTry)
	if m.parks(x) {
		x.Mem[wChan+x.Me] = 0
	}
	if m.cancel && x.Choose(2) == 1 {
		x.Optional()
		x.Goto(sQuit)
	}
	m.try(x)
}

// try is one iteration of acquire, or of lastTry when the context has ended. In one step, it reads the owner word and
// takes the lock if it is free. The code needs two steps. If the word changes between the two, the CAS fails and
// changes nothing.
func (m *mutexModel) try(x *model.Exec) {
	m.unset(x, fRecord)
	*x.R(rOwner), *x.R(rWake), *x.R(rHand), *x.R(rBack), *x.R(rDead) = 0, 0, 0, 0, 0
	self := nameOf(x.Process())
	o := unpack(x.Load(wOwner))
	dead := o.participant() != 0 && (x.LifeOf(processOf(o)) != model.Alive || !m.current(x, processOf(o)))
	switch {
	case o.free():
		x.Say("takes the lock")
		if x.CAS(wOwner, pack(o), *x.R(rMode)<<5|uint8(self)) {
			m.acquired(x)
		}
	case o.kind() == kindReserved && o.participant() == self && m.slept(x):
		x.Say("takes the lock, reserved")
		if x.CAS(wOwner, pack(o), uint8(self)) {
			m.acquired(x)
		}
	case o.kind() == kindOwnerDead || o == ownerNotRecoverable:
		x.Say("is told of the owner's death")
		x.Goto(sLeave)
		if m.bug == toldOnesKeepIt {
			x.Idle()
		}
	case dead:
		x.Say("sees that the owner is dead")
		*x.R(rOwner), *x.R(rDead), *x.R(rBack) = pack(o), uint8(processOf(o)), x.PC()
		x.Goto(sFenceDead)
		if !m.current(x, processOf(o)) {
			x.Goto(sMarkOwnerDead)
		}
	case x.PC() == sQuit:
		x.Say("gives up")
		x.Goto(sLeave)
	default:
		x.Say("sees that the lock is held")
		x.Goto(sAnnounce)
		if m.handoffs {
			x.Goto(sAsk)
		}
	}
}

// slept reports whether the thread has slept, so that it may take a reservation of its process.
func (m *mutexModel) slept(x *model.Exec) bool { return m.flag(x, fSlept) && m.bug != sleptForgotten }

func (m *mutexModel) acquired(x *model.Exec) {
	if x.Ghost[gDirty] != 0 {
		x.Ghost[gWrong] = 1
	}
	m.set(x, fInside)
	x.Goto(sTook)
	m.skipTook(x)
}

// skipTook skips the steps of took that this thread need not make.
func (m *mutexModel) skipTook(x *model.Exec) {
	if x.PC() == sTook && (!m.flag(x, fSlept) || m.bug == noAnnounceAfterSleep) {
		x.Goto(sUnask)
	}
	if x.PC() == sUnask && !m.flag(x, fAsked) {
		*x.R(rFlags), *x.R(rMode) = fInside, 0
		x.Goto(sInside)
	}
}

// took stands for waiter.took.
func (m *mutexModel) took(x *model.Exec) {
	switch x.PC() {
	case sTook:
		x.Say("announces for the others")
		m.announce(x)
		x.Goto(sUnask)
	case sUnask:
		x.Say("takes its request back")
		x.CAS(wStarving, uint8(nameOf(x.Process())), 0)
		m.unset(x, fAsked)
	}
	m.skipTook(x)
}

// announce stands for WakeWord.Announce.
func (m *mutexModel) announce(x *model.Exec) uint8 {
	w := x.Load(wWake)
	if !park.Word(w).Announced() {
		x.CAS(wWake, w, w|1)
		w |= 1
	}
	return w
}

// unlock is a step of Unlock.
func (m *mutexModel) unlock(x *model.Exec) {
	self := nameOf(x.Process())
	o := unpack(x.Load(wOwner))
	switch x.PC() {
	case sInside:
		switch {
		case o.participant() != self:
			x.Say("finds that the lock is not its own")
			x.Ghost[gWrong] = 1
			x.Idle()
		case o.kind() == kindBiased && m.bug == wakeBeforeRelease:
			m.lookWake(x, sRelease)
		case o.kind() == kindBiased:
			x.Say("stores 0")
			x.Store(wOwner, 0)
			m.unset(x, fInside)
			x.Goto(sLookWake)
		case m.handoffs && x.Load(wStarving) != 0 && x.Choose(2) == 0:
			// If a Mutex can have biased holds, the unlock of a hold that is not biased takes the slow path. The slow
			// path checks starving before it frees the lock. Other unlocks check starving afterwards.
			x.Say("sees that somebody starves")
			*x.R(rOwner) = x.Load(wStarving)
			x.Goto(sReserve)
		case m.bug == wakeBeforeRelease:
			m.lookWake(x, sRelease)
		default:
			m.release(x, sLookWake)
		}
	case sRelease:
		then := sLookWake
		if m.bug == wakeBeforeRelease {
			then = sIdle
		}
		m.release(x, then)
	case sLookWake:
		m.lookWake(x, sIdle)
	}
}

// release frees the lock. Afterwards the thread goes on at the step in the second parameter.
func (m *mutexModel) release(x *model.Exec, then uint8) {
	x.Say("frees the lock")
	o := x.Load(wOwner)
	if unpack(o).kind() == kindBiased {
		x.Store(wOwner, 0)
	} else if !x.CAS(wOwner, o, 0) {
		x.Ghost[gWrong] = 1
	}
	m.unset(x, fInside)
	m.goOn(x, then)
}

// goOn makes the thread go on at a step. If that is sIdle, the thread forgets all its registers.
func (m *mutexModel) goOn(x *model.Exec, at uint8) {
	if at == sIdle {
		x.Idle()
		return
	}
	x.Goto(at)
}

// lookWake makes a wake if a waiter has announced itself. Afterwards the thread goes on at the step in the second
// parameter.
func (m *mutexModel) lookWake(x *model.Exec, then uint8) {
	x.Say("looks whether to wake")
	if !park.Word(x.Load(wWake)).Announced() {
		m.goOn(x, then)
		return
	}
	*x.R(rBack) = then
	x.Goto(sWakeNext)
	if m.handoffs && then == sIdle {
		x.Goto(sAskAfter)
	}
}
