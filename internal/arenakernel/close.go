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
// Close waits until the waits have ended, and the calls that open, create, delete, allocate or
// free. So a function that such a call or a wait calls, such as a Repair, must not call Close. Its
// waits through handles of this opening end, and it can open none any more. The steps, and what a
// death leaves between them, are in docs/design/0021-openings.md.
// While OnFirst runs, Close changes nothing, and gives an error that Is [syscall.EDEADLK].
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
	a.endHandles() // again: a call under way may have registered the first handle and a function for OnEnd
	attached.Lock()
	a.opens--
	last := a.opens == 0
	if last && attached.arenas[a.id] == a.membership {
		delete(attached.arenas, a.id)
	}
	attached.Unlock()
	// The lock is not held here, because leave waits for functions that may open an arena. If
	// such a function opens this one, the process joins as another participant.
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

// BeginCall begins a call that writes with the ID of this participant, or that makes a handle. Close waits until each
// such call is over: otherwise the slot could belong to another process while the call goes on. After Close has begun
// to wait, the error Is [shmsync.ErrClosed]. EndCall ends a call for which the error was nil.
//
// Such a call does not wait for other participants. Operations of primitives that wait are ended and awaited by OnEnd.
// Within a call, further ones go through Within.
func (a *Arena) BeginCall(op string) error {
	// TryRLock fails only while Close waits, and afterwards.
	if !a.calls.TryRLock() {
		return a.ClosedError(op)
	}
	return nil
}

// EndCall ends what BeginCall began.
func (a *Arena) EndCall() { a.calls.RUnlock() }

// Within is the opening for a caller that is within a call that BeginCall has begun. Calls through it are counted by
// that call, so they are not refused while Close waits for it. Handles are registered with the opening itself.
func (a *Arena) Within() *Arena { return &Arena{membership: a.membership} }

// Closing reports whether Close of this opening has begun. What was begun before is still under way, perhaps.
func (a *Arena) Closing() bool { return a.ending.Load() }

// Killed reports whether this participant was killed by Kill: its goroutines may never end their calls.
func (a *Arena) Killed() bool { return a.killed.Load() }

// mustBeginCall is BeginCall for an operation that cannot return an error.
func (a *Arena) mustBeginCall(op string) {
	if err := a.BeginCall(op); err != nil {
		panic(err)
	}
}

// ClosedError is the error of a call through an opening that is closed or is being closed.
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
	//lint:ignore SA2001 a SlotRecord under way ends first: its block must not be freed before it is on the list
	a.records.Unlock()
	a.ring(a.slot(i) + slotWatchDoorbell) // the death watcher wakes in the meantime
	concerned := a.repairAll(a.self, false)
	crashpoint.Hit("arena.close.repaired")
	if !concerned.undoing { // if undoing, what a dead predecessor had open in this slot stays open
		a.reclaimMemory(a.self)
	}
	crashpoint.Hit("arena.close.reclaimed")
	// A wake that was on its way to this process is lost, as in a death.
	a.wakeAll(a.self, concerned)
	a.handles.Lock()
	a.handles.left = true // before the bits are cleared: the bytes of a bit may belong to another object after that
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
	// A peer that was woken and looked at once still found us current. So it is woken again.
	a.countDeath(concerned)
	a.dropLock()
	if a.ephemeral.Load() {
		a.removeLast()
	}
	return a.seg.Retire(lateCalls)
}

// lateCalls is for how long the addresses of the arena stay taken after the last Close. A call
// that ends the wait of another goroutine, such as the Post of a Futex, may still run when that
// goroutine closes the arena. Close does not wait for such a call. The addresses that the call
// still reads and writes must not belong to another mapping then.
const lateCalls = 5 * time.Second

// OnClose makes the arena call f before it is unmapped, while its bytes can still be used. f ends
// waits of goroutines in this process. A second call with the same key replaces the first.
func (a *Arena) OnClose(key any, f func()) { a.onClose.Store(key, f) }

// OnEnd makes the arena call f when this opening is closed. f closes the handles that were opened
// through the opening. The arena calls f once at the beginning of Close, and once more after the calls
// under way have ended, since such a call may have made a handle, or called OnEnd, in the meantime. If
// the opening is the last one, f runs before the functions of OnClose. A second call with the same key
// replaces the first.
func (a *Arena) OnEnd(key any, f func()) { a.onEnd.Store(key, f) }
