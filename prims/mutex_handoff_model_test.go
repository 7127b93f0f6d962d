//go:build linux

package prims

import "github.com/shmsync/shmsync/internal/model"

// reserve is Mutex.reserve for the participant whose name is in rOwner.
func (m *mutexModel) reserve(x *model.Exec) {
	s := *x.R(rOwner)
	reserved := kindReserved
	switch x.PC() {
	case sReserve:
		if !m.current(x, int(s)-1) {
			x.Say("sees that the starving one is dead")
			x.CAS(wStarving, s, 0)
			m.goOn(x, sRelease)
			return
		}
		x.Say("reserves the lock")
		if !x.CAS(wOwner, uint8(nameOf(x.Process())), pack(makeOwner(reserved, nameOf(int(s)-1)))) {
			x.Ghost[gWrong] = 1
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
		x.Say("bumps the hand-off word")
		x.Update(wHandoff, func(v uint8) uint8 { return v + 1 })
		x.Goto(sWakeHand)
		if m.bug == handOffDoesNotWake {
			x.Goto(sTouch)
		}
	case sWakeHand:
		x.Say("wakes the starving")
		n := model.All
		if m.bug == wakeOneStarver {
			n = 1
		}
		x.Wake(wHandoff, n)
		x.Goto(sTouch)
	case sTouch:
		x.Say("touches the wake word")
		x.Update(wWake, func(v uint8) uint8 { return v + 2 })
		if !m.hub || s != 1 || m.bug == parkedUnserved {
			x.Idle()
			return
		}
		*x.R(rBack) = sIdle
		x.Goto(sReady)
	}
}
