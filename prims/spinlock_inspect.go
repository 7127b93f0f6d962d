package prims

import (
	"slices"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

func inspectSpin(a *arenakernel.Arena, o arenakernel.Object) arenakernel.Inspection {
	w, err := arenakernel.TryAt[spinWords](a, o.Body)
	if err != nil {
		return unreadable(a, o, err)
	}
	i := inspect(a, o)
	on := i.spinState(w, false)
	i.waits(waitsOn(spinWakeOff, spinPollerOff), "lock", on)
	return i.Inspection
}

// spinState adds to i the words that a SpinLock and an RWSpinLock have in common. If the state word names a holder,
// spinState adds the hold, too, and returns its index in i.Holds.
func (i *inspection) spinState(w *spinWords, readers bool) (on []int) {
	i.Policy, i.Spin = policyOf(w.policy).String(), spinText(w.spin.Load())
	s := spinWord(w.state.Load())
	i.State = s.String()
	i.word("state", uint64(s), "%v", s)
	switch {
	case !s.valid(readers):
		i.lost(shmsync.ErrCorrupt, 0)
	case s == spinLost:
		i.lost(shmsync.ErrNotRecoverable, arenakernel.ParticipantID(w.died.Load()&arenakernel.ParticipantIDMask))
	case s.kind() == spinOwnerDead:
		died := s.participant()
		if died == 0 {
			died = arenakernel.ParticipantID(w.died.Load() & arenakernel.ParticipantIDMask)
		}
		i.lost(shmsync.ErrOwnerDead, died)
	case s.held():
		h := arenakernel.Hold{Owner: s.participant(), Mode: arenakernel.HoldExclusive}
		switch s.kind() {
		case spinDraining:
			h.Mode = arenakernel.HoldClosing
		case spinUpgrade:
			h.Mode = arenakernel.HoldUpgradable
		case spinUpgrading:
			h.Mode, h.Note = arenakernel.HoldUpgradable, "waits for readers to leave"
		case spinRecovering:
			h.Mode = arenakernel.HoldRecovering
		}
		on = i.hold(h)
		for _, k := range on {
			since, byReader := w.met.dateOf(&w.state, &w.wake), w.gateMet.dateOf(&w.state, &w.gate)
			if since == 0 || byReader != 0 && byReader < since {
				since = byReader
			}
			i.Holds[k].Since, i.Holds[k].AtLeast = since, since != 0
		}
	}
	i.wakeWord("wake", w.wake.Load())
	return on
}

func inspectRWSpin(a *arenakernel.Arena, o arenakernel.Object) arenakernel.Inspection {
	w, err := arenakernel.TryAt[spinWords](a, o.Body)
	if err != nil {
		return unreadable(a, o, err)
	}
	i := inspect(a, o)
	on := i.spinState(w, true)
	var readers []int
	slots, err := rwSpinSlotsOf(a, o)
	if err != nil {
		i.lost(shmsync.ErrCorrupt, 0)
	}
	for _, r := range slots {
		n := rwSpinCount(r.count.Load())
		if n == 0 || !n.validIn(r.slot) || !a.Current(n.participant()) {
			continue
		}
		i.word("readers", uint64(n), "%v", n)
		readers = append(readers, i.hold(arenakernel.Hold{Owner: n.participant(), Mode: arenakernel.HoldShared, Count: uint64(n.holds())})...)
	}
	if s := spinWord(w.state.Load()); s.valid(true) && s.held() {
		// While the state word is not 0, no reader gets in. Only the owner that the state word names waits for
		// readers to leave.
		i.dateReaders(append(slices.Clip(readers), on...), waitsOn(spinDrainOff, spinDrainPollerOff), s.participant())
	}
	i.waits(waitsOn(spinGateOff, spinGatePollerOff), "read", on)
	i.waits(waitsOn(spinDrainOff, spinDrainPollerOff), "readers to leave", readers)
	i.waits(waitsOn(spinWakeOff, spinPollerOff), "lock", on)
	return i.Inspection
}
