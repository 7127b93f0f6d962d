package arena

import (
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("arena.bury.seen")
	_ = crashpoint.Register("arena.bury.fenced")
	_ = crashpoint.Register("arena.bury.marked")
	_ = crashpoint.Register("arena.bury.repaired")
	_ = crashpoint.Register("arena.bury.woken")
	_ = crashpoint.Register("arena.finish.taken")
	_ = crashpoint.Register("arena.finish.reclaimed")
	_ = crashpoint.Register("arena.finish.obituary")
	_ = crashpoint.Register("arena.finish.freed")
)

// Dead reports whether n is the name of a participant that died or left, and
// makes sure that it is buried if this call is the first to see its death: when
// Dead returns true, Current(n) is false. It looks at the marks that the kernel
// leaves, and where the kernel leaves none, asks.
func (a *Arena) Dead(n Name) bool {
	i := n.Slot()
	if i < 1 || i > a.geo.slots {
		return true
	}
	w := a.slotState(i)
	if nameIn(i, w) != n || !w.present() {
		return true
	}
	if n == a.self || !a.seenDead(i, w) {
		return false
	}
	if !a.mark(i, w) {
		return !a.isCurrent(n)
	}
	// The caller goes on at once with what it waits for; the rest of the
	// burial is done beside it.
	a.background.Go(func() { a.buryMarked(i, w.with(phaseDead)) })
	return true
}

// AliveWord is the futex word that the kernel marks and wakes when n dies, with
// the value that it has while n lives. ok is false where the kernel does not
// do that for n.
func (a *Arena) AliveWord(n Name) (word *uint32, alive uint32, ok bool) {
	i := n.Slot()
	if i < 1 || i > a.geo.slots || n == a.self {
		return nil, 0, false
	}
	if a.u32(a.slot(i)+slotCaps).Load()&capRobust == 0 {
		return nil, 0, false
	}
	w := a.u32(a.aliveWord(i, aliveWords-1))
	return raw(w), w.Load(), true
}

// seenDead reports whether the participant that is in slot i in state w is
// dead and not yet marked so.
func (a *Arena) seenDead(i int, w slotWord) bool {
	if i == a.mySlot || !w.present() {
		return false
	}
	if w.phase() != phaseJoining {
		// While joining, the words are still those of the one before.
		for k := range aliveWords {
			if a.u32(a.aliveWord(i, k)).Load()&shmsync.RobustOwnerDied != 0 {
				// The mark belongs to w only if w is still there.
				return a.slotState(i) == w
			}
		}
		if a.u32(a.slot(i)+slotCaps).Load()&capRobust != 0 {
			return false
		}
	}
	return a.byteFree(i) && a.slotState(i) == w
}

// byteFree reports whether nobody holds the byte lock of slot i, as far as that
// can be told.
func (a *Arena) byteFree(i int) bool {
	if a.lock == nil || i == a.mySlot {
		return false
	}
	locked, err := shmsync.ByteLocked(a.lock, a.lockByte(i))
	return err == nil && !locked
}

// mark moves slot i from w to dead, after a fence. It reports whether this call
// did it.
func (a *Arena) mark(i int, w slotWord) bool {
	crashpoint.Hit("arena.bury.seen")
	a.fenceDying(i)
	crashpoint.Hit("arena.bury.fenced")
	a.u64(a.slot(i)+slotDied).CompareAndSwap(0, uint64(time.Now().UnixNano()))
	// sync(arena.burial): release
	ok := a.casSlot(i, w, w.with(phaseDead))
	if ok {
		crashpoint.Hit("arena.bury.marked")
	}
	return ok
}

// fenceDying returns when no thread of the dying process in slot i executes a
// store to the arena any more. The mark on an alive word is per thread: the
// siblings have SIGKILL pending but may run on for a moment. The interrupt of a
// fence is their last way back to user mode, and it does not take it.
func (a *Arena) fenceDying(i int) {
	if shmsync.Fence() == nil {
		return
	}
	// The byte lock goes when all threads are gone; that takes 30 ms for each
	// GiB that the process had.
	for a.lock != nil && !a.byteFree(i) {
		time.Sleep(time.Millisecond)
	}
}

// bury does all that a death asks for: the mark, the repair of what the dead
// one held, the wakes that it may have owed, and the return of its memory and
// its slot. Every step may be done by several processes at once and by one
// after another that died over it.
func (a *Arena) bury(i int, w slotWord) {
	if w.present() {
		a.mark(i, w)
	}
	a.buryMarked(i, w.with(phaseDead))
}

func (a *Arena) buryMarked(i int, w slotWord) {
	a.reaping.Lock()
	defer a.reaping.Unlock()
	if a.closing.Load() || a.slotState(i) != w {
		return // finished by somebody else
	}
	dead := nameIn(i, w)
	// Others sleep on these words too, and the kernel woke one of each.
	for k := range aliveWords {
		shmsync.Wake(raw(a.u32(a.aliveWord(i, k))), allSleepers)
	}
	a.repairAll(dead)
	crashpoint.Hit("arena.bury.repaired")
	a.wakeAll()
	crashpoint.Hit("arena.bury.woken")
	a.finish(i, w)
}

// repairAll takes back what dead holds of any object.
func (a *Arena) repairAll(dead Name) {
	for o := range a.Objects() {
		if ops, ok := kindOps(o.Kind); ok && ops.Repair != nil {
			ops.Repair(a, o, dead)
		}
	}
}

// wakeAll wakes, once, everybody who may wait for a wake that a death has
// swallowed: the sleepers that have announced themselves, and through their
// hubs those that park in their own process.
func (a *Arena) wakeAll() {
	seen := map[Offset]bool{}
	a.announced(func(off Offset) {
		if seen[off] {
			return
		}
		seen[off] = true
		if o, err := a.lookAt(off); err == nil {
			if ops, ok := kindOps(o.Kind); ok && ops.Wake != nil {
				ops.Wake(a, o)
			}
		}
	})
	a.u32(hdrDeaths).Add(1)
	a.ringDoorbells()
}

// undertaken reports whether somebody alive is freeing slot i.
func (a *Arena) undertaken(i int) bool {
	u := Name(a.u32(a.slot(i) + slotUndertaker).Load())
	return u != 0 && u != a.self && a.isCurrent(u)
}

// finish gives back the dead one's memory and frees its slot, which is what
// only one may do. The undertaker's name in the slot may be replaced when it
// is not current.
func (a *Arena) finish(i int, w slotWord) {
	word := a.u32(a.slot(i) + slotUndertaker)
	u := Name(word.Load())
	if u != 0 && u != a.self && a.isCurrent(u) || !word.CompareAndSwap(uint32(u), uint32(a.self)) {
		a.unfinished.Store(true)
		return
	}
	crashpoint.Hit("arena.finish.taken")
	if a.slotState(i) != w {
		word.CompareAndSwap(uint32(a.self), 0)
		return
	}
	dead := nameIn(i, w)
	a.reclaim(dead)
	crashpoint.Hit("arena.finish.reclaimed")
	if !a.gone(i) {
		// The kernel has not finished with the alive words: a slot taken again
		// now could be marked for the old owner's death.
		word.CompareAndSwap(uint32(a.self), 0)
		a.unfinished.Store(true)
		return
	}
	a.writeObituary(i, dead, false)
	crashpoint.Hit("arena.finish.obituary")
	a.freeSlot(i, w)
	crashpoint.Hit("arena.finish.freed")
	word.CompareAndSwap(uint32(a.self), 0)
	a.ringWatchers()
}

// reclaim gives back what memory the dead one had not handed to anybody.
func (a *Arena) reclaim(dead Name) {
	a.freeNodesOf(dead)
	a.reclaimBlocks(dead)
	a.clearOpenBits(dead)
}

// freeSlot makes slot i, dead or leaving in state w, available again.
func (a *Arena) freeSlot(i int, w slotWord) {
	next := w.with(phaseFree)
	if w.generation() >= maxGeneration {
		next = w.with(phaseRetired)
	}
	a.casSlot(i, w, next)
}

// gone reports whether the kernel will write to slot i's alive words no more.
func (a *Arena) gone(i int) bool {
	if a.byteFree(i) {
		return true
	}
	if a.u32(a.slot(i)+slotCaps).Load()&capOFD != 0 && a.lock != nil {
		return false
	}
	for k := range aliveWords {
		if a.u32(a.aliveWord(i, k)).Load()&shmsync.RobustOwnerDied == 0 {
			return false
		}
	}
	return true
}

// buryAll deals with every dead participant that can be found, and reports
// whether there was one.
func (a *Arena) buryAll() (found bool) {
	a.unfinished.Store(false)
	for i := 1; i <= a.geo.slots; i++ {
		w := a.slotState(i)
		if i == a.mySlot {
			continue
		}
		if w.phase() == phaseDead || w.present() && a.byteDead(i, w) {
			found = true
			a.bury(i, w)
		}
	}
	return found
}

// byteDead is seenDead for a survey: it also asks for those that the kernel
// would mark, since a copied file or a loss of power marks nobody.
func (a *Arena) byteDead(i int, w slotWord) bool {
	return a.seenDead(i, w) || a.byteFree(i) && a.slotState(i) == w &&
		(w.phase() == phaseJoining || a.u32(a.slot(i)+slotCaps).Load()&capOFD != 0)
}
