package arenakernel

import (
	"errors"
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

// Close ends this opening of the arena. It first closes the handles that were opened through this
// opening: their waits end with an error that Is [shmsync.ErrClosed]. A second Close of the same
// opening changes nothing and returns such an error.
//
// The Close of the last opening of this process leaves the arena. Other processes then treat the
// locks that this process still holds as if it had died: they get ErrOwnerDead. Pointers into the
// arena become invalid. The use of such a pointer during or after Close is a mistake of the caller,
// and may cause a fault.
//
// Close waits until the waits have ended, and until calls that open, create, delete, allocate or free have returned.
// A function that runs within such a call or wait, such as a Repair, must therefore not call Close; see BeforeClose.
// If another goroutine calls Close while such a function runs, the waits of this function end, too, if their handles
// belong to this opening. The function can open no more objects. docs/design/0021-openings.md describes the steps of
// Close, and what a death between two steps leaves.
//
// If the last Close of an arena with LifetimeEphemeral cannot remove the file, it returns the error of the removal. This
// process has left the arena nevertheless.
//
// While the function Options.OnFirst runs, Close changes nothing, and returns an error that Is
// [syscall.EDEADLK].
func (a *Arena) Close() error {
	if a.hook.Load() != 0 {
		return a.fail("arena.close", errDeadlock, "its OnFirst closes it: let OnFirst return an error, and the Open of this process fails")
	}
	if f := a.beforeClose.Load(); f != nil && !a.ending.Load() {
		(*f)()
	}
	if !a.ending.CompareAndSwap(false, true) {
		return a.ClosedError("arena.close")
	}
	a.endHandles()
	if !a.killed.Load() { // the goroutines of a killed participant may never end their calls
		a.calls.Lock() // never unlocked
	}
	a.over.Store(true)
	a.endHandles() // once more, because a call in progress may have made another handle
	attached.Lock()
	a.opens--
	last := a.opens == 0
	if last && attached.arenas[a.id] == a.membership {
		delete(attached.arenas, a.id)
	}
	attached.Unlock()
	// The method leave waits for functions that may open an arena, and an open locks attached. So attached is
	// unlocked before the call of leave. If such a function opens this arena, the process joins as another
	// participant.
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
// Close waits until all such calls are over: otherwise the slot could belong to another process
// while a call still writes. Once Close has begun to wait, BeginCall returns an error that Is
// [shmsync.ErrClosed]. If BeginCall returns nil, the caller must call EndCall.
//
// A call between BeginCall and EndCall must not wait for other participants. Operations of
// primitives, which do wait, use OnEnd instead: the function that they register ends their waits,
// and waits until the operations have returned. If code between BeginCall and EndCall makes another
// call of this kind, it must use the opening that Within returns.
func (a *Arena) BeginCall(op string) error {
	// TryRLock fails only while Close waits for the lock, or after Close has got it.
	if !a.calls.TryRLock() {
		return a.ClosedError(op)
	}
	return nil
}

// EndCall ends the call that began with BeginCall.
func (a *Arena) EndCall() { a.calls.RUnlock() }

// Within returns an opening for calls within a call that BeginCall has begun. These calls succeed
// even while Close waits for the outer call. Handles must be registered with the original opening.
func (a *Arena) Within() *Arena { return &Arena{membership: a.membership} }

// Closing reports whether Close of this opening has begun. Calls that began earlier may still be in
// progress.
func (a *Arena) Closing() bool { return a.ending.Load() }

// Killed reports whether Kill was called for this participant. The goroutines of a killed
// participant may never end their calls.
func (a *Arena) Killed() bool { return a.killed.Load() }

// mustBeginCall is BeginCall for an operation that cannot return an error.
func (a *Arena) mustBeginCall(op string) {
	if err := a.BeginCall(op); err != nil {
		panic(err)
	}
}

// ClosedError returns the error for a call through an opening that is closed or is being closed.
func (a *Arena) ClosedError(op string) error {
	return a.fail(op, shmsync.ErrClosed, "this opening of the arena is closed")
}

// use returns an error if this opening is closed.
func (a *Arena) use(op string) error {
	if a.over.Load() {
		return a.ClosedError(op)
	}
	return nil
}

// mustUse does what the method use does, for an operation that cannot return an error.
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
	// The compare-and-swap fails if other participants have declared this participant dead. slotDied then contains the
	// time of the death, or belongs to a later participant.
	a.u64(a.slot(i)+slotDied).CompareAndSwap(uint64(a.self.Generation()), uint64(time.Now().UnixNano()))
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
	a.ring(a.slot(i) + slotWatchDoorbell) // wakes the death watcher while this goroutine goes on
	// From here on CloseObject must change no open bit: once reclaimMemory has cleared a bit, another
	// participant may delete the object, and the word of the bit may then belong to another object.
	a.handles.Lock()
	a.handles.left = true
	a.handles.Unlock()
	concerned := a.repairAll(a.self, false)
	crashpoint.Hit("arena.close.repaired")
	// If a rollback is in progress, it may still write into the objects that a dead predecessor in this slot had open.
	if !concerned.undoing {
		a.reclaimMemory(a.self)
	}
	crashpoint.Hit("arena.close.reclaimed")
	// Wake every waiter whose wake this process may have failed to send, as a reaper does after a
	// death.
	a.wakeAll(a.self, concerned)
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
	// A peer that wakeAll has woken may have checked the objects for which it waits before the slot was
	// free. To that peer, this participant was still current. So the peer is woken once more.
	a.countDeath(concerned)
	a.dropLock()
	var stays error
	if a.ephemeral.Load() {
		stays = a.removeLast()
	}
	a.home.close()
	return errors.Join(stays, a.seg.Retire(lateCalls))
}

// lateCalls is how long the addresses of the arena stay mapped after the last Close. A call that
// ends the wait of another goroutine, such as the Post of a Futex, may still be running when that
// other goroutine closes the arena. Close does not wait for such a call. The call still reads and
// writes these addresses, so they must not belong to another mapping yet.
const lateCalls = 5 * time.Second

// OnClose registers f, which ends waits of goroutines in this process. When this process leaves the
// arena, f is called while the bytes of the arena can still be used. A second call with the same
// key replaces the function of the first call.
func (a *Arena) OnClose(key any, f func()) { a.onClose.Store(key, f) }

// BeforeClose registers f, which replaces the function of an earlier call. Close calls f before it
// changes anything. Close waits for some functions of the program, such as a Repair. The function f
// panics if the caller of Close is such a function, because Close would then wait for ever.
func (a *Arena) BeforeClose(f func()) { a.beforeClose.Store(&f) }

// OnEnd registers f. The arena calls f when this opening is closed, and f closes the handles that
// were opened through the opening. The arena calls f at the beginning of Close. It calls f again
// when the calls in progress have ended, because such a call may have made a handle, or called
// OnEnd, in the meantime. In the Close of the last opening, f runs before the functions of OnClose.
// A second call with the same key replaces the function of the first call.
func (a *Arena) OnEnd(key any, f func()) { a.onEnd.Store(key, f) }
