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

// Gone reports whether nothing can write into the arena for n any more, not even a system call of
// n. Gone accepts an n that is not current. Once the answer is true, it stays true. While n's
// process is ending, each call of Gone makes system calls.
//
// What Gone waits for depends on the [KernelIO] that n has declared. Gone does not cover stores
// that a device makes by itself: RDMA, and a read through io_uring with O_DIRECT, for which the
// kernel does not wait when a process ends. docs/memory-model.md lists what is covered.
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
		return true // a slot is freed only when its dead participant is gone
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

// foundGone reports whether any process has recorded that the dead participant in slot i, in
// state w, is gone because its threads have ended, or because its byte lock was free.
//
// slotGone names the participant of the slot that was found to be gone, 0 for none.
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
// A participant may be stopped before it writes the word, and may later write the mark of an
// earlier participant. That mark has another generation or another window, so it is ignored, and
// the next participant that checks writes the right value. The number of a window repeats after
// 16,384 windows. Each window serves at least 16 joins, and usually 262,143.
//
// Two joiners have the same generation if the first one gives the slot of a dead participant back
// unchanged. So a joiner that has locked the byte changes bits 32..63 before it takes the slot.
// Another participant may have found the byte unlocked before that. Its compare-and-swap then
// fails, unless joiners have locked the byte 2^32 times in between.
func (a *Arena) foundGone(i int, w slotWord) bool {
	return goneOf(a.u64(a.slot(i)+slotGone).Load()) == a.goneMark(i, w)
}

// goneOf returns the mark in the word slotGone: the participant that the word names.
func goneOf(word uint64) uint32 { return uint32(word) }

// withGone returns the word with another mark.
func withGone(word uint64, mark uint32) uint64 { return word&^(1<<32-1) | uint64(mark) }

// forgetGone clears the mark in the slot of this joiner.
func (a *Arena) forgetGone(i int) { a.u64(a.slot(i) + slotGone).And(^uint64(1<<32 - 1)) }

// noteLocked records that this joiner has locked the byte of slot i.
func (a *Arena) noteLocked(i int) { a.u64(a.slot(i) + slotGone).Add(1 << 32) }

// goneMark returns the mark in slotGone which says that the participant in slot i, in state w, is
// gone.
func (c *core) goneMark(i int, w slotWord) uint32 {
	_, window := c.windowOf(i)
	return w.generation() | uint32(window>>windowNumberShift)<<generationBits
}

// findGone finds out whether the threads of the dead participant in slot i, in state w, have given
// up its memory. If so, no system call of the process is in progress any more, unless the process
// declared calls that the kernel continues without its threads. If the process had much memory, its
// threads give it up long before its byte lock is free.
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
// free. A joiner calls it before it takes that lock, because afterwards the lock shows others
// nothing about the dead participant, even if the joiner is stopped. noteByteFree returns false if
// the joiner cannot get the lock now.
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

// givenUp reports whether a joiner in slot i, in state w, has no byte lock and has not become live
// for so long that another joiner may take its slot. Usually a death watcher takes such a slot
// back, but there may be no participant. The time is measured with the wall clock. If that is
// changed, a joiner may be given up too early, with the consequences described at joinTimeout.
func (a *Arena) givenUp(i int, w slotWord) bool {
	if w.phase() != phaseJoining || w.hasByte() || !a.hasCaps(i, w) {
		return false // before it has written its capabilities, slotJoined may be that of an earlier participant
	}
	age := time.Now().UnixNano() - int64(a.u64(a.slot(i)+slotJoined).Load())
	return (age > joinTimeout || age < -joinTimeout) && a.slotState(i) == w
}

// detached reports whether all threads of the process in slot i, in state w, have given up its
// memory. It returns false if the slot does not identify the process, or if another goroutine has
// just checked.
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
	// A pid has a meaning only in its own namespace, and until the next boot. A participant
	// writes its identity a moment after it has joined.
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

// waitedFor reports whether the dead participant in slot i, in state w, with that identity, has
// been waited for by its parent. The kernel may still have its memory, and therefore its byte lock.
// Since Linux 6.17 this lasts one or two grace periods of RCU if the process got a larger futex
// table when it started a thread: 70 ms on a host with 16 CPUs.
//
// A hostile or damaged slot could contain a pid that no process has. So the identity must have the
// checksum that the participant has written.
func (a *Arena) waitedFor(i int, w slotWord, pid uint32, id identity) bool {
	if a.u64(a.slot(i)+slotIdentitySum).Load() != id.sum(w.generation(), pid) || !shmsync.NoProcess(int(pid)) {
		return false
	}
	asm.LoadFence() // to read what its threads have stored only after this
	return true
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

// follow makes the death watcher of this process check slot i until the reap of the slot is
// finished, even if other processes work on the reap, too.
func (a *Arena) follow(i int) {
	a.leaveFor(i)
	a.ring(a.slot(a.mySlot) + slotWatchDoorbell)
}

// endings records the deaths that this process has begun to handle and has not finished.
type endings struct {
	mu    sync.Mutex
	since map[int]*notice // guarded by: mu; when this process first met the death, by slot
}

// begin records the death of the participant in slot i, in state w of a window. It reports whether
// the death is new to this process.
func (e *endings) begin(i int, w slotWord, window uint64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, known := e.find(i, w, window)
	return !known
}

// find returns the notice of that death, and makes one if there is none. It reports whether there
// was one.
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

// turn reports whether the participant in slot i, in state w, is known to be detached. If not, turn
// reports whether it is time for the caller to check. All goroutines that wait for the end of the
// participant call it. A check costs 10 us or more, so they take turns.
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

// noteHanded records that all data of that participant is handed over, and when its slot may be
// freed at the earliest. Nobody waits for the slot, so later checks are less frequent.
func (e *endings) noteHanded(i int, w slotWord, window uint64, free int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n, _ := e.find(i, w, window)
	n.free = free
}

// free is a slot that this process frees when the kernel has ended its dead participant.
type free struct {
	slot     int
	of       slotWord
	died, at int64 // when this process found the death, and when to ask for the byte lock next, CLOCK_MONOTONIC ns
}

// toFree fills frees with the slots of dead participants whose data is handed over. These slots
// need only be freed when the kernel has ended the process. It returns their number. ok is false if
// there are other deaths, or too many.
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
			f.at = now + min(askMost, max(askFirst, (now-m.when)/freePart)) // this process has just asked
		}
		frees[n] = f
		n++
	}
	return n, true
}

const (
	// askFirst and askMost bound the time between two checks whether a dead process is gone.
	// Between these bounds, the pause is one askPart-th of the time since the death. So the end of
	// a large process, which takes long, is noticed with a proportional delay.
	askFirst, askMost = 5e4, 50e6 // ns
	askPart           = 8
	// freePart replaces askPart for a process whose data is handed over.
	freePart = 2
	// lookFirst and lookPart bound the time between two checks of the threads of a dead process.
	// Both give shorter pauses than those of a single asker, so that each of its questions includes
	// a check.
	lookFirst = 3e4 // ns
	lookPart  = 16
)

// nextCheck returns after how many nanoseconds to check unfinished reaps again.
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
