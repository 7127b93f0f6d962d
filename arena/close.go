package arena

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

// Close leaves the arena, when it is the last Close of those that match the
// Opens of this process. What this process still holds, or waits for, is
// treated as its death would be: others find ErrOwnerDead. Its goroutines that
// wait are told ErrClosed.
//
// Pointers into the arena die with it: using a handle after Close, or beside
// it, is the caller's mistake and may end in a fault.
func (a *Arena) Close() error {
	attached.Lock()
	defer attached.Unlock()
	if a.opens == 0 {
		return a.fail("arena.close", shmsync.ErrClosed, "")
	}
	if a.opens--; a.opens > 0 {
		return nil
	}
	delete(attached.arenas, a.id)
	return a.leave()
}

func (a *Arena) leave() error {
	a.fenceTimer.Stop()
	i, live := a.mySlot, makeSlotWord(phaseLive, a.self.Generation())
	leaving := live.with(phaseLeaving)
	a.u64(a.slot(i) + slotDied).Store(uint64(time.Now().UnixNano()))
	a.casSlot(i, live, leaving)
	crashpoint.Hit("arena.close.leaving")
	// At the end nobody marks the alive words of a process that leaves: its byte has to be
	// asked for.
	a.ringBefore(i, 1)
	a.onClose.Range(func(_, f any) bool {
		f.(func())()
		return true
	})

	a.reaping.Lock()
	a.closingMu.Lock()
	a.closing.Store(true)
	a.closingMu.Unlock()
	concerned := a.repairAll(a.self)
	crashpoint.Hit("arena.close.repaired")
	a.settle(a.self)
	crashpoint.Hit("arena.close.reclaimed")
	// A wake that was for us is lost with us, as in a death.
	a.wakeAll(a.self, concerned)
	a.clearOpenBits(a.self)
	a.reaping.Unlock()

	a.ring(a.slot(i) + slotWatchBell)
	a.watcher.Wait()
	a.background.Wait()
	crashpoint.Hit("arena.close.unregistered")
	a.writeObituary(i, a.self, true)
	a.freeSlot(i, leaving)
	crashpoint.Hit("arena.close.freed")
	a.ringWatchersOf(i)
	// Those who looked when they were woken found us current still.
	a.countDeath(concerned)
	a.dropLock()
	return a.seg.Close()
}

// OnClose makes f be called before the arena is unmapped, while its bytes can
// still be used: for what keeps goroutines waiting in this process. A second
// call with the same key replaces the first.
func (a *Arena) OnClose(key any, f func()) { a.onClose.Store(key, f) }
