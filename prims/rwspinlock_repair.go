package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: rwSpinKindID, Version: rwSpinVersion, Repair: alone(repairRWSpin), Wake: wakeRWSpin, Check: checkRWSpin, Inspect: inspectRWSpin,
	})
}

// repairRWSpin takes back the holds of the dead participant on the object obj. It takes back the holds for reading
// first, and then the hold in the state word.
func repairRWSpin(a *arenakernel.Arena, obj arenakernel.Object, dead arenakernel.ParticipantID) {
	w, err := arenakernel.TryAt[spinWords](a, obj.Body)
	if err != nil {
		return
	}
	slots := rwSpinSlots(a, obj)
	slots.open(false)
	r, ok := slots.of(dead.Slot())
	for range reapTries {
		if !ok {
			break // the dead participant has no record
		}
		n := rwSpinCount(r.count.Load())
		if n == 0 || !a.Reaps(dead, n.participant()) {
			break
		}
		// sync(rwspinlock.drain): release
		if arenakernel.TakeFromDead(a, n.participant(), r.count, uint64(n), 0) {
			drained := rwSpinDrained(a, w)
			drained.WakeAll()
			break
		}
	}
	repairSpinWord(a, obj, dead, true)
}

// wakeRWSpin makes the wakes that a dead process did not make. The argument owed says which wakes may be missing.
func wakeRWSpin(a *arenakernel.Arena, obj arenakernel.Object, owed arenakernel.Owed) {
	w, err := arenakernel.TryAt[spinWords](a, obj.Body)
	if err != nil {
		return
	}
	owed = owedBySpin(w, owed, true)
	wakeOwed(spinWakeWord(a, w), owed)
	gate, drained := rwSpinGate(a, w), rwSpinDrained(a, w)
	if owed != arenakernel.OwedAnnounced || gate.Announced() {
		gate.WakeAll()
	}
	if owed != arenakernel.OwedAnnounced || drained.Announced() {
		drained.WakeAll()
	}
}

// checkDrained is called ten times a second while a goroutine of this process waits for readers to leave. If there
// are no readers any more, or if the counts are corrupt, checkDrained wakes the waiters. The last reader may have
// died before it woke them.
func (l *RWSpinLock) checkDrained() {
	if who, err := l.reader(); who == 0 || err != nil {
		l.drained.WakeAll()
	}
}

func checkRWSpin(a *arenakernel.Arena, obj arenakernel.Object) error {
	if err := checkSpinWords(a, obj, "rwspinlock.check", true); err != nil {
		return err
	}
	slots, err := rwSpinSlotsOf(a, obj)
	for _, r := range slots {
		if n := rwSpinCount(r.count.Load()); !n.validIn(r.slot) {
			return &shmsync.Error{Op: "rwspinlock.check", Object: objectName(obj), Err: shmsync.ErrCorrupt,
				Detail: fmt.Sprintf("the readers of slot %d are %#x", r.slot, uint64(n))}
		}
	}
	return err
}
