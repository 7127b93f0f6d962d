package arenakernel

import (
	"sync"

	"github.com/shmsync/shmsync"
)

// Gone reports whether nothing can write into the arena for n any more, not even a
// system call of n. It may be asked about a name that is not current; once it is true
// it stays true. While n's process ends it costs a system call.
//
// Gone does not cover stores that a device makes by itself: RDMA, and a read through
// io_uring with O_DIRECT, which the kernel does not wait for when a process ends.
// docs/memory-model.md lists what is covered.
//
// A dead participant is gone when its byte lock is free: the kernel drops the lock
// when the last thread of the process closes its files, and then every thread has
// left all code of the kernel that could copy. A participant that declared
// NoKernelIO is gone when it is dead. Where there are no byte locks only the end of
// the thread of its death watcher is known.
//
// A true answer synchronizes with the last store of n to the arena.
func (a *Arena) Gone(n ParticipantID) bool {
	i := n.Slot()
	if i < 1 || i > a.geo.slots {
		return true
	}
	w := a.slotState(i)
	switch {
	case participantIn(i, w) != n || !w.taken():
		return true // a slot is freed when its dead one is gone
	case w.phase() != phaseDead:
		return n == a.self && a.closing.Load()
	case a.slotCaps(i)&capNoKernelIO != 0 || a.ended(i) || a.slotState(i) != w:
		return true
	}
	if _, window := a.windowOf(i); !a.copied && a.endings.begin(i, w, window) {
		a.follow()
	}
	return false
}

// AllGone reports whether every participant that died is gone.
func (a *Arena) AllGone() bool {
	for i := 1; i <= a.geo.slots; i++ {
		if w := a.slotState(i); w.phase() == phaseDead && !a.Gone(participantIn(i, w)) {
			return false
		}
	}
	return true
}

// follow makes this process's death watcher ask again until a reap is finished, even if
// other processes work on it too.
func (a *Arena) follow() {
	a.unfinished.Store(true)
	a.ring(a.slot(a.mySlot) + slotWatchDoorbell)
}

// endings are the deaths that this process has begun to deal with and not finished.
type endings struct {
	mu    sync.Mutex
	since map[int]notice // guarded by: mu; when this process first met the death, by slot
}

// begin notes the death of the participant in slot i in state w of a window, and reports
// whether it was not known.
func (e *endings) begin(i int, w slotWord, window uint64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n, ok := e.since[i]; ok && n.of.generation() == w.generation() && n.window == window {
		return false
	}
	if e.since == nil {
		e.since = map[int]notice{}
	}
	e.since[i] = notice{w, shmsync.Monotonic(), window}
	return true
}

const (
	// askFirst and askMost bound the time from one question whether a dead process
	// is gone to the next. In between it is an askPart of the time since the death:
	// the end of a large process takes long, and is noticed that much later.
	askFirst, askMost = 5e4, 50e6 // ns
	askPart           = 8
)

// nextCheck is in how many nanoseconds to look again at what is unfinished.
func (a *Arena) nextCheck() int64 {
	e := &a.endings
	e.mu.Lock()
	defer e.mu.Unlock()
	next, now := int64(askMost), shmsync.Monotonic()
	for i, n := range e.since {
		if w := a.slotState(i); w.generation() != n.of.generation() || !w.taken() {
			delete(e.since, i)
			continue
		}
		next = min(next, (now-n.when)/askPart)
	}
	return max(next, askFirst)
}
