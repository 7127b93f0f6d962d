package arenakernel

import (
	"os"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("arena.reap.seen")
	_ = crashpoint.Register("arena.reap.fenced")
	_ = crashpoint.Register("arena.reap.marked")
)

// Dead reports whether the participant n has died or left. The first call that finds the death
// marks the slot as dead, which begins the reap, the cleanup after the death. So when Dead returns
// true, Current(n) is false. Dead checks the marks that the kernel leaves at a death. If the
// participant has no such marks, Dead checks the byte lock, a file lock that the participant holds
// until its process has ended. Dead returns false as long as a thread of the dying process might
// still store into the arena.
func (a *Arena) Dead(n ParticipantID) bool {
	i := n.Slot()
	if i < 1 || i > a.geo.slots {
		return true
	}
	w := a.slotState(i)
	if participantIn(i, w) != n || !w.present() {
		// In a copy, n may be a participant that joined after the slots were copied. Such a participant is not dead.
		return !a.copied || participantIn(i, w).Covers(n)
	}
	if a.copied || a.killed.Load() {
		return false // an Inspector reaps nothing, and a killed participant sees no deaths
	}
	if n == a.self || !a.seenDead(i, w) && !a.foundDead(i, w) {
		return false
	}
	if a.mark(i, w) {
		// The caller continues at once. The kernel has woken death watchers, which do the rest of
		// the reap. If the watchers are stopped, a goroutine of this process does the rest after
		// reapSelfAfter.
		shmsync.Wake(wordPtr(a.u32(a.aliveWord(i, aliveWords-1))), allSleepers)
		time.AfterFunc(reapSelfAfter, func() {
			// When the function runs, this opening may be closed while others are still in use. So
			// use another Arena of the same membership.
			a := &Arena{membership: a.membership}
			a.inBackground(func() {
				a.reapMarked(i, w.with(phaseDead))
				a.goOn()
			})
		})
	} else if s := a.slotState(i); s == w || s == w.with(phaseDead) {
		// The slot cannot be marked yet, or another participant has just marked it. That participant may be stopped or
		// dead by now. So the death watcher of this process follows the slot until the reap is finished.
		a.follow(i)
	}
	return !a.isCurrent(n)
}

// AnyDying reports whether there is a dying participant. The kernel has begun to end the process of
// a dying participant, but its threads may still execute instructions. Such a participant is still
// current, and Dead returns false for it.
func (a *Arena) AnyDying() bool {
	if a.copied || a.killed.Load() {
		return false
	}
	for i := 1; i <= a.geo.slots; i++ {
		if w := a.slotState(i); a.seenDead(i, w) && !a.Dead(participantIn(i, w)) {
			return true
		}
	}
	return false
}

// reapSelfAfter is how long a participant that has found a death leaves the cleanup to the death
// watchers before it cleans up itself.
const reapSelfAfter = time.Millisecond

// inBackground runs f in another goroutine, unless this process leaves the arena.
func (a *Arena) inBackground(f func()) {
	a.closingMu.Lock()
	defer a.closingMu.Unlock()
	if !a.closing.Load() {
		a.background.Go(f)
	}
}

// AliveWord returns the futex word that the kernel marks when the participant n dies, and whose
// sleepers the kernel then wakes. It also returns the value of this word while n lives. The result
// named ok is false if the kernel marks no word for n.
func (a *Arena) AliveWord(n ParticipantID) (word *uint32, alive uint32, ok bool) {
	i := n.Slot()
	if i < 1 || i > a.geo.slots || n == a.self {
		return nil, 0, false
	}
	if a.slotCaps(i)&capRobust == 0 {
		return nil, 0, false
	}
	w := a.u32(a.aliveWord(i, aliveWords-1))
	return wordPtr(w), w.Load(), true
}

// slotCaps returns the capabilities of the participant in slot i.
func (a *Arena) slotCaps(i int) uint32 {
	return capsOf(a.u32(a.slot(i)+slotCaps).Load(), a.slotState(i))
}

// seenDead reports whether the participant in slot i, in state w, is dead but not marked dead in
// the slot yet.
func (a *Arena) seenDead(i int, w slotWord) bool {
	if i == a.mySlot || !w.present() {
		return false
	}
	if w.phase() != phaseJoining || a.linked(i, w) {
		// Examine the alive words, which the kernel marks at a death. This is not possible while a
		// participant with a byte lock joins, because the words are still those of the previous
		// participant in the slot.
		for k := range aliveWords {
			if a.u32(a.aliveWord(i, k)).Load()&shmsync.RobustOwnerDied != 0 {
				// If the state is no longer w, the mark may belong to another participant.
				return a.slotState(i) == w
			}
		}
	}
	if w.phase() == phaseLive && a.slotCaps(i)&capRobust != 0 {
		return false
	}
	return a.byteFree(i, w) && a.slotState(i) == w
}

// surveyDead reports, as the method seenDead does, whether the participant in slot i is dead but
// not marked dead. In addition, it accepts two other proofs, even for participants that the kernel
// would mark: a process has recorded that the participant is gone, or the byte lock of the participant
// is free. These proofs are needed in a copied file and after a loss of power, because the kernel has
// marked no alive word in such a file.
func (a *Arena) surveyDead(i int, w slotWord) bool {
	return w.present() && (a.seenDead(i, w) || (a.foundGone(i, w) || a.byteFree(i, w)) && a.slotState(i) == w)
}

// foundDead reports whether the participant in slot i is dead. It finds the death even if the
// kernel could not read the robust list, and so has not marked the death. foundDead calls
// surveyDead at most once per askEvery, and otherwise returns false.
func (a *Arena) foundDead(i int, w slotWord) bool {
	now, last := shmsync.Monotonic(), a.asked[i].Load()
	return now-last > askEvery && a.asked[i].CompareAndSwap(last, now) && a.surveyDead(i, w)
}

// askEvery is the minimum time in nanoseconds between two checks of the byte lock by Dead, for a
// participant whose death the kernel marks.
const askEvery = 1e9

// byteFree reports whether the byte lock of slot i, in state w, is free. The participant holds this
// file lock until its process has ended. byteFree returns false for a participant that never had
// its byte lock.
func (a *Arena) byteFree(i int, w slotWord) bool {
	if i == a.mySlot || !w.hasByte() {
		return false
	}
	locked, known := a.askForByte(i)
	return known && !locked
}

// askForByte asks the kernel whether a process holds the byte lock of slot i. The calling process
// need not have a byte lock itself. The result named known is false if the kernel does not answer.
func (a *Arena) askForByte(i int) (locked, known bool) {
	// Other code of this program may have closed one of the two descriptors by mistake. The number of
	// the closed descriptor may now refer to another file, in which no process has locked the byte. So
	// a free lock counts only if the descriptor still refers to the file of the arena. Otherwise try
	// the second descriptor.
	for _, f := range []*os.File{a.lock, a.seg.File()} {
		if f == nil {
			continue
		}
		if locked, err := shmsync.ByteLocked(f, a.lockByte(i)); err == nil && (locked || isFile(f, a.id)) {
			return locked, true
		}
	}
	return false, false
}

// cannotAsk reports whether this process can never find out whether a process holds the byte lock
// of slot i, because byte locks do not work for it.
func (a *Arena) cannotAsk(i int) bool {
	if a.lock != nil {
		return false
	}
	_, known := a.askForByte(i)
	return !known
}

// ended reports whether the kernel has finished all writes for the process in slot i, including
// those to the slot's alive words.
func (a *Arena) ended(i int) bool {
	w := a.slotState(i)
	if a.byteFree(i, w) {
		return true
	}
	if w.hasByte() && !a.cannotAsk(i) {
		return false
	}
	// If this condition holds, the participant had no byte lock and died before it was live. So it
	// has made no system call that writes to the arena. Its thread ID is in no alive word, so the
	// kernel will never mark these words.
	if !w.hasByte() && a.slotCaps(i)&capRobust == 0 && w.phase() == phaseDead {
		return true
	}
	for k := range aliveWords {
		if a.u32(a.aliveWord(i, k)).Load()&shmsync.RobustOwnerDied == 0 {
			return false
		}
	}
	return true
}

// mark changes the state of slot i from w to dead. Before that, it makes sure that no thread of the
// dead process stores to the arena any more. mark reports whether this call made the change.
func (a *Arena) mark(i int, w slotWord) bool {
	crashpoint.Hit("arena.reap.seen")
	if a.self == 0 {
		return a.declareDead(i, w) // the caller is a joiner, which has the byte lock of the slot
	}
	defer a.beginAct(participantIn(i, w)).end()
	// Check again, because another participant may have got the ID between the check of the caller and beginAct. From
	// now on, no other participant can get this ID.
	if blind := w.phase() == phaseJoining && !w.hasByte() && !a.linked(i, w); !blind && !a.surveyDead(i, w) {
		return false
	}
	return a.declareDead(i, w)
}

func (a *Arena) declareDead(i int, w slotWord) bool {
	if !a.fenceDying(i, w) {
		return false
	}
	crashpoint.Hit("arena.reap.fenced")
	now := uint64(time.Now().UnixNano())
	// sync(arena.reap): release
	if !a.casSlot(i, w, w.with(phaseDead)) {
		return false
	}
	a.dateDeath(i, w, now)
	// If the process is alive in spite of the proof, its death watcher must learn that other
	// participants have taken its locks.
	a.ring(a.slot(i) + slotWatchDoorbell)
	crashpoint.Hit("arena.reap.marked")
	return true
}

// dateDeath stores the time of the death of the participant in slot i, in state w, unless the slot
// has a time. Before a death, slotDied contains the generation of the participant. If this process
// was stopped after it marked the death, a later participant may have the slot. Its generation is
// another one, so the compare-and-swap fails. No later participant can have the same ID: the caller
// has published this ID in an act word, or is a joiner that has the byte lock of the slot.
func (a *Arena) dateDeath(i int, w slotWord, now uint64) {
	a.u64(a.slot(i)+slotDied).CompareAndSwap(uint64(w.generation()), now)
}

// fenceDying makes sure that no thread of the dying process in slot i stores to the arena any more.
// It returns false as long as it cannot be sure.
//
// The kernel marks an alive word when one thread ends. The other threads have SIGKILL pending, but
// may run on for a moment. A fence interrupts each of them. The interrupt enters the kernel, from
// which a thread with a pending SIGKILL does not return. A fence reaches only a process that has
// registered for it.
func (a *Arena) fenceDying(i int, w slotWord) bool {
	if a.slotCaps(i)&capFence != 0 && shmsync.Fence() == nil {
		return true
	}
	// Once the memory of the process is freed, its threads can store nothing. The kernel drops the
	// byte lock after it has freed the memory, which takes 30 ms for each GiB. Without a byte lock,
	// the mark of the alive word is the best evidence there is.
	return !w.hasByte() || a.foundGone(i, w) || a.byteFree(i, w) || a.detached(i, w) || a.cannotAsk(i)
}
