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

// Close ends this opening of the arena. It closes the handles that were opened through it first:
// their waits end with an error that Is [shmsync.ErrClosed]. A second Close of an opening returns
// such an error, too, and changes nothing.
//
// The Close of the last opening of this process leaves the arena. Locks that this process
// still holds are then treated as after its death: other processes get ErrOwnerDead.
// Pointers into the arena become invalid: using one during or after Close is a mistake of
// the caller and may end in a fault.
//
// Close waits until these waits have ended, and until calls that open, create, delete, allocate or
// free are over. So a function that such a call or a wait calls, such as a Repair, must not call
// Close. After Close has begun, the waits of such a function through handles of this opening end,
// and it can open no more objects. docs/design/0021-openings.md describes the steps of Close, and
// what a death between them leaves. While OnFirst runs, Close changes nothing, and returns an error
// that Is [syscall.EDEADLK].
func (a *Arena) Close() error {
	if a.hook.Load() != 0 {
		return a.fail("arena.close", errDeadlock, "its OnFirst closes it: let OnFirst return an error, and the Open of this process fails")
	}
	if !a.ending.CompareAndSwap(false, true) {
		return a.ClosedError("arena.close")
	}
	a.endHandles()
	if !a.killed.Load() { // the goroutines of a killed participant may never end their calls
		a.calls.Lock() // never unlocked
	}
	a.over.Store(true)
	a.endHandles() // again, because a call may have registered the first handle, and a function for OnEnd, meanwhile
	attached.Lock()
	a.opens--
	last := a.opens == 0
	if last && attached.arenas[a.id] == a.membership {
		delete(attached.arenas, a.id)
	}
	attached.Unlock()
	// The lock is not held here, because leave waits for functions that may open an arena. If such
	// a function opens this arena, the process joins as another participant.
	if !last {
		return nil
	}
	return (&Arena{membership: a.membership}).leave()
}

func (a *Arena) endHandles() {
	a.onEnd.Range(func(_, f any) bool {
		f.(func())()
		return true
	})
}

// BeginCall begins a call that writes with the ID of this participant, or that makes a handle.
// Close waits until each such call is over, because otherwise the slot could belong to another
// process while the call still writes. Once Close has begun to wait, BeginCall returns an error
// that Is [shmsync.ErrClosed]. EndCall ends a call whose BeginCall returned nil.
//
// Such a call does not wait for other participants. Operations of primitives that wait do not use
// BeginCall: the functions of OnEnd end them, and wait for their end. A call within another call
// goes through Within.
func (a *Arena) BeginCall(op string) error {
	// TryRLock fails only while Close waits, and after that.
	if !a.calls.TryRLock() {
		return a.ClosedError(op)
	}
	return nil
}

// EndCall ends the call that BeginCall has begun.
func (a *Arena) EndCall() { a.calls.RUnlock() }

// Within returns an opening for calls within a call that BeginCall has begun. Close does not refuse
// these calls while it waits for the outer call. Register handles with the original opening.
func (a *Arena) Within() *Arena { return &Arena{membership: a.membership} }

// Closing reports whether Close of this opening has begun. Calls that began before may still be in
// progress.
func (a *Arena) Closing() bool { return a.ending.Load() }

// Killed reports whether Kill has killed this participant. Its goroutines may never end their
// calls.
func (a *Arena) Killed() bool { return a.killed.Load() }

// mustBeginCall is BeginCall for an operation that cannot return an error.
func (a *Arena) mustBeginCall(op string) {
	if err := a.BeginCall(op); err != nil {
		panic(err)
	}
}

// ClosedError returns the error of a call through an opening that is closed or is being closed.
func (a *Arena) ClosedError(op string) error {
	return a.fail(op, shmsync.ErrClosed, "this opening of the arena is closed")
}

// use returns an error if the opening is closed.
func (a *Arena) use(op string) error {
	if a.over.Load() {
		return a.ClosedError(op)
	}
	return nil
}

// mustUse is use for an operation that cannot return an error.
func (a *Arena) mustUse(op string) {
	if err := a.use(op); err != nil {
		panic(err)
	}
}

func (a *Arena) leave() error {
	if a.killed.Load() {
		return a.leaveKilled()
	}
	i, live := a.mySlot, a.ownWord(phaseLive, a.self.Generation())
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
	a.records.Lock()
	//lint:ignore SA2001 wait for a SlotRecord in progress: its block must not be freed before it is on the list
	a.records.Unlock()
	a.ring(a.slot(i) + slotWatchDoorbell) // the death watcher wakes meanwhile
	concerned := a.repairAll(a.self, false)
	crashpoint.Hit("arena.close.repaired")
	if !concerned.undoing { // if undoing, what a dead predecessor had open in this slot stays open
		a.reclaimMemory(a.self)
	}
	crashpoint.Hit("arena.close.reclaimed")
	// A wake for this process may have been lost, as in a death.
	a.wakeAll(a.self, concerned)
	a.handles.Lock()
	a.handles.left = true // before the bits are cleared: then the bytes of a bit may belong to another object
	a.handles.Unlock()
	if !concerned.undoing {
		a.clearOpenBits(a.self)
	}
	a.reapMu.Unlock()

	a.repaired.arrive()
	a.watcherEnded.await(false)
	a.background.Wait()
	crashpoint.Hit("arena.close.unregistered")
	a.recordLeave()
	number, synced, in := a.epochOfWriteBack()
	a.freeSlot(i, leaving, concerned.unknown)
	crashpoint.Hit("arena.close.freed")
	if in {
		a.writeBack(number, synced)
	}
	a.ringWatchersOf(i)
	// A peer that was woken above, and looked before the slot was free, found this participant
	// still current. So wake it again.
	a.countDeath(concerned)
	a.dropLock()
	if a.ephemeral.Load() {
		a.removeLast()
	}
	return a.seg.Retire(lateCalls)
}

// lateCalls is how long the addresses of the arena stay mapped after the last Close. A call that
// ends the wait of another goroutine, such as the Post of a Futex, may still be running when that
// goroutine closes the arena. Close does not wait for such a call, which still reads and writes
// these addresses. So they must not belong to another mapping yet.
const lateCalls = 5 * time.Second

// OnClose registers f, which the arena calls before it is unmapped, while its bytes can still be
// used. f ends waits of goroutines in this process. A second call with the same key replaces the
// first.
func (a *Arena) OnClose(key any, f func()) { a.onClose.Store(key, f) }

// OnEnd registers f, which the arena calls when this opening is closed. f closes the handles that
// were opened through this opening. The arena calls f at the beginning of Close, and again when the
// calls in progress have ended, because such a call may have made a handle, or called OnEnd,
// meanwhile. In the Close of the last opening, f runs before the functions of OnClose. A second
// call with the same key replaces the first.
func (a *Arena) OnEnd(key any, f func()) { a.onEnd.Store(key, f) }
