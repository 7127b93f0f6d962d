package prims

import (
	"fmt"
	"sync/atomic"

	"github.com/shmsync/shmsync/arena"
)

func init() {
	arena.RegisterKind(arena.KindOps{
		Kind: cohortKind, Repair: repairCohort, Wake: wakeCohort, Check: checkCohort, Describe: describeCohort, Inspect: inspectCohort,
	})
}

// cohortParts calls f for the mutexes of the object whose words can be had: the global
// one first, as -1, and then the doors.
func cohortParts(a *arena.Arena, o arena.Object, f func(door int, w *mutexWords)) error {
	w, nodes, err := cohortAt(a, o)
	if w == nil {
		return err
	}
	f(-1, &w.global)
	for k := range nodes {
		d, err := arena.TryAt[cohortDoorWords](a, o.Body+cohortDoorOff(k))
		if err != nil {
			return err
		}
		f(k, &d.mutex)
	}
	return err
}

// repairCohort takes back what dead has of the object: the lock, and doors.
func repairCohort(a *arena.Arena, o arena.Object, dead arena.Name) {
	cohortParts(a, o, func(door int, w *mutexWords) { repairMutexWords(a, w, dead, door >= 0) })
}

// wakeCohort makes up for wakes that a death swallowed, at the lock and at doors.
func wakeCohort(a *arena.Arena, o arena.Object, owed arena.Owed) {
	cohortParts(a, o, func(_ int, w *mutexWords) { wakeMutexWords(a, w, owed) })
}

func checkCohort(a *arena.Arena, o arena.Object) (err error) {
	if e := cohortParts(a, o, func(_ int, w *mutexWords) {
		if e := checkMutexWords(o, w); err == nil {
			err = e
		}
	}); e != nil {
		return e
	}
	return err
}

func describeCohort(a *arena.Arena, o arena.Object) (s string) {
	err := cohortParts(a, o, func(door int, w *mutexWords) {
		if door >= 0 {
			s += fmt.Sprintf("; door %d: ", door)
		}
		s += describeMutexWords(w)
	})
	if w, nodes, _ := cohortAt(a, o); w != nil {
		s += fmt.Sprintf("; %d nodes, %v (%#x)", nodes, cohortTurn(w.turn.Load()), w.turn.Load())
	}
	if err != nil {
		s += "; " + err.Error()
	}
	return s
}

func inspectCohort(a *arena.Arena, o arena.Object) arena.Inspection {
	w, nodes, err := cohortAt(a, o)
	if w == nil {
		return unreadable(a, o, err)
	}
	i := inspect(a, o)
	i.Policy, i.Spin = policyOf(w.global.policy).String(), spinText(w.global.spin.Load())
	word := ownerWord(w.global.owner.Load())
	i.State = word.String()
	i.Counts = countsOf(a, &w.global.counts).tell()
	on := i.owner(word, arena.Name(w.global.died.Load()&arena.NameMask))
	i.date(on, countsOf(a, &w.global.counts))
	i.mutexRest(&w.global)
	i.waits(at(mutexWakeOff, mutexHubOff), "lock", on)
	i.word("nodes", uint64(atomic.LoadUint32(&w.nodes)), "%d doors", nodes)
	turn := cohortTurn(w.turn.Load())
	i.word("turn", uint64(turn), "%v", turn)
	i.cohortDoors(nodes, on)
	if err != nil {
		i.Err = err
	}
	return i.Inspection
}

// cohortDoors tells of the doors. Who waits at one waits for the holder of the lock:
// on holds.
func (i *inspection) cohortDoors(nodes int, on []int) {
	for k := range nodes {
		off := cohortDoorOff(k)
		d, err := arena.TryAt[cohortDoorWords](i.a, i.o.Body+off)
		if err != nil {
			return
		}
		if o := ownerWord(d.mutex.owner.Load()); !o.free() {
			i.word(fmt.Sprintf("door %d", k), uint64(o), "%v", o)
		}
		i.waits(at(off+mutexWakeOff, off+mutexHubOff), fmt.Sprintf("door %d", k), on)
	}
}
