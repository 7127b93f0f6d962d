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

// Dead reports whether n is the name of a participant that died or left, and
// makes sure that it is reaped if this call is the first to see its death: when
// Dead returns true, Current(n) is false. It looks at the marks that the kernel
// leaves, and where the kernel leaves none, asks. It is false for a moment after
// the death of a participant whose other threads cannot be fenced.
func (a *Arena) Dead(n ParticipantID) bool {
	i := n.Slot()
	if i < 1 || i > a.geo.slots {
		return true
	}
	w := a.slotState(i)
	if participantIn(i, w) != n || !w.present() {
		return true
	}
	if a.copied || a.killed.Load() {
		return false // an Inspector reaps nobody, and to a killed participant all live for ever
	}
	if n == a.self || !a.seenDead(i, w) && !a.foundDead(i, w) {
		return false
	}
	if a.mark(i, w) {
		// The caller goes on at once with what it waits for. The kernel has
		// woken watchers for the rest of the reap; in case they do not come
		// it is done from here.
		shmsync.Wake(wordPtr(a.u32(a.aliveWord(i, aliveWords-1))), allSleepers)
		time.AfterFunc(reapSelfAfter, func() {
			// This opening may be closed by then, and others still be open.
			a := &Arena{membership: a.membership}
			a.inBackground(func() {
				a.reapMarked(i, w.with(phaseDead))
				a.goOn()
			})
		})
	}
	return !a.isCurrent(n)
}

// reapSelfAfter is how long a participant that met a death leaves the reap to the watchers.
const reapSelfAfter = time.Millisecond

// inBackground runs f beside the caller, unless this process leaves the arena.
func (a *Arena) inBackground(f func()) {
	a.closingMu.Lock()
	defer a.closingMu.Unlock()
	if !a.closing.Load() {
		a.background.Go(f)
	}
}

// AliveWord is the futex word that the kernel marks and wakes when n dies, with
// the value that it has while n lives. ok is false where the kernel does not
// do that for n.
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

func (a *Arena) slotCaps(i int) uint32 { return a.u32(a.slot(i) + slotCaps).Load() }

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
	}
	if w.phase() == phaseLive && a.slotCaps(i)&capRobust != 0 {
		return false
	}
	return a.byteFree(i) && a.slotState(i) == w
}

// surveyDead is seenDead for a survey: it also asks for the byte locks of participants that
// the kernel would mark, since the kernel marks no word in a copied file, or after a loss of
// power.
func (a *Arena) surveyDead(i int, w slotWord) bool {
	return w.present() && (a.seenDead(i, w) || a.byteFree(i) && a.slotState(i) == w)
}

// foundDead is surveyDead, once in askEvery at most: it finds a participant whose robust list
// the kernel could not walk.
func (a *Arena) foundDead(i int, w slotWord) bool {
	now, last := shmsync.Monotonic(), a.asked[i].Load()
	return now-last > askEvery && a.asked[i].CompareAndSwap(last, now) && a.surveyDead(i, w)
}

// askEvery is how often Dead asks for the byte lock of a participant that the kernel marks
// when it dies, in nanoseconds.
const askEvery = 1e9

// byteFree reports whether the byte lock of slot i is free. It is false for a participant
// that never had it.
func (a *Arena) byteFree(i int) bool {
	if a.lock == nil || i == a.mySlot {
		return false
	}
	if caps := a.slotCaps(i); caps&capOFD == 0 {
		// None at all means a joiner without a byte, or a slot whose reaper
		// died when it had wiped it and not yet freed it.
		if p := a.slotState(i).phase(); caps != 0 || p != phaseLeaving && p != phaseDead {
			return false
		}
	}
	// A descriptor that was closed by mistake elsewhere in this program may name another
	// file by now, in which no process has locked the byte.
	for _, f := range []*os.File{a.lock, a.seg.File()} {
		if locked, err := shmsync.ByteLocked(f, a.lockByte(i)); err == nil && (locked || isFile(f, a.id)) {
			return !locked
		}
	}
	return false
}

// ended reports whether the kernel writes no more for the process in slot i, and not
// to the slot's alive words either.
func (a *Arena) ended(i int) bool {
	if a.byteFree(i) {
		return true
	}
	if a.lock != nil && a.slotCaps(i)&capOFD != 0 {
		return false
	}
	for k := range aliveWords {
		if a.u32(a.aliveWord(i, k)).Load()&shmsync.RobustOwnerDied == 0 {
			return false
		}
	}
	return true
}

// mark moves slot i from w to dead, after a fence. It reports whether this call
// did it.
func (a *Arena) mark(i int, w slotWord) bool {
	crashpoint.Hit("arena.reap.seen")
	if a.self == 0 {
		return a.declareDead(i, w) // a joiner, which has the byte lock of the slot
	}
	defer a.beginAct(participantIn(i, w)).end()
	// Once more, now that no participant can get the ID: another one may have got it before.
	if blind := w.phase() == phaseJoining && a.slotCaps(i)&capOFD == 0; !blind && !a.surveyDead(i, w) {
		return false
	}
	return a.declareDead(i, w)
}

func (a *Arena) declareDead(i int, w slotWord) bool {
	if !a.fenceDying(i, w) {
		if _, window := a.windowOf(i); a.endings.begin(i, w, window) {
			a.follow()
		}
		a.leaveFor(i)
		return false
	}
	crashpoint.Hit("arena.reap.fenced")
	now := uint64(time.Now().UnixNano())
	// sync(arena.reap): release
	if !a.casSlot(i, w, w.with(phaseDead)) {
		return false
	}
	a.u64(a.slot(i)+slotDied).CompareAndSwap(0, now)
	// If it lives after all, it must learn that its locks are others' now.
	a.ring(a.slot(i) + slotWatchDoorbell)
	crashpoint.Hit("arena.reap.marked")
	return true
}

// fenceDying makes sure that no thread of the dying process in slot i executes a
// store to the arena any more, and reports false while that cannot be told. The
// mark on an alive word is per thread: the siblings have SIGKILL pending but may
// run on for a moment. The interrupt of a fence is their last way back to user
// mode, and it does not take it. It reaches only a process that has registered.
func (a *Arena) fenceDying(i int, w slotWord) bool {
	if a.slotCaps(i)&capFence != 0 && shmsync.Fence() == nil {
		return true
	}
	// A thread without memory executes no store. The byte lock goes after that, and it
	// takes 30 ms for each GiB that the process had. Where there is none, nothing better
	// exists than the mark.
	return a.lock == nil || a.slotCaps(i)&capOFD == 0 || a.byteFree(i) || a.detached(i, w)
}
