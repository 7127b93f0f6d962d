//go:build linux

package prims

import (
	"github.com/shmsync/shmsync/internal/model"
	"github.com/shmsync/shmsync/internal/park"
)

// mourn is what follows when a thread meets a death, and what Recover does.
func (m *mutexModel) mourn(x *model.Exec) {
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
		x.Goto(sBereave)
	case sBereave:
		m.bereave(x, unpack(*x.R(rOwner)))
	case sRecoverEnd:
		m.recovered(x)
	case sWakeLost, sWakeLostOne:
		m.wakeLost(x)
	}
}

func (m *mutexModel) mark(x *model.Exec, p int) {
	x.Update(wDead, func(v uint8) uint8 { return v | 1<<p })
}

// bereave is bereaveMutex, and goes on at rBack when it has woken whom it must.
func (m *mutexModel) bereave(x *model.Exec, o ownerWord) {
	x.Say("deals with the dead owner")
	if x.Me < len(m.threads) {
		*x.R(rDead) = 0
	}
	next := o.bereaved(m.policy)
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

// recovered ends a recovery, one way or the other.
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

// wakeLost is Bell.WakeOne, or Bell.WakeAll with fAll. It goes on at rBack.
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
	if m.hub {
		x.Goto(sReady)
	}
}

// reap is a step of the thread that buries: some participant that stays alive.
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
		if o.name() == dead && (o.held() || o.kind() == kindReserved) {
			*x.R(rOwner), *x.R(rBack) = pack(o), sRepairOwner
			x.Goto(sBereave)
		}
	case sBereave:
		m.bereave(x, unpack(*x.R(rOwner)))
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
	case sRingHubs:
		x.Say("counts the death")
		x.Update(wStack, func(v uint8) uint8 { return v | 2 })
		*x.R(rBack) = sBuried
		x.Goto(sRing)
	case sBuried:
		x.Say("has buried it")
		x.Ghost[gBuried] |= 1 << p
		x.Idle()
	default:
		m.step(x)
	}
}

// awake begins a burial when there is a death, or a look at a reservation when
// somebody waits for it. Only the second look revokes it; when is up to chance.
func (m *mutexModel) awake(x *model.Exec) {
	p, ok := m.unburied(x.Sys)
	if ok {
		x.Say("sees a death")
		x.Require()
		*x.R(rDead) = uint8(p)
		x.Goto(sReaperFence)
		return
	}
	// Where nobody has died all must go well without.
	waits := false
	for i := range m.threads {
		waits = waits || x.Ghost[gBuried] != 0 && x.Asleep(i, wWake)
	}
	if !waits || unpack(x.Load(wOwner)).kind() != kindReserved || m.bug == nobodyLooks {
		x.Disable()
		return
	}
	x.Say("looks at a reservation")
	x.Require()
	x.Goto(sUnreserve)
}

// survey decides whether the object is one of those that a burial wakes: by the
// announce records of those who sleep, and by the word, in which those who are
// about to have announced themselves.
func (m *mutexModel) survey(x *model.Exec) {
	then := sBuried
	if m.hub && m.bug != hubsUnrung {
		then = sRingHubs
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
	if m.bug == burialDoesNotWake || m.bug == silentReaper {
		x.Goto(sBuried)
	}
}

// unburied gives a process that is dead and not yet buried.
func (m *mutexModel) unburied(s *model.Sys) (p int, ok bool) {
	for p, l := range s.Life {
		if l != model.Alive && s.Ghost[gBuried]&(1<<p) == 0 {
			return p, true
		}
	}
	return 0, false
}
