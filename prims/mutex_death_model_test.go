//go:build linux

package prims

import (
	"github.com/shmsync/shmsync/internal/model"
	"github.com/shmsync/shmsync/internal/park"
)

// meetDeath has the steps of a thread that finds a dead owner, and those of Recover.
func (m *mutexModel) meetDeath(x *model.Exec) {
	p := int(*x.R(rDead))
	switch x.PC() {
	case sFenceDead:
		x.Say("fences the dying")
		if m.bug != noFenceBeforeRepair {
			x.Membarrier()
		}
		x.Goto(sMark)
	case sMark:
		x.Say("marks the slot dead")
		m.mark(x, p)
		x.Goto(sMarkOwnerDead)
	case sMarkOwnerDead:
		m.markOwnerDead(x, unpack(*x.R(rOwner)))
	case sRecoverEnd:
		m.recovered(x)
	case sWakeLost, sWakeLostOne:
		m.wakeLost(x)
	}
}

func (m *mutexModel) mark(x *model.Exec, p int) {
	x.Update(wDead, func(v uint8) uint8 { return v | 1<<p })
}

// markOwnerDead stands for markOwnerDeadMutex and the wakes that follow. After that, the thread
// continues with the step in its register rBack.
func (m *mutexModel) markOwnerDead(x *model.Exec, o ownerWord) {
	x.Say("deals with the dead owner")
	if x.Me < len(m.threads) {
		*x.R(rDead) = 0
	}
	next := o.ownerDied(m.policy)
	if !x.CAS(wOwner, pack(o), pack(next)) {
		x.Goto(*x.R(rBack))
		return
	}
	if next.kind() == kindOwnerDead {
		x.Ghost[gDirty] = 1
		m.set(x, fAll)
	}
	x.Goto(sWakeLost)
	if m.bug == silentReaper || m.bug == toldOnesKeepIt && x.Me < len(m.threads) {
		m.unset(x, fAll)
		x.Goto(*x.R(rBack))
	}
}

// recovered ends a recovery, with a repair that succeeds or fails.
func (m *mutexModel) recovered(x *model.Exec) {
	ours := pack(makeOwner(kindRecovering, nameOf(x.Process())))
	m.unset(x, fInside)
	*x.R(rBack) = sIdle
	if x.Choose(2) == 1 {
		x.Say("fails to repair")
		x.Ghost[gDirty] = 1
		x.CAS(wOwner, ours, pack(ownerNotRecoverable))
		m.set(x, fAll)
		x.Goto(sWakeLost)
		return
	}
	x.Say("has repaired")
	x.CAS(wOwner, ours, 0)
	x.Goto(sWakeNext)
}

// wakeLost stands for WakeWord.WakeOne, or for WakeWord.WakeAll if the thread has the flag fAll. After that, the
// thread continues with the step in its register rBack.
func (m *mutexModel) wakeLost(x *model.Exec) {
	if x.PC() == sWakeLost {
		x.Say("bumps for a lost wake")
		x.Update(wWake, func(v uint8) uint8 { return uint8(park.Word(v).Bumped()) })
		x.Goto(sWakeOne)
		if m.flag(x, fAll) {
			x.Goto(sWakeLostOne)
		}
		return
	}
	x.Say("wakes all")
	x.Wake(wWake, model.All)
	m.unset(x, fAll)
	m.goOn(x, *x.R(rBack))
	if m.poller {
		x.Goto(sReady)
	}
}

// reap is a step of the reaper, which is a participant that stays alive.
func (m *mutexModel) reap(x *model.Exec) {
	p := int(*x.R(rDead))
	dead := nameOf(p)
	switch x.PC() {
	case sIdle:
		m.awake(x)
	case sReaperFence:
		x.Say("fences the dying")
		if m.bug != noFenceBeforeRepair {
			x.Membarrier()
		}
		x.Goto(sReaperMark)
	case sReaperMark:
		x.Say("marks the slot dead")
		m.mark(x, p)
		x.Goto(sRepairOwner)
		if m.handoffs {
			x.Goto(sRepairStarving)
		}
	case sRepairStarving:
		x.Say("takes the dead one's request off")
		x.CAS(wStarving, uint8(dead), 0)
		x.Goto(sRepairOwner)
	case sRepairOwner:
		o := unpack(x.Load(wOwner))
		x.Say("looks what the dead one holds")
		*x.R(rBack) = sSurvey
		x.Goto(sSurvey)
		if o.participant() == dead && (o.held() || o.kind() == kindReserved) {
			*x.R(rOwner), *x.R(rBack) = pack(o), sRepairOwner
			x.Goto(sMarkOwnerDead)
		}
	case sMarkOwnerDead:
		m.markOwnerDead(x, unpack(*x.R(rOwner)))
	case sSurvey, sSurveyWord:
		m.survey(x)
	case sUnreserve:
		x.Say("revokes a reservation")
		if o := unpack(x.Load(wOwner)); o.kind() == kindReserved {
			x.CAS(wOwner, pack(o), 0)
		}
		*x.R(rBack) = sIdle
		x.Goto(sWakeLost)
	case sWakeLost, sWakeLostOne:
		m.wakeLost(x)
	case sRingPollers:
		x.Say("counts the death")
		x.Update(wStack, func(v uint8) uint8 { return v | 2 })
		*x.R(rBack) = sReaped
		x.Goto(sRing)
	case sReaped:
		x.Say("has reaped it")
		x.Ghost[gReaped] |= 1 << p
		x.Idle()
	default:
		m.step(x)
	}
}

// awake begins a reap if a process is dead. Otherwise, if a waiter sleeps while the lock is reserved, awake stands for
// the periodic check that takes the reservation back. This check may come at any time.
func (m *mutexModel) awake(x *model.Exec) {
	p, ok := m.unreaped(x.Sys)
	if ok {
		x.Say("sees a death")
		x.Require()
		*x.R(rDead) = uint8(p)
		x.Goto(sReaperFence)
		return
	}
	// Without a death no thread may depend on this periodic check.
	waits := false
	for i := range m.threads {
		waits = waits || x.Ghost[gReaped] != 0 && x.Asleep(i, wWake)
	}
	if !waits || unpack(x.Load(wOwner)).kind() != kindReserved || m.bug == nobodyLooks {
		x.Disable()
		return
	}
	x.Say("looks at a reservation")
	x.Require()
	x.Goto(sUnreserve)
}

// survey decides whether a reap wakes waiters of the object. It reads the announce records of
// sleepers, and the wake word, in which waiters announce themselves before they sleep.
func (m *mutexModel) survey(x *model.Exec) {
	then := sReaped
	if m.poller && m.bug != pollersUnrung {
		then = sRingPollers
	}
	*x.R(rBack) = then
	if x.PC() == sSurveyWord {
		x.Say("looks whether somebody has announced himself")
		x.Goto(then)
		if m.bug != wakeByRecordOnly && park.Word(x.Load(wWake)).Announced() {
			x.Goto(sWakeLost)
		}
		return
	}
	x.Say("looks for announce records")
	x.Goto(sSurveyWord)
	for i := range m.threads {
		if x.Thread[i].R[rFlags]&fRecord != 0 && m.bug != wakeByAnnouncementOnly {
			x.Goto(sWakeLost)
		}
	}
	if m.bug == reapDoesNotWake || m.bug == silentReaper {
		x.Goto(sReaped)
	}
}

// unreaped returns a process that is dead and not reaped.
func (m *mutexModel) unreaped(s *model.Sys) (p int, ok bool) {
	for p, l := range s.Life {
		if l != model.Alive && s.Ghost[gReaped]&(1<<p) == 0 {
			return p, true
		}
	}
	return 0, false
}
