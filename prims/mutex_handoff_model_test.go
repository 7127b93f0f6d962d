//go:build linux

package prims

import "github.com/shmsync/shmsync/internal/model"

// reserve stands for Mutex.reserve, for the participant in rOwner. The lock is held, or it has just
// been released.
func (m *mutexModel) reserve(x *model.Exec) {
	s := *x.R(rOwner)
	reserved := kindReserved
	held := m.flag(x, fInside)
	otherwise := sWakeNext
	if held {
		otherwise = sRelease
	}
	switch x.PC() {
	case sAskAfter:
		x.Say("looks whether somebody starves")
		*x.R(rOwner) = x.Load(wStarving)
		x.Goto(sReserve)
		if *x.R(rOwner) == 0 {
			x.Goto(otherwise)
		}
	case sReserve:
		if !m.current(x, int(s)-1) {
			x.Say("sees that the starving one is dead")
			x.CAS(wStarving, s, 0)
			x.Goto(otherwise)
			return
		}
		x.Say("reserves the lock")
		word := pack(makeOwner(reserved, nameOf(int(s)-1)))
		switch {
		case held && !x.CAS(wOwner, uint8(nameOf(x.Process())), word):
			x.Ghost[gWrong] = 1
		case !held && m.bug == reserveBlindly:
			x.Update(wOwner, func(uint8) uint8 { return word })
		case !held && !x.CAS(wOwner, 0, word):
			x.Say("finds that somebody has it")
			x.Goto(otherwise)
			return
		}
		m.unset(x, fInside)
		x.Goto(sTakeAsk)
	case sTakeAsk:
		x.Say("takes the request off")
		x.Goto(sBumpHand)
		if !x.CAS(wStarving, s, 0) {
			x.Goto(sRevoke)
			if m.bug == reservationStays {
				x.Idle()
			}
		}
	case sRevoke:
		x.Say("revokes the reservation")
		x.CAS(wOwner, pack(makeOwner(reserved, nameOf(int(s)-1))), 0)
		*x.R(rBack) = sIdle
		x.Goto(sWakeNext)
		if m.bug == revokeDoesNotWake {
			x.Idle()
		}
	case sBumpHand:
		x.Say("bumps the handoff word")
		x.Update(wHandoff, func(v uint8) uint8 { return v + 1 })
		x.Goto(sWakeHand)
		if m.bug == handOffDoesNotWake {
			x.Goto(sTouch)
		}
	case sWakeHand:
		x.Say("wakes the starving waiters")
		n := model.All
		if m.bug == wakeOneStarver {
			n = 1
		}
		x.Wake(wHandoff, n)
		x.Goto(sTouch)
	case sTouch:
		x.Say("touches the wake word")
		x.Update(wWake, func(v uint8) uint8 { return v + 2 })
		if !m.poller || s != 1 || m.bug == parkedUnserved {
			x.Idle()
			return
		}
		*x.R(rBack) = sIdle
		x.Goto(sReady)
	}
}
