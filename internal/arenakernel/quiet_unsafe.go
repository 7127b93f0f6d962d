//go:build linux && (amd64 || arm64) && gc && !race && !msan && !asan && !noasm

package arenakernel

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
)

// A quiet watch is a sleep of a death watcher that ends only when there is something to do. A join, a
// leave or a death wakes the thread. The thread then reads the slots, finds out which words to sleep on
// now, and sleeps again. The quiet watch returns when the watcher may have to act.
//
// The Go scheduler takes the whole quiet watch for one long system call, during which the thread has no P. When
// a thread returns from a long system call, two other threads of the Go runtime wake up: the thread that
// supervises system calls, and a thread that looks for work. These two wakes make the return three to four
// times as expensive. A quiet watch usually avoids these wakes: a participant has three watchers, and if the
// first one reaps the dead participant, the other two stay in their quiet watches.
//
// Without a P, code must not grow its stack, allocate, or call anything that may do so. So every
// function below is nosplit and calls only nosplit functions. A quiet watch decides nothing: it
// recognizes the states in which watchEntries would do nothing, and returns in every other state.
// Builds with the race detector, and builds for other processors, use quiet_none.go.

// quietBuild says whether this build has quiet watches, in which the death watcher stays asleep
// over events that need no action.
const quietBuild = true

//go:linkname entersyscallblock runtime.entersyscallblock
func entersyscallblock()

//go:linkname exitsyscall runtime.exitsyscall
func exitsyscall()

// quietWatch is the state of a quiet watch, a sleep of the death watcher that ends only when there
// is something to do. The garbage collector does not move a quietWatch.
type quietWatch struct {
	slot1       unsafe.Pointer // the address of slot 1
	lockByte1   int64          // the lock byte of slot 1
	lock        uintptr        // the descriptor of the byte lock
	slots, mine int
	own         slotWord // the state word of this participant's slot
	closing     *atomic.Bool
	unfinished  *atomic.Uint32
	announceMap *atomic.Uint32
	deaths      *uint64 // counts the death records
	self        ParticipantID

	told uint64 // the number of death records when the watcher last reported deaths

	asked   [2 * watchTargets]ask
	askNext uint
	round   uint64 // incremented after each sleep
	turns   [quietTurns]turn
	turnsN  uint
	left    uint32 // the value of *unfinished just before this process filled frees
	frees   [quietTurns]free
	freesN  uint
	entries [1 + watchTargets]shmsync.WaitVEntry
	n       uint
	now     int64 // CLOCK_MONOTONIC ns
	until   int64 // when the next sleep ends at the latest, CLOCK_MONOTONIC ns; 0 for no limit

	asking uint // which byte lock the watcher has asked about last: 0 for a watched slot, n for the slot in frees[n-1]

	time  unix.Timespec // the time from the clock, and later the time until which to sleep
	byte  unix.Flock_t  // the byte lock to ask about
	slept bool
}

// quietTurns limits how many deaths a quiet watch can leave to other watchers at the same time.
const quietTurns = 4

// ask records that the byte lock of a participant was held when this watcher asked the kernel about
// it. The watcher asks only once about a live participant. About any other participant it asks once
// after each sleep.
type ask struct {
	slot  int
	of    slotWord
	round uint64
}

// turn records a death that another watcher has to handle first, and when this watcher saw it for the
// first time.
type turn struct {
	slot   int
	of     slotWord
	window uint64
	when   int64 // CLOCK_MONOTONIC ns
}

// newQuietWatch returns a quietWatch, or nil if the watcher has to wake for every event.
func (a *Arena) newQuietWatch() *quietWatch {
	if a.caps&capRobust == 0 || a.caps&capWaitV == 0 || a.lock == nil {
		return nil
	}
	return &quietWatch{
		slot1:       a.at(a.slot(1), uint64(a.geo.slots)*slotStride, 8),
		lockByte1:   a.lockByte(1),
		lock:        a.lock.Fd(),
		slots:       a.geo.slots,
		mine:        a.mySlot,
		own:         a.ownWord(phaseLive, a.self.Generation()),
		closing:     &a.closing,
		unfinished:  &a.unfinished.Uint32,
		announceMap: &a.announceMap,
		deaths:      (*uint64)(a.at(hdrDeathRecordsTotal, 8, 8)),
		self:        a.self,
	}
}

// mayTell records how many death records there are. The watcher calls it just before it reports the
// deaths in these records.
func (q *quietWatch) mayTell(a *Arena) {
	if q != nil {
		q.told = a.u64(hdrDeathRecordsTotal).Load()
	}
}

// watch sleeps until the watcher may have to act. If it has left deaths to other watchers, it adds
// them to the map seen. It returns false if it did not sleep at all.
func (q *quietWatch) watch(a *Arena, seen notices) (slept bool) {
	if q == nil {
		return false
	}
	ok := false
	q.left = q.unfinished.Load() // must be read before everything else
	if q.freesN, ok = a.toFree(q.frees[:]); !ok || q.left&leftToReap != 0 {
		return false
	}
	q.turnsN, q.slept = 0, false
	q.sleep()
	for _, t := range q.turns[:q.turnsN] {
		if n := seen[t.slot]; n.of.generation() != t.of.generation() || n.window != t.window || n.when == 0 {
			seen[t.slot] = notice{of: t.of, when: t.when, window: t.window}
		}
	}
	return q.slept
}

// The method sleep runs loop so that it looks like one system call to the Go scheduler. Until the
// method returns, the garbage collector scans the frame of this function as it was at entersyscall.
// So the frame must contain nothing that changes later.
//
//go:nosplit
//go:noinline
func (q *quietWatch) sleep() {
	entersyscallblock()
	q.loop()
	exitsyscall()
}

// loop sleeps until there is something to do. At the latest, it ends when this participant leaves,
// because the watcher has to act then. The system calls are made in this function, where the stack
// has room for them.
//
//go:nosplit
//go:noinline
func (q *quietWatch) loop() {
	for {
		// SAFETY: the kernel uses the memory at the addresses below only during the calls, and q
		// does not move.
		unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&q.time)), 0)
		switch q.look() {
		case quietAct:
			return
		case quietAsk:
			_, _, errno := unix.RawSyscall(unix.SYS_FCNTL, q.lock, unix.F_OFD_GETLK, uintptr(unsafe.Pointer(&q.byte)))
			if errno != 0 || q.byte.Type == unix.F_UNLCK {
				return
			}
			q.held()
		case quietSleep:
			time := unsafe.Pointer(&q.time)
			if q.until == 0 {
				time = nil
			}
			_, _, errno := unix.RawSyscall6(unix.SYS_FUTEX_WAITV, uintptr(unsafe.Pointer(&q.entries[0])), uintptr(q.n), 0,
				uintptr(time), unix.CLOCK_MONOTONIC, 0)
			switch errno {
			case 0, unix.EAGAIN, unix.EINTR, unix.ETIMEDOUT:
				q.slept = true
				q.round++
			default:
				return // ENOMEM: the watcher tries again later
			}
		}
	}
}

// word returns the address of the word at offset off in slot i.
//
//go:nosplit
//go:nocheckptr
func (q *quietWatch) word(i int, off Offset) *uint32 {
	// SAFETY: i is the number of a slot and off is within the slot, as newQuietWatch has checked.
	return (*uint32)(unsafe.Add(q.slot1, uintptr(i-1)*slotStride+uintptr(off)))
}

// The results of the method look.
const (
	quietAct   = iota // the watcher may have something to do
	quietAsk          // ask for a byte lock; if the lock is held, call look again
	quietSleep        // there is nothing to do
)

// The method look finds out whether there is something to do. If there is not, it fills in the
// words on which to sleep.
//
//go:nosplit
//go:nocheckptr
func (q *quietWatch) look() int {
	// The doorbell is read first, because a peer may change anything that is read below, and then
	// ring the doorbell.
	q.add(0, q.word(q.mine, slotWatchDoorbell))
	q.n, q.until, q.now = 1, 0, q.time.Sec*1e9+q.time.Nsec
	if isSet(q.closing) || atomic.LoadUint32((*uint32)(unsafe.Pointer(q.unfinished))) != q.left {
		return quietAct
	}
	if slotWord(atomic.LoadUint32(q.word(q.mine, slotState))) != q.own {
		return quietAct
	}
	if atomic.LoadUint32(q.word(q.mine, slotCaps))&capTold != 0 && atomic.LoadUint64(q.deaths) != q.told {
		return quietAct
	}
	for k := range q.freesN {
		f := &q.frees[k%quietTurns]
		switch {
		case slotWord(atomic.LoadUint32(q.word(f.slot, slotState))) != f.of:
			return quietAct // another process has freed the slot
		case f.at <= q.now:
			q.ask(f.slot, k+1)
			return quietAsk
		}
		q.by(f.at)
	}
	base := int64(0)
	if atomic.LoadUint32((*uint32)(unsafe.Pointer(q.announceMap))) != 0 {
		base = afterYou
	}
	present, i := uint(0), q.mine
	for d := 1; d < q.slots && present < watchTargets; d++ {
		if i++; i > q.slots {
			i = 1
		}
		w := slotWord(atomic.LoadUint32(q.word(i, slotState)))
		p := phase(w & 7)
		if p == phaseFree || p > phaseDead {
			continue
		}
		delay := base + int64(present)*stagger
		if p == phaseDead && q.freeing(i) {
			continue
		}
		if p == phaseDead {
			if q.reaping(i) {
				delay = stagger
			}
			if !q.leave(i, w, delay) {
				return quietAct
			}
			continue
		}
		alive := q.word(i, slotAlive+Offset(present)*aliveStride)
		q.add(q.n, alive)
		caps := atomic.LoadUint32(q.word(i, slotCaps))
		if !w.hasByte() || p != phaseJoining && capsOf(caps, w)&capRobust == 0 {
			return quietAct
		}
		if p != phaseJoining && q.marked(i) {
			if !q.leave(i, w, delay) {
				return quietAct
			}
			present++
			continue
		}
		ask := ask{slot: i, of: w}
		if p != phaseLive {
			q.by(q.now + pollMost)
			ask.round = q.round
		}
		if !q.hasAsked(ask) {
			q.ask(i, 0)
			return quietAsk
		}
		if p != phaseJoining {
			q.n++
		}
		present++
	}
	if q.until != 0 {
		q.time.Sec, q.time.Nsec = q.until/1e9, q.until%1e9
	}
	return quietSleep
}

// The method ask prepares the system call that asks whether the byte lock of slot i is held. It also stores
// asking in q.asking.
//
//go:nosplit
func (q *quietWatch) ask(i int, asking uint) {
	q.asking = asking
	q.byte = unix.Flock_t{Type: unix.F_WRLCK, Whence: unix.SEEK_SET, Start: q.lockByte1 + int64(i-1)*slotStride, Len: 1}
}

// held records that the byte lock about which the watcher has just asked is held. If it is the lock
// of a slot that this process has to free, the watcher asks again later, after the same pauses as
// in nextCheck.
//
//go:nosplit
func (q *quietWatch) held() {
	if q.asking == 0 {
		return
	}
	f := &q.frees[(q.asking-1)%quietTurns]
	f.at = q.now + min(askMost, max(askFirst, (q.now-f.died)/freePart))
}

// hasAsked reports whether the watcher has asked for this byte lock before; see the type ask. If it
// has not, hasAsked adds the question to q.asked. Old questions stay there, because the watcher would
// ask them again when a neighbour joins and leaves.
//
//go:nosplit
func (q *quietWatch) hasAsked(a ask) bool {
	for k := range q.asked {
		if q.asked[k] == a {
			return true
		}
	}
	q.asked[q.askNext%uint(len(q.asked))] = a
	q.askNext++
	return false
}

// freeing reports whether slot i is one of the slots of dead participants that this process has to
// free.
//
//go:nosplit
func (q *quietWatch) freeing(i int) bool {
	for k := range q.freesN {
		if q.frees[k%quietTurns].slot == i {
			return true
		}
	}
	return false
}

// isSet is b.Load as a nosplit function.
//
//go:nosplit
func isSet(b *atomic.Bool) bool {
	// SAFETY: an atomic.Bool is a word of 32 bits.
	return atomic.LoadUint32((*uint32)(unsafe.Pointer(b))) != 0
}

// add stores the given word, with its present value, as entry n of the words on which the next
// sleep waits.
//
//go:nosplit
//go:nocheckptr
func (q *quietWatch) add(n uint, word *uint32) {
	q.entries[n%(1+watchTargets)] = shmsync.NewWaitVEntry(word, atomic.LoadUint32(word))
}

// The method by makes the next sleep end at the given time at the latest.
//
//go:nosplit
//go:nocheckptr
func (q *quietWatch) by(at int64) {
	if q.until == 0 || at < q.until {
		q.until = at
	}
}

// marked reports whether the kernel has marked an alive word of slot i, because the thread of the
// participant's death watcher has ended.
//
//go:nosplit
//go:nocheckptr
func (q *quietWatch) marked(i int) bool {
	for k := range Offset(aliveWords) {
		if atomic.LoadUint32(q.word(i, slotAlive+k*aliveStride))&shmsync.RobustOwnerDied != 0 {
			return true
		}
	}
	return false
}

// reaping reports whether another participant is the reaper of slot i, and is current.
//
//go:nosplit
//go:nocheckptr
func (q *quietWatch) reaping(i int) bool {
	u := ParticipantID(atomic.LoadUint32(q.word(i, slotReaper)))
	j := int(u & MaxSlots)
	if u == q.self || j < 1 || j > q.slots {
		return false
	}
	w := slotWord(atomic.LoadUint32(q.word(j, slotState)))
	p := phase(w & 7)
	return uint32(w>>3)&maxGeneration == uint32(u)>>slotBits&maxGeneration && p >= phaseJoining && p <= phaseLeaving
}

// The method leave tries to leave a death to other watchers. The dead participant is in slot i,
// whose state is w. The method returns true until delay nanoseconds after this watcher first saw
// the death. Then it returns false, because this watcher has to act itself.
//
//go:nosplit
//go:nocheckptr
func (q *quietWatch) leave(i int, w slotWord, delay int64) bool {
	if delay == 0 {
		return false
	}
	window := atomic.LoadUint64((*uint64)(unsafe.Pointer(q.word(i, slotWindow))))
	k := uint(0)
	for k < q.turnsN && q.turns[k%quietTurns].slot != i {
		k++
	}
	if k == quietTurns {
		return false
	}
	t := &q.turns[k%quietTurns]
	if k == q.turnsN || uint32(t.of>>3)&maxGeneration != uint32(w>>3)&maxGeneration || t.window != window {
		t.slot, t.of, t.window, t.when = i, w, window, q.now
		q.turnsN = max(q.turnsN, k+1)
	}
	if t.when+delay <= q.now {
		return false
	}
	q.by(t.when + delay)
	return true
}
