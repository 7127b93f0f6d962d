package arenakernel

import (
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("arena.close.leaving")
	_ = crashpoint.Register("arena.close.repaired")
	_ = crashpoint.Register("arena.close.reclaimed")
	_ = crashpoint.Register("arena.close.unregistered")
	_ = crashpoint.Register("arena.close.freed")
)

// Close ends this opening of the arena. It closes the handles that were opened
// through it first: their waits end with an error that Is [shmsync.ErrClosed].
// Closing an opening twice is such an error, too, and changes nothing.
//
// The Close of the last opening of this process leaves the arena. Locks that this process
// still holds are then treated as after its death: other processes get ErrOwnerDead.
// Pointers into the arena become invalid: using one during or after Close is a mistake of
// the caller and may end in a fault. Close waits until the waits have ended. So a function
// that a wait calls, such as a Repair, must not call Close.
func (a *Arena) Close() error {
	if !a.ending.CompareAndSwap(false, true) {
		return a.closedError("arena.close")
	}
	a.onEnd.Range(func(_, f any) bool {
		f.(func())()
		return true
	})
	a.over.Store(true)
	attached.Lock()
	a.opens--
	last := a.opens == 0
	if last && attached.arenas[a.id] == a.membership {
		delete(attached.arenas, a.id)
	}
	attached.Unlock()
	// The lock is not held: a function that leave waits for may open an arena. If that is this
	// one, it joins as another participant.
	if !last {
		return nil
	}
	return (&Arena{membership: a.membership}).leave()
}

func (a *Arena) closedError(op string) error {
	return a.fail(op, shmsync.ErrClosed, "this opening of the arena is closed")
}

// use reports an operation on a closed opening.
func (a *Arena) use(op string) error {
	if a.over.Load() {
		return a.closedError(op)
	}
	return nil
}

// mustUse is use for an operation that has no error.
func (a *Arena) mustUse(op string) {
	if err := a.use(op); err != nil {
		panic(err)
	}
}

func (a *Arena) leave() error {
	if a.killed.Load() {
		return a.leaveKilled()
	}
	i, live := a.mySlot, makeSlotWord(phaseLive, a.self.Generation())
	leaving := live.with(phaseLeaving)
	a.u64(a.slot(i) + slotDied).Store(uint64(time.Now().UnixNano()))
	a.casSlot(i, live, leaving)
	crashpoint.Hit("arena.close.leaving")
	a.onClose.Range(func(_, f any) bool {
		f.(func())()
		return true
	})

	a.reapMu.Lock()
	a.closingMu.Lock()
	a.closing.Store(true)
	a.closingMu.Unlock()
	a.ring(a.slot(i) + slotWatchDoorbell) // the death watcher wakes meanwhile
	concerned := a.repairAll(a.self, false)
	crashpoint.Hit("arena.close.repaired")
	if !concerned.undoing { // else what a dead one of this slot had open stays so
		a.reclaimMemory(a.self)
	}
	crashpoint.Hit("arena.close.reclaimed")
	// A wake that was for us is lost with us, as in a death.
	a.wakeAll(a.self, concerned)
	if !concerned.undoing {
		a.clearOpenBits(a.self)
	}
	a.reapMu.Unlock()

	a.repaired.arrive()
	a.watcherEnded.await(false)
	a.background.Wait()
	crashpoint.Hit("arena.close.unregistered")
	a.writeDeathRecord(i, a.self, true)
	number, synced, in := a.epochOfWriteBack()
	a.freeSlot(i, leaving, concerned.unknown)
	crashpoint.Hit("arena.close.freed")
	if in {
		a.writeBack(number, synced)
	}
	a.ringWatchersOf(i)
	// A peer that looked when it was woken found us current still.
	a.countDeath(concerned)
	a.dropLock()
	if a.ephemeral.Load() {
		a.removeLast()
	}
	return a.seg.Retire(lateCalls)
}

// lateCalls is for how long the addresses of the arena stay taken after the last Close. A call
// that ends the wait of another goroutine, such as the Post of a Futex, may be on its way out
// when that goroutine closes the arena. Close does not wait for such a call. What it still
// reads and writes belongs to nobody then.
const lateCalls = 5 * time.Second

// OnClose makes f be called before the arena is unmapped, while its bytes can
// still be used: for what keeps goroutines waiting in this process. A second
// call with the same key replaces the first.
func (a *Arena) OnClose(key any, f func()) { a.onClose.Store(key, f) }

// OnEnd makes f be called when this opening is closed, before OnClose calls anything
// if it is the last: for the handles that were opened through it. A second call with
// the same key replaces the first.
func (a *Arena) OnEnd(key any, f func()) { a.onEnd.Store(key, f) }
