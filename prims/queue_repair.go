package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var _ = crashpoint.Register("queue.reap.freed")

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: queueKind, Version: queueVersion, Repair: alone(repairQueue), Wake: wakeRing, Check: checkQueue, Inspect: inspectQueue,
		UserData: hideQueue,
	})
}

func repairQueue(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) {
	if x, err := buildQueue(a, o, true); err == nil {
		x.reap(dead)
	}
}

// reap takes back the items and slots of participants that are dead and gone. If the parameter is the ID of this
// participant, this participant is leaving the arena, and reap takes back its items and slots, too.
func (x *queueCore) reap(leaving arenakernel.ParticipantID) {
	if leaving != x.name {
		leaving = 0
	}
	freed, back := 0, 0
	x.each(func(i uint32, s *queueSlot, st queueState) {
		n := st.participant()
		// The participant must be gone before published reads the cell, because a Put may fill the cell just before
		// its process dies.
		if n == 0 || n != leaving && (x.a.Current(n) || !x.a.Gone(n)) {
			return
		}
		swap := func(from, to queueState) bool {
			return arenakernel.TakeFromGone(x.a, n, &s.state, uint64(from), uint64(to))
		}
		switch st.kind() {
		case queueTaken, queueLeased:
			if x.giveBack(i, st, swap) {
				back++
			}
		case queueFull, queueClaimed:
			if !x.published(i, st) && swap(st, 0) {
				crashpoint.Hit("queue.reap.freed")
				freed++
			}
		case queueReturned:
		}
	})
	x.tellUntold()
	x.tell(&x.items, back)
	x.tell(&x.room, freed)
}

// tellUntold makes Gets find items that a process has put back before it died or was stopped, and before it called
// tellReturned. tellUntold calls tellReturned even if the bit in queueReturns is set: a Get that searched before such
// an item came back could still clear the bit.
func (x *queueCore) tellUntold() {
	untold := false
	x.each(func(_ uint32, _ *queueSlot, st queueState) { untold = untold || st.kind() == queueReturned })
	if untold {
		x.tellReturned()
		x.tell(&x.items, 1)
	}
}

// wakeRing makes the wakes that a dead process did not make. The argument owed says which wakes may be missing. If the
// Queue is shut down, the dead process may have been about to wake all waiters; see wakeMutex.
func wakeRing(a *arenakernel.Arena, o arenakernel.Object, owed arenakernel.Owed) {
	if w, _, ok := shapeOfQueue(a, o); ok {
		if w.flags.Load()&queueStoppedFlag != 0 {
			owed = arenakernel.OwedAll
		}
		wakeOwed(queueWakeWord(a, &w.items), owed)
		wakeOwed(queueWakeWord(a, &w.room), owed)
	}
}

// checkQueue returns an error if the Queue o has a state that no correct process makes.
func checkQueue(a *arenakernel.Arena, o arenakernel.Object) (err error) {
	x, err := buildQueue(a, o, true)
	if err != nil {
		return err
	}
	fail := func(what string) error {
		return &shmsync.Error{Op: "queue.check", Object: objectName(o), Err: shmsync.ErrCorrupt, Detail: what}
	}
	if v := x.words.flags.Load(); v > queueStoppedFlag|queueIrregularFlag {
		return fail(fmt.Sprintf("flags are %#x", v))
	}
	x.each(func(i uint32, _ *queueSlot, st queueState) {
		if !st.valid() && err == nil {
			err = fail(fmt.Sprintf("slot %d is %v", i, st))
		}
	})
	return err
}
