package arenakernel

import (
	"sync"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/asm"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("arena.inherit.looking")
	_ = crashpoint.Register("arena.inherit.unlocked")
)

// Gone reports whether nothing can write to the arena for n any more, not even a system call of n.
// n need not be current. Once Gone has returned true for n, it always does. While the process of n
// is ending, each call of Gone makes system calls.
//
// The [KernelIO] that n has declared decides which system calls of n Gone waits for. Gone does
// not cover stores by a device for which the kernel does not wait at the end of a process: RDMA,
// and a read through io_uring with O_DIRECT. docs/memory-model.md lists what is covered.
//
// A call that returns true synchronizes with the last store of n to the arena.
func (a *Arena) Gone(n ParticipantID) bool {
	i := n.Slot()
	if i < 1 || i > a.geo.slots {
		return true
	}
	w := a.slotState(i)
	switch {
	case participantIn(i, w) != n || !w.taken():
		return true // a slot is freed only after its dead participant is gone
	case w.phase() != phaseDead:
		return n == a.self && a.closing.Load()
	case a.slotCaps(i)&capNoKernelIO != 0 || a.foundGone(i, w) || a.ended(i) || a.findGone(i, w) || a.slotState(i) != w:
		return true
	}
	if _, window := a.windowOf(i); !a.copied && a.endings.begin(i, w, window) {
		a.follow(i)
	}
	return false
}

// foundGone reports whether a process has recorded that the dead participant in slot i, in state w,
// is gone: its threads have ended, or its byte lock was free.
//
// slotGone is the word of this record. It names the participant of the slot that is gone, or 0.
//
//	bits 0..17   generation, never 0
//	bits 18..31  number of the window of the slot, its low 14 bits
//	bits 32..63  how often a joiner has locked the byte of the slot
//
//	writers: any participant that found it; a joiner, before and after it locks the byte; a joiner
//	         that has the slot, which clears bits 0..31
//	readers: every process that asks whether a dead one is gone
//	order:   acq_rel
//	futex:   none
//	crash:   any value is consistent: without the record the next process finds out by itself
//
// A participant may be stopped before it writes the word, and later write the mark of an earlier
// participant of the slot. That mark has another generation or another window, so it is ignored,
// and the next participant that checks writes the right mark. Window numbers repeat after 16,384
// windows. Each window is used for at least 16 joins, and usually for 262,143.
//
// Two joiners have the same generation if the first one gives back the slot of a dead participant
// unchanged. So a joiner that has locked the byte changes bits 32..63 before it takes the slot. If
// another participant found the byte unlocked before that, its compare-and-swap fails, unless
// joiners have locked the byte 2^32 times in between.
func (a *Arena) foundGone(i int, w slotWord) bool {
	return goneOf(a.u64(a.slot(i)+slotGone).Load()) == a.goneMark(i, w)
}

// goneOf returns the mark in a value of slotGone, which names a participant.
func goneOf(word uint64) uint32 { return uint32(word) }

// withGone returns the word with its mark replaced.
func withGone(word uint64, mark uint32) uint64 { return word&^(1<<32-1) | uint64(mark) }

// forgetGone clears the mark in the slot of this joiner.
func (a *Arena) forgetGone(i int) { a.u64(a.slot(i) + slotGone).And(^uint64(1<<32 - 1)) }

// noteLocked records that this joiner has locked the byte of slot i.
func (a *Arena) noteLocked(i int) { a.u64(a.slot(i) + slotGone).Add(1 << 32) }

// goneMark returns the mark that says that the participant in slot i, in state w, is gone.
func (c *core) goneMark(i int, w slotWord) uint32 {
	_, window := c.windowOf(i)
	return w.generation() | uint32(window>>windowNumberShift)<<generationBits
}

// findGone checks whether the threads of the dead participant in slot i, in state w, have dropped
// its memory. If they have, no system call of the process is in progress, unless the process
// declared calls that the kernel continues without its threads. If the process had much memory, its
// threads drop it long before its byte lock is free.
func (a *Arena) findGone(i int, w slotWord) bool {
	word, mark := a.u64(a.slot(i)+slotGone), a.goneMark(i, w)
	before := word.Load()
	if a.slotCaps(i)&capAsyncIO != 0 || !a.detached(i, w) {
		return false
	}
	word.CompareAndSwap(before, withGone(before, mark))
	return true
}

// noteByteFree records that the participant in slot i, in state w, is gone, if its byte lock is
// free. A joiner calls noteByteFree before it takes that lock. Afterwards the lock is held, and no
// longer shows to others that the dead participant is gone, even if the joiner is stopped.
// noteByteFree returns false if the joiner cannot get the lock now.
func (a *Arena) noteByteFree(i int, w slotWord) bool {
	if a.lock == nil {
		return true
	}
	word, mark := a.u64(a.slot(i)+slotGone), a.goneMark(i, w)
	before := word.Load()
	crashpoint.Hit("arena.inherit.looking")
	if !a.byteFree(i, w) {
		return !w.hasByte()
	}
	crashpoint.Hit("arena.inherit.unlocked")
	return a.slotState(i) == w && (goneOf(before) == mark || word.CompareAndSwap(before, withGone(before, mark)))
}

// givenUp reports whether another joiner may take slot i, in state w, because the joiner in it has
// no byte lock and has not become live for a long time. Usually a death watcher takes such a slot
// back, but there may be no participant with a death watcher. The time is measured with the wall
// clock. If that clock is changed, a joiner may be given up too early, with the consequences
// described at joinTimeout.
func (a *Arena) givenUp(i int, w slotWord) bool {
	if w.phase() != phaseJoining || w.hasByte() || !a.hasCaps(i, w) {
		return false // its capabilities are not stored yet, so slotJoined may be that of an earlier participant
	}
	age := time.Now().UnixNano() - int64(a.u64(a.slot(i)+slotJoined).Load())
	return (age > joinTimeout || age < -joinTimeout) && a.slotState(i) == w
}

// detached reports whether all threads of the process in slot i, in state w, have dropped its
// memory. It returns false if the slot does not identify the process, or if another goroutine has
// checked a moment ago.
func (a *Arena) detached(i int, w slotWord) bool {
	if a.copied {
		return false
	}
	_, window := a.windowOf(i)
	if known, turn := a.endings.turn(i, w, window); known || !turn {
		return known
	}
	s, self := a.slot(i), selfIdentity()
	pid := int32(a.u32(s + slotPID).Load())
	id := identity{startTime: a.u64(s + slotStart).Load(), pidNS: a.u64(s + slotPIDNS).Load()}
	copyBytes(id.bootID[:], a.slice(s+slotBootID, 16))
	// A pid has a meaning only in its own namespace and until the next reboot. A participant stores
	// its identity a moment after it has joined.
	if !a.describes(i, w) {
		return false
	}
	if id.startTime == 0 || id.pidNS == 0 || id.pidNS != self.pidNS || id.bootID != self.bootID || id.bootID == [16]byte{} {
		return false
	}
	if !shmsync.Detached(int(pid), id.startTime) && !a.waitedFor(i, w, uint32(pid), id) || a.slotState(i) != w {
		return false
	}
	a.endings.noteDetached(i, w, window)
	return true
}

// waitedFor reports whether the parent of the dead participant in slot i, in state w, has waited
// for it. id is the identity of the participant. The kernel may still have the memory of such a
// process, and therefore its byte lock. Since Linux 6.17, this lasts one or two grace periods of
// RCU if the process got a larger futex table when it started a thread: 70 ms on a host with 16
// CPUs.
//
// A hostile or damaged slot could contain a pid that no process has. So waitedFor also requires
// that the identity has the checksum that the participant stored.
func (a *Arena) waitedFor(i int, w slotWord, pid uint32, id identity) bool {
	if a.u64(a.slot(i)+slotIdentitySum).Load() != id.sum(w.generation(), pid) || !shmsync.NoProcess(int(pid)) {
		return false
	}
	asm.LoadFence() // so that this process reads only later what those threads have stored
	return true
}

// AllGone reports whether every participant that has died is gone.
func (a *Arena) AllGone() bool {
	for i := 1; i <= a.geo.slots; i++ {
		if w := a.slotState(i); w.phase() == phaseDead && !a.Gone(participantIn(i, w)) {
			return false
		}
	}
	return true
}

// follow makes the death watcher of this process check slot i until the reap of the slot is
// finished, even if other processes also reap it.
func (a *Arena) follow(i int) {
	a.leaveFor(i)
	a.ring(a.slot(a.mySlot) + slotWatchDoorbell)
}

// endings records the deaths that this process has begun to handle and has not finished yet.
type endings struct {
	mu    sync.Mutex
	since map[int]*notice // guarded by: mu; when this process first found the death, by slot
}

// begin records the death of the participant in slot i, in state w of a window. It reports whether
// this process finds the death for the first time.
func (e *endings) begin(i int, w slotWord, window uint64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, known := e.find(i, w, window)
	return !known
}

// find returns the notice of that death. If there is none, it makes one. It reports whether the
// notice existed before.
//
// Preconditions: e.mu is held.
func (e *endings) find(i int, w slotWord, window uint64) (*notice, bool) {
	if n := e.since[i]; n != nil && n.of.generation() == w.generation() && n.window == window {
		return n, true
	}
	if e.since == nil {
		e.since = map[int]*notice{}
	}
	n := &notice{of: w, when: shmsync.Monotonic(), window: window}
	e.since[i] = n
	return n, false
}

// turn reports, in the result known, whether the participant in slot i, in state w, is known to be
// detached. If that is not known, turn reports whether the caller should check now. All goroutines
// that wait for the end of the participant call turn. A check costs 10 us or more, so one check
// counts for all of them.
func (e *endings) turn(i int, w slotWord, window uint64) (known, turn bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n, _ := e.find(i, w, window)
	now := shmsync.Monotonic()
	if n.detached || n.looked != 0 && now-n.looked < max(lookFirst, (now-n.when)/lookPart) {
		return n.detached, false
	}
	n.looked = now
	return false, true
}

func (e *endings) noteDetached(i int, w slotWord, window uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n, _ := e.find(i, w, window)
	n.detached = true
}

// noteHanded records that all data of that participant has been handed over, and from when its slot
// may be freed. No process waits for the slot, so later checks are less frequent.
func (e *endings) noteHanded(i int, w slotWord, window uint64, free int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n, _ := e.find(i, w, window)
	n.free = free
}

// A free is a slot that this process will free when the kernel has ended the dead process.
type free struct {
	slot     int
	of       slotWord
	died, at int64 // when this process found the death, and when to check the byte lock next, CLOCK_MONOTONIC ns
}

// toFree stores in frees the slots of dead participants whose data has been handed over. These
// slots only have to be freed when the kernel has ended the process. It returns their number. ok is
// false if there are other deaths as well, or too many of these.
func (a *Arena) toFree(frees []free) (n uint, ok bool) {
	if !a.unfinished.any() {
		return 0, true
	}
	e := &a.endings
	e.mu.Lock()
	defer e.mu.Unlock()
	now := shmsync.Monotonic()
	for i, m := range e.since {
		w := a.slotState(i)
		if w.phase() != phaseDead || w.generation() != m.of.generation() {
			continue
		}
		if m.free == 0 || int(n) == len(frees) || !w.hasByte() {
			return n, false
		}
		f := free{slot: i, of: w, died: m.when, at: m.free}
		if now >= m.free {
			f.at = now + min(askMost, max(askFirst, (now-m.when)/freePart)) // this process has checked just now
		}
		frees[n] = f
		n++
	}
	return n, true
}

const (
	// askFirst and askMost are the shortest and the longest time between two checks whether the
	// process of a dead participant has ended (is gone). Between these limits, the time is the
	// askPart-th part of the time since the death. The kernel needs longer to end a large process,
	// so its end is noticed with a proportional delay.
	askFirst, askMost = 5e4, 50e6 // ns
	askPart           = 8
	// freePart is used instead of askPart when the data of the process has been handed over.
	freePart = 2
	// lookFirst and lookPart limit the time between two checks of the threads of a dead process in
	// the same way. They give shorter times than askFirst and askPart, so every question of a
	// single goroutine includes a check of the threads.
	lookFirst = 3e4 // ns
	lookPart  = 16
)

// nextCheck returns the time in nanoseconds until the next check of unfinished reaps.
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
		switch {
		case n.free == 0:
			next = min(next, (now-n.when)/askPart)
		case now < n.free:
			next = min(next, n.free-now)
		default:
			next = min(next, (now-n.when)/freePart)
		}
	}
	return max(next, askFirst)
}
