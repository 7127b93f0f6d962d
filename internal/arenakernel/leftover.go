package arenakernel

import "sync/atomic"

// unfinished says which kinds of work are left in the slots of Arena.leftover. It is 0 if no work is left. The bits
// above leftToFree are a counter, which changes when there is new work. The change ends a quiet watch, that is, a
// long sleep of the death watcher.
type unfinished struct{ atomic.Uint32 }

const (
	leftToReap = 1 << iota // at least one reap is unfinished
	leftToFree             // at least one slot has to be freed when the kernel has ended its process
	leftOnce               // the unit of the counter in the remaining bits
)

func (u *unfinished) leave(what uint32) {
	u.Add(leftOnce)
	u.Or(what)
}

func (u *unfinished) any() bool { return u.Load() != 0 }

// onlyToFree reports whether the only work left is to free slots. A quiet watch of the death watcher can handle
// this work.
func (u *unfinished) onlyToFree() bool { return u.Load()&leftToReap == 0 }

// leaveFor postpones what is still to be done after the death in slot i. The death watcher of this process does
// it later. If leaveFor returns true, the death watcher may be asleep. Then a caller that is not the death
// watcher has to ring its doorbell.
func (a *Arena) leaveFor(i int) (asleep bool) {
	asleep = a.unfinished.onlyToFree()
	asleep = a.leftover.add(i) || asleep
	a.unfinished.leave(leftToReap)
	return asleep
}

// leaveToFree postpones the last step of the cleanup after a death, which is to free slot i. The data of the dead
// participant is already handed over. The death watcher frees the slot at the time that Arena.endings has for it.
func (a *Arena) leaveToFree(i int) {
	a.leftover.add(i)
	a.unfinished.leave(leftToFree)
}

// continueReaps continues the cleanup after deaths that leaveFor and leaveToFree have postponed.
func (a *Arena) continueReaps() {
	a.unfinished.Store(0)
	a.forgetReaps()
	left := a.leftover.takeAll()
	left.each(func(i int) {
		w := a.slotState(i)
		if i != a.mySlot && (w.phase() == phaseDead || a.surveyDead(i, w)) {
			a.reap(i, w)
		}
	})
}

// forgetReaps drops the records of reaps that another participant has finished, and of reaps whose
// slot a joiner has taken over. If such a slot names this process as its reaper, forgetReaps clears
// the name, because the joiner waits for that.
func (a *Arena) forgetReaps() {
	a.reapMu.Lock()
	defer a.reapMu.Unlock()
	for i, b := range a.reaps {
		if a.slotState(i) != b.of {
			a.u32(a.slot(i)+slotReaper).CompareAndSwap(uint32(a.self), 0)
			delete(a.reaps, i)
		}
	}
}

// goOn wakes the death watcher of this process if there is postponed work after a death.
func (a *Arena) goOn() {
	if a.unfinished.any() {
		a.ring(a.slot(a.mySlot) + slotWatchDoorbell)
	}
}
