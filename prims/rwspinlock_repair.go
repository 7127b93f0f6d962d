package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: rwSpinKindID, Version: rwSpinVersion, Repair: repairRWSpin, Wake: wakeRWSpin, Check: checkRWSpin, Inspect: inspectRWSpin,
	})
}

// rwSpinBody returns the words of the RWSpinLock obj, for a caller that has no handle on it.
func rwSpinBody(a *arenakernel.Arena, obj arenakernel.Object) (w *spinWords, slots []rwSpinSlot, err error) {
	if w, err = arenakernel.TryAt[spinWords](a, obj.Body); err == nil {
		slots, err = rwSpinSlots(a, obj.Body)
	}
	return w, slots, err
}

// repairRWSpin takes back the holds of the dead participant on the object obj. It takes back the holds for reading
// first, and then the hold in the state word.
func repairRWSpin(a *arenakernel.Arena, obj arenakernel.Object, dead arenakernel.ParticipantID) {
	w, slots, err := rwSpinBody(a, obj)
	if err != nil || dead.Slot() < 1 || dead.Slot() > len(slots) {
		return
	}
	count := &slots[dead.Slot()-1].count
	for range reapTries {
		n := rwSpinCount(count.Load())
		if n == 0 || !a.Reaps(dead, n.participant()) {
			break
		}
		// sync(rwspinlock.drain): release
		if arenakernel.TakeFromDead(a, n.participant(), count, uint64(n), 0) {
			drained := rwSpinDrained(a, w)
			drained.WakeAll()
			break
		}
	}
	repairSpinWord(a, obj, dead, true)
}

// wakeRWSpin makes the wakes that a dead process did not make. The argument owed says which these may be.
func wakeRWSpin(a *arenakernel.Arena, obj arenakernel.Object, owed arenakernel.Owed) {
	w, err := arenakernel.TryAt[spinWords](a, obj.Body)
	if err != nil {
		return
	}
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
// are no readers any more, it makes a wake, because a reader that died may not have made it.
func (l *RWSpinLock) checkDrained() {
	if who, err := l.reader(); who == 0 || err != nil {
		l.drained.WakeAll()
	}
}

func checkRWSpin(a *arenakernel.Arena, obj arenakernel.Object) error {
	if err := checkSpinWords(a, obj, "rwspinlock.check", true); err != nil {
		return err
	}
	w, slots, err := rwSpinBody(a, obj)
	if err != nil {
		return err
	}
	bad := func(detail string) error {
		return &shmsync.Error{Op: "rwspinlock.check", Object: objectName(obj), Err: shmsync.ErrCorrupt, Detail: detail}
	}
	for i := range slots {
		if n := rwSpinCount(slots[i].count.Load()); !n.validIn(i + 1) {
			return bad(fmt.Sprintf("the readers of slot %d are %#x", i+1, uint64(n)))
		} else if n != 0 && a.Current(n.participant()) && i >= int(w.top.Load()) {
			return bad(fmt.Sprintf("slot %d has readers, and the highest that has is said to be %d", i+1, w.top.Load()))
		}
	}
	if top := int(w.top.Load()); top > len(slots) {
		return bad(fmt.Sprintf("slot %d is said to have read, of %d", top, len(slots)))
	}
	return nil
}
