package arenakernel

import (
	"runtime"
	"sync/atomic"

	"github.com/shmsync/shmsync"
)

// A watcherThread is a goroutine, locked to its thread, that will become the death watcher of an
// arena. The start of a thread takes as long as all other steps of a join. So the watcherThread starts
// before the process has a slot in the arena, and does the preparations that need no slot.
type watcherThread struct {
	// list is the robust list that the thread has registered, which contains no words yet. If the registration
	// failed, list is nil. The thread sets list and alive before it calls ready.arrive.
	list  *shmsync.RobustList
	alive uint32 // what an alive word contains while the thread runs
	ready meeting

	hired meeting
	a     *Arena // the arena that the thread will watch, or nil; written before hired.arrive
}

func startWatcherThread() *watcherThread {
	t := &watcherThread{ready: newMeeting(), hired: newMeeting()}
	go t.run()
	return t
}

// startFirstWatcherThread starts a watcherThread if this process is in no arena yet. Otherwise it
// returns nil: the process may be opening an arena that it is in already, which needs no further
// thread.
func startFirstWatcherThread() *watcherThread {
	attached.Lock()
	defer attached.Unlock()
	if len(attached.arenas) > 0 {
		return nil
	}
	return startWatcherThread()
}

// hire makes t the death watcher of the arena a.
func (t *watcherThread) hire(a *Arena) {
	t.a = a
	t.hired.arrive()
}

// dismiss ends the thread t, unless t has become the death watcher of an arena. The receiver may be
// nil.
func (t *watcherThread) dismiss() {
	if t != nil && !t.hired.done.Load() {
		t.hired.arrive()
	}
}

func (t *watcherThread) run() {
	// This function is deferred first, so it runs after the other deferred functions. Close waits
	// for this function. So when Close returns, this thread has its usual time slice again, and the
	// robust list can be reused.
	defer func() {
		if t.a != nil {
			t.a.watcherEnded.arrive()
		}
	}()
	// The goroutine stays locked to the thread while the list is registered. Otherwise the thread could
	// end, and peers would take that for the death of this process. The lock also keeps other goroutines
	// off the thread. C code that they call could lock a robust pthread mutex there. At a death, the
	// kernel would not find that mutex, because the robust list of the thread is that of this library.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The CPU on which this thread is woken after a death is often still busy with ending the dead
	// process.
	defer shmsync.PromptThread()()
	defer ExactSleeps()()
	list := takeRobustList()
	defer keepRobustList(list)
	if list != nil && list.Register() == nil {
		defer list.Unregister()
		// Always set FUTEX_WAITERS. Without this bit the kernel marks the word at a death but wakes
		// no thread.
		t.list, t.alive = list, uint32(shmsync.ThreadID())&shmsync.RobustTIDMask|shmsync.RobustWaiters
	}
	t.ready.arrive()
	shmsync.FeatureWaitV.Have()
	t.hired.await(true)
	if t.a != nil {
		t.a.deathWatcher(t)
	}
}

// deathWatcher runs on the thread whose robust list contains this participant's alive words. It
// stays locked to this thread, and watches other participants until the process leaves the arena.
func (a *Arena) deathWatcher(t *watcherThread) {
	if a.notLive = a.becomeLive(t); a.notLive == nil {
		a.live.arrive()
		a.surveyAhead()
		a.watch()
		a.repaired.await(true)
		// From here on the kernel does not mark the alive words of this participant. Peers have to
		// check its byte lock instead, so wake the death watcher of one of them.
		a.ringBefore(a.mySlot, 1)
	}
	if a.robust != nil {
		if a.notLive != nil {
			a.markAlive(a.mySlot, a.ownWord(phaseDead, a.self.Generation()))
		}
		a.robust.Unregister()
	}
	if a.notLive != nil {
		a.live.arrive()
	}
}

// spareRobustList is a robust list that is registered for no thread. The next arena that this
// process joins reuses it, because unmapping its page would interrupt the other threads of the
// process.
var spareRobustList atomic.Pointer[shmsync.RobustList]

// takeRobustList returns a robust list that contains no words, or nil if the system does not
// support robust lists.
func takeRobustList() *shmsync.RobustList {
	if !shmsync.FeatureRobustList.Have() {
		return nil
	}
	if list := spareRobustList.Swap(nil); list != nil {
		return list
	}
	list, err := shmsync.NewRobustList()
	if err != nil {
		return nil
	}
	return list
}

func keepRobustList(list *shmsync.RobustList) {
	if list != nil && !spareRobustList.CompareAndSwap(nil, list) {
		list.Free()
	}
}

const (
	watchTargets = 3
	// pollFirst and pollMost are the shortest and the longest sleep of a death watcher that cannot
	// rely on being woken: a death may leave no mark, or a reap may wait for the kernel.
	pollFirst, pollMost = 3e5, 50e6 // ns
	// stagger is how much later each watcher of a participant acts than the watcher before it. A
	// death wakes all watchers of the dead participant, although one of them is enough to clean up.
	stagger = 2e6 // ns
	// joinTimeout is for a joiner without a byte lock. After the joiner has taken a slot, it has
	// this much time to put the alive words of the slot on its robust list. Until then, other
	// participants cannot see whether such a joiner is alive. If it needs more time, its Open
	// fails; see linkAlive.
	joinTimeout = 10e9 // ns
	// afterYou is how long the death watcher of a process waits while a waiter of the same process
	// sleeps in the kernel. Such a waiter recovers by itself a lock that the dead process held, and
	// needs the CPU for this.
	afterYou = 3e5 // ns
)

// watch sleeps on the alive words of the next few participants in the ring of slots, and cleans up
// after those that die. A death wakes one sleeper on each alive word of the dead participant.
// Watchers at different distances sleep on different words, so that a death wakes several watchers.
// The first of them wakes the others.
func (a *Arena) watch() {
	doorbell := a.u32(a.slot(a.mySlot) + slotWatchDoorbell)
	wait := int64(pollFirst)
	seen, asked := notices{}, map[int]slotWord{}
	later, quiet := a.afterJoining(), a.newQuietWatch()
	for {
		// The doorbell must be read before the state of the arena. A peer changes that state first,
		// and then rings the doorbell.
		rung := doorbell.Load()
		a.watched.Add(1)
		if a.closing.Load() {
			return
		}
		a.checkSelf()
		for len(later) > 0 && shmsync.Monotonic() >= later[0].at {
			work := later[0]
			later = later[1:]
			if again := work.do(); again != 0 {
				later = append(later, postponed{shmsync.Monotonic() + int64(again), work.do})
			}
		}
		quiet.mayTell(a)
		untold := a.deaths.deliver(a)
		targets := a.watchTargets()
		sleep, poll, turn := a.watchEntries(wordPtr(doorbell), rung, targets, seen, asked)
		if sleep == nil {
			continue // a participant was reaped
		}
		var deadline int64
		if turn != 0 {
			deadline = shmsync.Monotonic() + turn
		}
		unfinished := a.unfinished.any()
		idle := poll == 0 && !untold && a.unfinished.onlyToFree() && len(later) == 0 && !a.deaths.incomplete()
		if poll != 0 || untold || unfinished {
			if poll == 0 {
				poll = pollMost
			}
			next := min(wait, poll)
			if unfinished {
				next = min(poll, a.nextCheck())
			}
			if at := shmsync.Monotonic() + next; deadline == 0 || at < deadline {
				deadline = at
			}
			wait = min(2*wait, pollMost)
		} else {
			wait = pollFirst
		}
		if len(later) > 0 && (deadline == 0 || later[0].at < deadline) {
			deadline = later[0].at
		}
		if !idle || !quiet.watch(a, seen) {
			a.slept.Add(1)
			a.sleep(sleep, deadline, doorbell, rung)
		}
		// Every slot is examined again, whatever the wait returned, because waitv reports only one
		// wake even if there were several.
		if a.unfinished.any() {
			a.continueReaps()
		}
	}
}

// sleep sleeps until one of the entries changes. The first entry is the doorbell.
func (a *Arena) sleep(entries []shmsync.WaitVEntry, deadline int64, doorbell *atomic.Uint32, rung uint32) {
	if len(entries) > 1 && a.haveWaitV() {
		_, _, err := shmsync.WaitV(entries, deadline)
		if err == nil {
			return
		}
		deadline = shmsync.Monotonic() + pollFirst // ENOMEM: the kernel has no memory for so many entries now
	}
	shmsync.Wait(wordPtr(doorbell), rung, deadline)
}

// watchTargets returns the slots that this process watches. These are the slots of the next
// participants in the ring of slots, and the slots of dead participants between those.
func (a *Arena) watchTargets() []int {
	targets := make([]int, 0, watchTargets)
	present := 0
	for d := 1; d < a.geo.slots && present < watchTargets; d++ {
		i := (a.mySlot-1+d)%a.geo.slots + 1
		if w := a.slotState(i); w.taken() {
			targets = append(targets, i)
			if w.present() {
				present++
			}
		}
	}
	return targets
}

// notices records, for each slot, when this watcher first saw a death there.
type notices map[int]notice

type notice struct {
	of     slotWord
	when   int64  // CLOCK_MONOTONIC ns
	window uint64 // the bytes of the slot's window
	joined uint64 // slotJoined, if the notice is about a joiner without a byte lock
	// looked is when this process last checked the threads of the dead process, or 0 if it never
	// did.
	looked   int64
	detached bool  // the threads of the dead process have dropped its memory
	begun    bool  // this process cleans up after the death, or its death watcher will
	free     int64 // when the slot may be freed, CLOCK_MONOTONIC ns; 0 until the data has been handed over
}

// left returns how many nanoseconds of the delay are left. The delay began when this process first
// saw the death in slot i, in state w of a window. When the delay is over, left returns 0.
func (n notices) left(i int, w slotWord, window uint64, delay int64) int64 {
	if delay == 0 {
		return 0
	}
	now := shmsync.Monotonic()
	if n[i].of.generation() != w.generation() || n[i].window != window || n[i].when == 0 {
		n[i] = notice{of: w, when: now, window: window}
	}
	return max(0, n[i].when+delay-now)
}

// leftOfJoiner does what the method left does, for the joiner in slot i. The joiner has no byte
// lock, and began to join at the time that the parameter named joined gives. A joiner may give back
// the slot of a dead participant unchanged, and the next joiner then gets the same generation. The
// value of joined differs between the two joiners, so the delay begins again for the second joiner.
func (n notices) leftOfJoiner(i int, w slotWord, window, joined uint64) int64 {
	if n[i].joined != joined {
		n[i] = notice{of: w, when: shmsync.Monotonic(), window: window, joined: joined}
	}
	return n.left(i, w, window, joinTimeout)
}

// watchEntries reaps the dead participants among the targets. If none is dead, it returns the
// entries to sleep on.
//
// The result named poll is 0 if the death of every target wakes this watcher. Otherwise this
// watcher has to check again after at most poll nanoseconds. The result named turn is not 0 if
// another watcher has to act first. It is the time in nanoseconds after which this watcher acts, if
// there is still something to do.
//
// The parameter asked contains the slots whose byte locks have been checked; see surveyAhead.
func (a *Arena) watchEntries(doorbell *uint32, rung uint32, targets []int, seen notices, asked map[int]slotWord) (sleep []shmsync.WaitVEntry, poll, turn int64) {
	within := func(ns int64) {
		if poll == 0 || ns < poll {
			poll = ns
		}
	}
	turnIn := func(ns int64) {
		if turn == 0 || ns < turn {
			turn = ns
		}
	}
	sleep = append(make([]shmsync.WaitVEntry, 0, 1+watchTargets), shmsync.NewWaitVEntry(doorbell, rung))
	distance, base := 0, int64(0)
	if a.announceMap.Load() != 0 {
		base = afterYou
	}
	for _, i := range targets {
		w := a.slotState(i)
		_, window := a.windowOf(i)
		if w.phase() == phaseDead {
			if a.leftover.has(i) { // continueReaps does the rest
				if !a.unfinished.onlyToFree() {
					within(pollMost)
				}
				continue
			}
			// The participant that marked the slot may have died since, or may leave the rest of the
			// reap to this process. So this watcher reaps, too, after a delay.
			delay := base + int64(distance)*stagger
			if u := ParticipantID(a.u32(a.slot(i) + slotReaper).Load()); u != a.self && a.isCurrent(u) {
				delay = stagger
			}
			if left := seen.left(i, w, window, delay); left > 0 {
				turnIn(left)
			} else {
				a.reapMarked(i, w)
				within(pollMost)
			}
			continue
		}
		// The alive word is loaded before it is examined. If the kernel marks the word later, the
		// word no longer has the loaded value, so this watcher does not fall asleep.
		word := a.u32(a.aliveWord(i, min(distance, watchTargets-1)))
		alive := word.Load()
		dead := a.seenDead(i, w)
		if !dead && asked[i] != w {
			if dead = a.surveyDead(i, w); !dead {
				asked[i] = w
			}
		}
		if dead {
			if left := seen.left(i, w, window, base+int64(distance)*stagger); left > 0 {
				turnIn(left)
			} else {
				a.reap(i, w)
				if a.slotState(i) != w {
					return nil, 0, 0
				}
				within(pollMost) // the participant cannot be fenced yet
			}
			distance++
			continue
		}
		distance++
		robust := a.slotCaps(i)&capRobust != 0 && a.haveWaitV()
		switch w.phase() {
		case phaseJoining: // a joiner holds nothing yet
			turnIn(pollMost)
			if joined := a.u64(a.slot(i) + slotJoined).Load(); !w.hasByte() && !a.linked(i, w) && seen.leftOfJoiner(i, w, window, joined) == 0 {
				a.reap(i, w)
				if a.slotState(i) != w {
					return nil, 0, 0
				}
			}
		case phaseLeaving: // the kernel can mark this participant until shortly before its slot is free
			turnIn(pollMost)
		default:
			if !robust {
				within(pollMost)
			}
		}
		if robust && w.phase() != phaseJoining {
			sleep = append(sleep, shmsync.NewWaitVEntry(wordPtr(word), alive))
		}
	}
	return sleep, poll, turn
}

// checkSelf ends the process if its slot belongs to another participant. Peers have then taken the
// locks of this process away, so it must not continue as if it held them.
func (a *Arena) checkSelf() {
	if w := a.slotState(a.mySlot); !w.present() || participantIn(a.mySlot, w) != a.self {
		panic("shmsync: " + a.label + ": this process was declared dead by a peer (slot " +
			a.self.String() + " is " + w.String() + ")" + losesItsPin(a.label))
	}
}

// ringWatchersOf wakes the death watchers of the participants that come before slot i in the ring
// of slots. They watch slot i, have watched it, or are about to watch it. When their doorbell is
// rung, these watchers read the slots again.
//
//	joiner, or the process that     watcher
//	frees a slot
//	changes the slot's state        reads its doorbell
//	reads the states of the slots   reads the states of the slots
//	before this slot                after its own slot
//	rings those that are present    sleeps if its doorbell is unchanged
//
// A watcher that is not rung was not present when the states were read. So it reads the states
// later, after it has become present.
func (a *Arena) ringWatchersOf(i int) { a.ringBefore(i, watchTargets) }

// ringBefore wakes the death watchers of the n participants that come before slot i in the ring of
// slots.
func (a *Arena) ringBefore(i, n int) {
	rung := 0
	for d := 1; d < a.geo.slots && rung < n; d++ {
		j := (i-1-d+a.geo.slots)%a.geo.slots + 1
		if a.slotState(j).present() {
			a.ring(a.slot(j) + slotWatchDoorbell)
			rung++
		}
	}
}

// ringTold wakes the death watchers of the participants that called OnDeath, so that they read the
// death records.
func (a *Arena) ringTold() {
	for i := 1; i <= a.geo.slots; i++ {
		// sync(arena.told): acquire
		if a.slotCaps(i)&capTold != 0 && a.slotState(i).present() {
			a.ring(a.slot(i) + slotWatchDoorbell)
		}
	}
}

func (a *Arena) ring(doorbell Offset) {
	w := a.u32(doorbell)
	w.Add(1)
	shmsync.Wake(wordPtr(w), allSleepers)
}

const allSleepers = 1 << 30
