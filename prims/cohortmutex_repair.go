package prims

import (
	"fmt"
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: cohortKind, Version: cohortVersion, Repair: alone(repairCohort), Wake: wakeCohort, Check: checkCohort, Inspect: inspectCohort,
	})
}

// cohortParts calls f for each mutex of the object whose words lie within the object. First it calls f for the
// global lock, with -1 as its number, and then for each local lock.
func cohortParts(a *arenakernel.Arena, o arenakernel.Object, f func(localLock int, w *mutexWords)) error {
	w, nodes, err := cohortAt(a, o)
	if w == nil {
		return err
	}
	f(-1, &w.global)
	for k := range cohortLocalLocks(nodes) {
		d, err := arenakernel.TryAt[cohortLocalLockWords](a, o.Body+cohortLocalLockOff(k))
		if err != nil {
			return err
		}
		f(k, &d.mutex)
	}
	return err
}

// repairCohort takes back the locks of the object that the dead participant holds: the global lock,
// and local locks.
func repairCohort(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) {
	cohortParts(a, o, func(localLock int, w *mutexWords) { repairMutexWords(a, o, w, dead, localLock >= 0) })
}

// wakeCohort wakes the waiters that a dead process was about to wake, at the global lock and at the
// local locks.
func wakeCohort(a *arenakernel.Arena, o arenakernel.Object, owed arenakernel.Owed) {
	cohortParts(a, o, func(_ int, w *mutexWords) { wakeMutexWords(a, w, owed) })
}

func checkCohort(a *arenakernel.Arena, o arenakernel.Object) (err error) {
	if e := cohortParts(a, o, func(_ int, w *mutexWords) {
		if e := checkMutexWords(o, w); err == nil {
			err = e
		}
	}); e != nil {
		return e
	}
	return err
}

func inspectCohort(a *arenakernel.Arena, o arenakernel.Object) arenakernel.Inspection {
	w, nodes, err := cohortAt(a, o)
	if w == nil {
		return unreadable(a, o, err)
	}
	i := inspect(a, o)
	i.Policy, i.Spin = policyOf(w.global.policy).String(), spinText(w.global.spin.Load())
	word := ownerWord(w.global.owner.Load())
	i.State = word.String()
	i.Counts = countsOf(a, &w.global.counts).tell()
	on := i.owner(word, arenakernel.ParticipantID(w.global.died.Load()&arenakernel.ParticipantIDMask))
	i.dateMutex(on, a, &w.global)
	i.mutexRest(&w.global)
	i.waits(waitsOn(mutexWakeOff, mutexPollerOff), "lock", on)
	locks := cohortLocalLocks(nodes)
	i.word("nodes", uint64(atomic.LoadUint32(&w.nodes)), "%d local locks", locks)
	turn := cohortTurn(w.turn.Load())
	i.word("turn", uint64(turn), "%v", turn)
	i.cohortLocalLocks(locks, on)
	if err != nil {
		i.Err = err
	}
	return i.Inspection
}

// cohortLocalLocks adds the local locks and their waiters to the inspection. Each of these waiters waits for the
// holder of the CohortMutex, whose holds have the indices in the parameter on.
func (i *inspection) cohortLocalLocks(locks int, on []int) {
	for k := range locks {
		off := cohortLocalLockOff(k)
		d, err := arenakernel.TryAt[cohortLocalLockWords](i.a, i.o.Body+off)
		if err != nil {
			return
		}
		if o := ownerWord(d.mutex.owner.Load()); !o.free() {
			i.word(fmt.Sprintf("local lock %d", k), uint64(o), "%v", o)
		}
		i.waits(waitsOn(off+mutexWakeOff, off+mutexPollerOff), fmt.Sprintf("local lock %d", k), on)
	}
}
