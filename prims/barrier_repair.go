package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/arenakernel"

	"github.com/shmsync/shmsync"
)

// repairBarrier breaks the phase that the participant dead leaves incomplete, and wakes the waiters. A participant needs a
// slot record to make a change. If this participant has never opened the Barrier, repairBarrier makes its record. If the
// arena has no room for the record, repairBarrier only wakes the waiters, and one of them breaks the phase. A waiter that
// was just about to sleep may not notice; its next periodic check then breaks the phase.
func repairBarrier(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) (joined bool) {
	if o.Size < barrierBytes(a) {
		return false
	}
	x := buildBarrier(a, o, nil, true)
	joined = true
	if x.slotOf(x.slot) == nil && x.holds(dead) {
		_, err := x.slots.join()
		joined = err == nil
	}
	x.reap(func(n arenakernel.ParticipantID) bool {
		// A participant that leaves the arena repairs for itself: dead is its own ID, which is still current.
		return !a.Current(n) || n == dead && dead == a.Self()
	})
	x.tell()
	if !joined {
		x.wakeAll()
	}
	return joined
}

// holds reports whether the participant named dead, or an earlier participant of its slot, has parties or runs the
// completion. An earlier participant may have them if its reapers have died.
func (x *Barrier) holds(dead arenakernel.ParticipantID) (does bool) {
	x.holders(func(holder arenakernel.ParticipantID) { does = does || x.a.Reaps(dead, holder) })
	return does
}

// wakeBarrier wakes the waiters that a dead process was about to wake.
func wakeBarrier(a *arenakernel.Arena, o arenakernel.Object, owed arenakernel.Owed) {
	if o.Size < barrierBytes(a) {
		return
	}
	x := buildBarrier(a, o, nil, true)
	x.tell()
	x.wakeDead(owed)
}

func checkBarrier(a *arenakernel.Arena, o arenakernel.Object) error {
	if o.Size < barrierBytes(a) {
		return wrongKind("barrier.check", o, barrierKind, barrierVersion)
	}
	x := buildBarrier(a, o, nil, true)
	s, err := x.read()
	if err != nil {
		return err
	}
	if s.pending > barrierMax || s.expected > barrierMax {
		return failed(a, o, "barrier.check", shmsync.ErrCorrupt, nil, fmt.Sprintf("%d arrivals are to come, %d a phase", s.pending, s.expected))
	}
	return x.slots.load().err
}
