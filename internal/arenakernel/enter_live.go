package arenakernel

import (
	"errors"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

// linkAlive puts the alive words of slot i on the robust list of this joiner, and says so in the
// capabilities. From then on, the kernel marks the words if this process dies. So other participants
// can tell whether the joiner is alive, although it has no byte lock. While it is alive, no
// participant takes the slot back. Only after linkAlive does the joiner write the other words of the
// slot.
//
// Before that, other participants take the slot back after joinTimeout. So each store of take and
// of linkAlive is a CAS, after a check that the slot still belongs to this joiner. If another
// participant has got the slot since the check, that participant has changed the word, and the CAS
// fails. If the slot is free, the CAS succeeds, but the next participant of the slot replaces the
// word.
//
// In one case, the CAS overwrites an alive word of the next participant: if the thread of that
// participant is in another pid namespace, and its thread ID in that namespace is the value that the
// word contained before. The kernel then marks only three of the four alive words at the death of
// that participant; see the known gaps in docs/design/0018-two-stages-of-a-death.md.
//
// linkAlive returns false if the slot does not belong to this joiner any more. The joiner is in
// state joining.
func (a *Arena) linkAlive(i int, joining slotWord) bool {
	t := a.watcher
	if t.list == nil {
		return true // a joiner in a test; the method enter takes no slot without a robust list
	}
	t.list.Link(wordPtr(a.u32(a.aliveWord(i, 0))), aliveWords)
	a.robust = t.list
	a.caps |= capRobust
	for k := range aliveWords {
		word := a.u32(a.aliveWord(i, k))
		for {
			was := word.Load()
			if a.slotState(i) != joining {
				a.unlinkAlive(i, joining)
				return false
			}
			// The CAS fails only if the kernel marks the death of an earlier participant.
			if word.CompareAndSwap(was, t.alive) {
				break
			}
		}
	}
	// If the slot was freed after the check, and no joiner has taken it yet, the CAS succeeds. So
	// check again. If the slot still belongs to this joiner, other participants free it from now on
	// only after the kernel has marked an alive word.
	if !a.publishCaps(i, joining) || a.slotState(i) != joining {
		a.unlinkAlive(i, joining)
		return false
	}
	return true
}

// unlinkAlive undoes what linkAlive has done, if it was called. A joiner calls it in state joining,
// before it gives its slot back. This is necessary because the thread of the next participant may
// have the same thread ID, in another pid namespace. After unlinkAlive, the joiner may change only
// the state of the slot.
func (a *Arena) unlinkAlive(i int, joining slotWord) {
	if a.robust == nil {
		return
	}
	a.caps &^= capRobust
	if !a.publishCaps(i, joining) { // before Clear: if this process dies in between, its slot is taken back after joinTimeout
		a.markAlive(i, joining.with(phaseDead))
	}
	a.robust.Clear()
	a.robust = nil
}

// markAlive marks the alive words of slot i, in state w, as the kernel would do at the death of this
// process. A joiner without a byte lock calls it if it is alive and finds its slot marked dead. The
// kernel does not mark the words then, and without the marks nobody could free the slot. After
// markAlive, the joiner must not store to the slot.
//
// While the slot has the capability capRobust, no process frees the slot before the last of the words
// is marked. So no CAS hits the words of the next participant. Without this capability, other
// participants do not wait for the marks, so markAlive does nothing.
func (a *Arena) markAlive(i int, w slotWord) {
	for k := range aliveWords {
		if a.slotState(i) != w || a.slotCaps(i)&capRobust == 0 {
			return
		}
		a.u32(a.aliveWord(i, k)).CompareAndSwap(a.watcher.alive, shmsync.RobustOwnerDied|shmsync.RobustWaiters)
	}
}

// linked reports whether the participant in slot i, in state w, is a joiner without a byte lock
// that has called linkAlive. The kernel marks the death of such a joiner.
func (a *Arena) linked(i int, w slotWord) bool {
	return w.phase() == phaseJoining && !w.hasByte() && a.slotCaps(i)&capRobust != 0
}

// publishJoined stores the present time in slotJoined. The slot of this joiner is in state joining.
// publishJoined returns false if the slot does not belong to this joiner any more.
func (a *Arena) publishJoined(i int, joining slotWord) bool {
	word := a.u64(a.slot(i) + slotJoined)
	for {
		// The CAS fails only if another joiner, which took the slot before or after this one, has stored
		// its time.
		was := word.Load()
		if a.slotState(i) != joining {
			return false
		}
		if word.CompareAndSwap(was, uint64(time.Now().UnixNano())) {
			return true
		}
	}
}

// errSlotLost says that another process has taken back the slot of this joiner, which had no byte lock and was stopped
// for too long. The error must not be ErrCorrupt, because the arena is not damaged: an opener with RecreateCorrupt
// would replace an arena that returns ErrCorrupt.
var errSlotLost = errors.New("the join took too long")

func (a *Arena) slotLost() error {
	return a.fail("arena.open", errSlotLost, "a peer took the slot away; open the arena again")
}

// becomeLive makes this participant live. It runs on the thread of the death watcher.
func (a *Arena) becomeLive(t *watcherThread) error {
	i := a.mySlot
	if t.list != nil && a.robust == nil {
		t.list.Link(wordPtr(a.u32(a.aliveWord(i, 0))), aliveWords)
		a.robust = t.list
		a.caps |= capRobust
	}
	crashpoint.Hit("arena.enter.registered")
	if shmsync.FeatureWaitV.Have() {
		a.caps |= capWaitV
	}
	s := a.slot(i)
	joining := a.ownWord(phaseJoining, a.self.Generation())
	if !a.publishCaps(i, joining) {
		return a.slotLost()
	}
	tid := uint32(shmsync.ThreadID())
	a.u32(s + slotTID).Store(tid)
	for k := range aliveWords {
		// Always set FUTEX_WAITERS. Without this bit the kernel marks the word at a death but wakes
		// no thread.
		a.u32(a.aliveWord(i, k)).Store(tid&shmsync.RobustTIDMask | shmsync.RobustWaiters)
	}
	crashpoint.Hit("arena.enter.before_live")
	if !a.casSlot(i, joining, joining.with(phaseLive)) {
		return a.slotLost()
	}
	crashpoint.Hit("arena.enter.live")
	return nil
}

// haveWaitV reports whether this process can sleep on several words at once. A filter for system calls that the
// program has installed since the join may forbid that.
func (a *Arena) haveWaitV() bool { return a.caps&capWaitV != 0 && shmsync.FeatureWaitV.Have() }
