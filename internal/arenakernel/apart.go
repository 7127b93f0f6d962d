package arenakernel

import (
	"context"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/shm"
)

// JoinApart joins the arena in seg as an additional participant of this process. Package arenatest
// uses it to run several participants in one process. The argument named bytes is a mapping of the
// file of seg that only the new participant uses. The caller owns this mapping, and unmaps it after
// Close. seg belongs to the arena, even if JoinApart returns an error.
func JoinApart(seg *shm.Segment, bytes []byte, opts *Options) (*Arena, error) {
	if err := checkPlatform("arena.open", seg.Name()); err != nil {
		seg.Close()
		return nil, err
	}
	o := opts.orDefault()
	m, err := newMember(seg, bytes, &o, true, nil)
	if err != nil {
		seg.Close()
		return nil, err
	}
	m.opens = 1
	a := &Arena{membership: m.membership}
	if err := a.admit(context.Background(), &o, false); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// Kill makes a participant of JoinApart look dead to all other participants, and ends its death
// watcher. Kill changes the same words that the kernel changes when a process is killed. The
// argument named shared is a second mapping of the arena. Before the call, the caller must have
// made the participant's own mapping private, so that no store of the participant's goroutines
// reaches the arena any more. These goroutines continue to run on the private mapping. Close of a
// killed participant changes nothing in the arena.
func (a *Arena) Kill(shared []byte) {
	if !a.killed.CompareAndSwap(false, true) {
		return
	}
	a.closingMu.Lock()
	a.closing.Store(true)
	a.closingMu.Unlock()
	// The order is that of the kernel, which first marks the words of the robust list and then
	// closes the files.
	file := newMemory(shared)
	for k := range aliveWords {
		w := file.u32(a.aliveWord(a.mySlot, k))
		w.Store(w.Load()&shmsync.RobustWaiters | shmsync.RobustOwnerDied)
	}
	if a.lock != nil {
		shmsync.UnlockByte(a.lock, a.lockByte(a.mySlot))
		a.unlockGate()
	}
	for k := range aliveWords {
		shmsync.Wake(wordPtr(file.u32(a.aliveWord(a.mySlot, k))), 1)
	}
	a.ring(a.slot(a.mySlot) + slotWatchDoorbell)
	// If the death watcher or the poller fell asleep before the mapping became private, it sleeps on a word of the
	// file. Only a wake on this word reaches it. After this wake, the poller sleeps on its doorbell in the private
	// mapping, where Close wakes it.
	for _, doorbell := range []Offset{slotWatchDoorbell, slotDoorbell} {
		shmsync.Wake(wordPtr(file.u32(a.slot(a.mySlot)+doorbell)), allSleepers)
	}
	a.repaired.arrive()
	a.watcherEnded.await(false)
	a.background.Wait()
}

// leaveKilled replaces the method leave for a participant that was killed by Kill. It changes
// nothing in the arena, and only ends the waits of the participant's goroutines.
func (a *Arena) leaveKilled() error {
	a.onClose.Range(func(_, f any) bool {
		f.(func())()
		return true
	})
	a.dropLock()
	return a.seg.Close()
}
