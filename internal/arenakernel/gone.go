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
// The participant n may be alive, dead, or replaced in its slot. Once Gone has returned true for n,
// it always does. While the process of n is ending, each call of Gone makes system calls.
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
	if _, window := a.windowOf(i); !a.copied && a.endings.begin(&a.core, i, w, window) {
		a.follow(i) // all processes that watch the slot may be stopped
	}
	return false
}

// foundGone reports whether a process has recorded that the dead participant in slot i, in state w,
// is gone: its threads have ended, or its byte lock was free.
//
// The word slotGone of the slot contains this record. Its lower half is a mark, which names the
// participant of the slot that is gone, or is 0.
//
//	bits 0..17   generation, never 0
//	bits 18..31  number of the window of the slot, its low 14 bits
//	bits 32..63  how often a joiner has locked the byte of the slot
//
//	writers: any participant that found the participant of the slot gone; a joiner, before and after it locks the
//	         byte; a joiner that has the slot, which clears bits 0..31
//	readers: every process that asks whether a dead participant is gone
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

// goneOf returns the mark in a value of slotGone; see foundGone.
func goneOf(word uint64) uint32 { return uint32(word) }

// withGone returns the given value of slotGone with another mark.
func withGone(word uint64, mark uint32) uint64 { return word&^(1<<32-1) | uint64(mark) }

// forgetGone clears the mark of slotGone in slot i, the slot of this joiner. The mark names an earlier
// participant of the slot.
func (a *Arena) forgetGone(i int) { a.u64(a.slot(i) + slotGone).And(^uint64(1<<32 - 1)) }

// noteLocked records in slotGone that this joiner has taken the byte lock of slot i.
func (a *Arena) noteLocked(i int) { a.u64(a.slot(i) + slotGone).Add(1 << 32) }

// goneMark returns the mark that names the participant in slot i, in state w.
func (c *core) goneMark(i int, w slotWord) uint32 {
	_, window := c.windowOf(i)
	return w.generation() | uint32(window>>windowNumberShift)<<generationBits
}

// findGone checks whether the threads of the dead participant in slot i, in state w, have dropped
// its memory, and if so records that the participant is gone. After the threads have dropped the
// memory, no system call of the process is in progress, unless the process declared
// KernelIOAsynchronous. If the process had much memory, its threads drop it long before its byte lock
// is free.
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
// free. A joiner calls noteByteFree before it takes that lock. Once the joiner holds the lock, the
// lock no longer shows other processes that the dead participant is gone, but the record does, even
// while the joiner is stopped. noteByteFree returns false if the joiner cannot get the lock now.
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

// givenUp reports whether another joiner may take slot i, in state w, from the joiner that has it
// now. That is allowed if the present joiner has no byte lock and has not become live for a long
// time. Usually a death watcher takes such a slot back, but perhaps no participant with a death
// watcher is in the arena. The time is measured with the wall clock. If that clock is changed, a
// joiner may be given up too early, with the consequences described at joinTimeout.
func (a *Arena) givenUp(i int, w slotWord) bool {
	if w.phase() != phaseJoining || w.hasByte() || !a.hasCaps(i, w) || a.linked(i, w) {
		return false // before a joiner stores its capabilities, slotJoined may be the time of an earlier joiner
	}
	age := time.Now().UnixNano() - int64(a.u64(a.slot(i)+slotJoined).Load())
	return (age > joinTimeout || age < -joinTimeout) && a.slotState(i) == w
}

// detached reports whether all threads of the dying process in slot i, in state w, have dropped the
// memory of the process. After that, none of them can store to the arena any more. It returns false
// if the slot does not identify the process, or if a goroutine of this process has checked a moment
// ago.
func (a *Arena) detached(i int, w slotWord) bool {
	if a.copied {
		return false
	}
	_, window := a.windowOf(i)
	if known, turn := a.endings.turn(&a.core, i, w, window); known || !turn {
		return known
	}
	self, err := selfIdentity()
	if err != nil {
		return false // selfIdentity may succeed in a later check
	}
	s := a.slot(i)
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
	a.endings.noteDetached(&a.core, i, w, window)
	return true
}

// waitedFor reports whether the process of the dead participant in slot i, in state w, does not
// exist any more because its parent has waited for it with wait(2). The parameter id is the
// identity of the participant. The kernel may still have the memory of such a process, and
// therefore its byte lock. Since Linux 6.17, if the process got a larger futex table when it
// started a thread, the kernel keeps the memory for one or two more grace periods of RCU. On a host
// with 16 CPUs, that took 70 ms.
//
// A hostile or damaged slot could contain a pid that no process has. So waitedFor also requires
// that the identity has the checksum that the participant stored.
func (a *Arena) waitedFor(i int, w slotWord, pid uint32, id identity) bool {
	if a.u64(a.slot(i)+slotIdentitySum).Load() != id.sum(w.generation(), pid) || !shmsync.NoProcess(int(pid)) {
		return false
	}
	asm.LoadFence() // so that this process sees what the threads of the ended process have stored
	return true
}

// NextLook returns after how many nanoseconds a goroutine that waits for the dying participant n should check again
// whether n is dead. This time grows with the time since this process found that n is dying.
func (a *Arena) NextLook(n ParticipantID) int64 {
	return max(askFirst, min(a.endings.age(n)/waiterPart, waiterMost))
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

// follow makes the death watcher of this process check slot i until the reap of its participant is
// finished, even if other processes are reaping, too.
func (a *Arena) follow(i int) {
	if a.leaveFor(i) {
		a.ring(a.slot(a.mySlot) + slotWatchDoorbell)
	}
}

// endings records the deaths that this process has begun to handle and has not finished yet.
type endings struct {
	mu    sync.Mutex
	since map[int]*notice // guarded by: mu; when this process first found the death, by slot
}

// begin records that this process cleans up after the death of the participant in slot i, in state
// w of a window. It returns true in the first call for this death. A notice of the death may exist
// before that call, because a check of the threads makes a notice, too.
func (e *endings) begin(c *core, i int, w slotWord, window uint64) (first bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n, _ := e.find(c, i, w, window)
	first = !n.begun && e.since[i] == n // otherwise the slot has had another participant since
	n.begun = true
	return first
}

// find returns the notice of the death of the participant in slot i, in state w of a window. If
// there is no notice, find makes one. The second result is false if find has made and recorded a
// new notice.
//
// The goroutine may have read w and window long ago. If the slot has had another participant since,
// find returns a notice that is not recorded, so that the notice of the later participant stays.
//
// Preconditions: e.mu is held.
func (e *endings) find(c *core, i int, w slotWord, window uint64) (*notice, bool) {
	if n := e.since[i]; n != nil && n.of.generation() == w.generation() && n.window == window {
		return n, true
	}
	n := &notice{of: w, when: shmsync.Monotonic(), window: window}
	if _, now := c.windowOf(i); now != window || c.slotState(i).generation() != w.generation() {
		return n, true
	}
	if e.since == nil {
		e.since = map[int]*notice{}
	}
	e.since[i] = n
	return n, false
}

// The method turn decides whether the caller should check now if the threads of the participant in slot i, in state
// w, have dropped its memory. The result named known is true if an earlier check of this process has found that they
// have. Otherwise the result named turn says whether the caller should check. All goroutines that wait for the end of
// the participant call the method turn. A check costs 10 us or more, so one check counts for all of them.
func (e *endings) turn(c *core, i int, w slotWord, window uint64) (known, turn bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n, _ := e.find(c, i, w, window)
	now := shmsync.Monotonic()
	if n.detached || n.looked != 0 && now-n.looked < max(lookFirst, (now-n.when)/lookPart) {
		return n.detached, false
	}
	n.looked = now
	return false, true
}

// age returns for how long this process has known that the participant n is dying. It is 0 if this process has not
// found that yet.
func (e *endings) age(n ParticipantID) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if m := e.since[n.Slot()]; m != nil && m.of.generation() == n.Generation() {
		return shmsync.Monotonic() - m.when
	}
	return 0
}

func (e *endings) noteDetached(c *core, i int, w slotWord, window uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n, _ := e.find(c, i, w, window)
	n.detached = true
}

// noteHanded records that all data of the dead participant in slot i has been handed over to other
// participants. The parameter named free is the time from which its slot may be freed; only the first call
// counts. No waiter depends on the slot any more, so later checks are less frequent.
func (e *endings) noteHanded(c *core, i int, w slotWord, window uint64, free int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n, _ := e.find(c, i, w, window)
	if n.free == 0 {
		n.free = free
	}
}

// The type free describes a slot that this process will free when the kernel has ended the dead process.
type free struct {
	slot     int
	of       slotWord
	died, at int64 // when this process found the death, and when to check the byte lock next, CLOCK_MONOTONIC ns
}

// toFree stores in frees the slots of dead participants whose data has been handed over. This process
// only has to free such a slot when the kernel has ended the process. toFree returns the number of
// these slots. The result named ok is false if frees is too small, or if this process has more to do
// for some dead participant than to free its slot.
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
	// process of a dead participant has ended (is gone). Within these limits, the time between two
	// checks is the time since the death, divided by askPart. So if the kernel needs longer to end a
	// large process, the checks become less frequent in proportion.
	askFirst, askMost = 5e4, 50e6 // ns
	askPart           = 8
	// waiterPart and waiterMost are used instead of askPart and askMost by a goroutine that waits for
	// the participant.
	waiterPart, waiterMost = 4, 5e6 // the latter in ns
	// freePart is used instead of askPart when the data of the process has been handed over.
	freePart = 2
	// lookFirst and lookPart give the least time between two checks of the threads of a dead process,
	// as askFirst and askPart do for the process. This time is shorter than the pauses of a waiting
	// goroutine. So if only one goroutine waits, each of its calls of Gone includes a check.
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
