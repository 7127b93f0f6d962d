package arenakernel

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("arena.reap.repaired")
	_ = crashpoint.Register("arena.reap.woken")
	_ = crashpoint.Register("arena.reap.handed_over")
	_ = crashpoint.Register("arena.finish.taken")
	_ = crashpoint.Register("arena.finish.reclaimed")
	_ = crashpoint.Register("arena.finish.recorded")
	_ = crashpoint.Register("arena.finish.freed")
)

// reap does everything that a death requires. It marks the slot as dead and repairs what the dead
// participant held. It sends the wakes that the dead participant may not have sent, and reclaims
// the memory and the slot of this participant. Several processes may do each step at the same time.
// If one of them dies during a step, another process repeats the step.
func (a *Arena) reap(i int, w slotWord) {
	if w.present() && !a.mark(i, w) {
		// If another participant has marked the slot, that participant may be stopped or dead by now. So this
		// process goes on.
		if s := a.slotState(i); s == w {
			a.leaveFor(i) // the slot cannot be marked yet, so this process looks again later
			return
		} else if s != w.with(phaseDead) {
			return
		}
	}
	a.reapMarked(i, w.with(phaseDead))
}

// reapProgress records how far this process has come with the reap of a participant. Several
// processes may reap the same participant. Each of them does all steps, and does each step once.
type reapProgress struct {
	of        slotWord
	window    uint64 // the slot's window: in another window, another participant can have the same state word
	words     bool   // the repairs that could be done as soon as the participant was dead are done, and the wakes are sent
	data      bool   // the repairs that had to wait until no system call of the participant could write any more are done
	written   int64  // when the death record was written, CLOCK_MONOTONIC ns; 0 before that
	reclaimed bool   // the memory of the dead participant is reclaimed
	unknown   bool   // the dead participant may hold objects whose kind this process cannot repair
	undoing   bool   // an undo log has a transaction of the dead participant
}

// leaveToOthersFor is how long a process that does not know all kinds of objects lets other processes
// end a reap. During this time, a process that knows the kinds can repair the objects.
const leaveToOthersFor = 200e6 // ns

// leaveToOthers reports whether this process should wait for other participants, because it cannot
// complete the reap itself.
func (a *Arena) leaveToOthers(b *reapProgress, now int64) bool {
	if !b.unknown || now-b.written >= leaveToOthersFor {
		return false
	}
	for i := 1; i <= a.geo.slots; i++ {
		if w := a.slotState(i); i != a.mySlot && w.phase() == phaseLive && !a.seenDead(i, w) {
			return true
		}
	}
	return false
}

// reclaimAfter is how long a process waits before it reclaims the memory of a dead participant.
// Until then, the waiters that the death has woken can use the CPU.
const reclaimAfter = 1e6 // ns

func (a *Arena) reapMarked(i int, w slotWord) {
	a.reapMu.Lock()
	defer a.reapMu.Unlock()
	_, window := a.windowOf(i)
	if a.closing.Load() || a.slotState(i) != w {
		return // finished by another participant
	}
	a.endings.begin(&a.core, i, w, window)
	b := a.reaps[i]
	if b == nil || b.of != w || b.window != window {
		b = &reapProgress{of: w, window: window}
		a.reaps[i] = b
	}
	dead := participantIn(i, w)
	// If the dead participant has touched nothing in the heap, none of its system calls can write
	// there. Then the reap need not wait until the participant is gone.
	gone := a.leftNothing(dead) || a.Gone(dead)
	had := b.data
	if !b.words {
		// Several threads may sleep on each alive word, and the kernel has woken only one of them.
		a.wakeAlive(i)
		concerned := a.repairAll(dead, a.owesAnybody(dead))
		crashpoint.Hit("arena.reap.repaired")
		a.wakeAll(dead, concerned)
		crashpoint.Hit("arena.reap.woken")
		b.words, b.data, b.unknown, b.undoing = true, gone, concerned.unknown, concerned.undoing
	}
	if !b.data && gone {
		concerned := a.repairAll(dead, a.owesAnybody(dead))
		a.wakeAll(dead, concerned)
		b.data, b.unknown, b.undoing = true, concerned.unknown, concerned.undoing
	}
	if b.data && !had {
		crashpoint.Hit("arena.reap.handed_over")
	}
	a.finish(i, b)
}

// wakeAlive wakes all sleepers on the alive words of slot i.
func (a *Arena) wakeAlive(i int) {
	for k := range aliveWords {
		shmsync.Wake(wordPtr(a.u32(a.aliveWord(i, k))), allSleepers)
	}
}

// concern is the set of participants that have to check their objects after a death or a leave.
// Normally these are the participants that share an open object with the dead participant, because only
// they can wait for a wake from it. If this process could not repair an object, all participants that have
// the object open are concerned. If the dead participant died while it told other participants that
// their waits were over, or while it reaped, any participant can wait for its wake.
type concern struct {
	slots    slotSet
	anything bool // the dead participant had at least one object open, or this process could not repair one
	nobody   bool // the dead participant cannot have left anything in an object
	all      bool // every participant is concerned
	unknown  bool // an object exists whose kind this process cannot repair
	undoing  bool // an undo log has a transaction of the dead participant
}

// owesAnybody reports whether any participant may wait for a wake from the given dead participant,
// even if the two have no object open in common. That is so if the dead participant died while it
// ended waits of other participants, or while it reaped. The dead participant is not this process.
func (a *Arena) owesAnybody(dead ParticipantID) bool {
	s := a.slot(dead.Slot())
	return a.u32(s+slotTelling).Load() != 0 || a.u64(s+slotWalking).Load() != 0
}

// leftNothing reports whether the given dead participant cannot have left anything in an object or
// wait node. That is so if it had no object open and had touched nothing in the heap. The dead
// participant is not this process.
func (a *Arena) leftNothing(dead ParticipantID) bool {
	return !a.owesAnybody(dead) && a.touchedNothing(dead.Slot())
}

// repairAll takes back what a dead or leaving participant holds in objects, and finds out which
// other participants have to check their objects. If the parameter named all is true, repairAll
// examines all objects. Otherwise it examines only objects in chunks of the heap that the
// participant has touched, because it can hold nothing in any other object.
func (a *Arena) repairAll(dead ParticipantID, all bool) *concern {
	c := &concern{all: all, nobody: !all && a.touchedNothing(dead.Slot())}
	a.visitFor(dead, c, func(o Object) {
		ops, ok := opsOf(o)
		if !ok {
			c.unknown = true
		}
		// A participant that leaves, and does not know a kind, holds nothing in objects of this kind.
		repaired := ok || dead == a.Self()
		if ok && ops.Repair != nil {
			repaired = ops.Repair(a, o, dead)
		}
		a.addOpeners(c, o, dead, repaired)
		if a.hasTransactionOf(o, dead) {
			c.undoing = true
		}
	})
	return c
}

// undoing reports whether an undo log has a transaction of the given dead participant, which has to
// be rolled back. The method examines the objects in the chunks that the participants of the slot
// may have touched. The result may be wrongly true, because undoing does not guard the objects, and
// an object that is being deleted may contain any bytes.
func (a *Arena) undoing(dead ParticipantID) (is bool) {
	a.eachTouched(dead.Slot(), func(chunk uint64) {
		a.eachBlockOf(chunk, func(off Offset, _ uint64, w blockWord) bool {
			if w.kind() == blockObject {
				if h, err := a.headerAt(off); err == nil {
					is = is || a.hasTransactionOf(h.Object, dead)
				}
			}
			return !is
		})
	})
	return is
}

// visitFor calls f for the objects in which the given dead participant may have left something.
func (a *Arena) visitFor(dead ParticipantID, c *concern, f func(Object)) {
	if c.all {
		a.visit(f)
		return
	}
	a.visitTouched(dead.Slot(), f)
}

// addOpeners adds to c the participants that have the object o open, if the dead participant had o
// open, too, or if repaired is false. In the second case the dead participant may have closed its
// handle and kept a hold, which this process cannot recover.
func (a *Arena) addOpeners(c *concern, o Object, dead ParticipantID, repaired bool) {
	h, err := a.headerAt(o.Offset)
	if err != nil {
		return
	}
	if word, mask := a.openBit(&h, dead.Slot()); repaired && word.Load()&mask == 0 {
		return
	}
	c.anything = true
	for i := 0; i <= a.geo.slots; i += 32 {
		word, _ := a.openBit(&h, i)
		c.slots[i/32] |= word.Load()
	}
}

// wakeAll wakes, once, every waiter whose wake may have been lost by the death. These are threads
// whose sleep a slot records, and waiters that have announced themselves in an object and are about
// to sleep. wakeAll also wakes the pollers of processes with parked goroutines.
func (a *Arena) wakeAll(dead ParticipantID, c *concern) {
	if c.anything || c.all {
		owed := a.owed(dead)
		a.visitFor(dead, c, func(o Object) {
			if ops, ok := opsOf(o); ok && ops.Wake != nil {
				ops.Wake(a, o, owed[o.Offset])
			}
		})
		a.wakeResolved()
	}
	a.countDeath(c)
}

// countDeath makes the participants in c check whether their waits may end after the death. A
// participant with waiting goroutines then checks all of its objects and waits, which is expensive.
// So a dead participant is not counted if it cannot have left anything in an object or a wait node.
func (a *Arena) countDeath(c *concern) {
	if c.nobody {
		return
	}
	a.u32(hdrDeaths).Add(1)
	if !c.anything && !c.all {
		return
	}
	for i := 1; i <= a.geo.slots; i++ {
		if (c.all || c.slots.has(i)) && a.slotState(i).present() {
			a.ring(a.slot(i) + slotDoorbell)
		}
	}
}

// finish does the last steps of the cleanup after a death. It first writes the death record. Later,
// when the dead participant is gone and reclaimAfter has passed, it reclaims the memory and frees
// the slot.
//
// Only the participant that the slot names as the reaper may do these steps. Another participant
// may replace a reaper that is not current. While finish has to wait until the dead participant is
// gone, the slot names no reaper. Otherwise, if this process was stopped during this wait, no other
// process could finish the reap.
func (a *Arena) finish(i int, b *reapProgress) {
	word := a.u32(a.slot(i) + slotReaper)
	u := ParticipantID(word.Load())
	if u != a.self && !a.Dead(u) {
		// If that reaper dies before it has finished, this process continues, because the watchers
		// of the slot may be stopped.
		if b.data {
			a.endings.noteHanded(&a.core, i, b.of, b.window, shmsync.Monotonic()+reclaimAfter)
			a.leaveToFree(i)
		} else {
			a.leaveFor(i)
		}
		return
	}
	if !takeFrom(&a.core, u, word, uint32(u), uint32(a.self), false) {
		a.leaveFor(i)
		return
	}
	crashpoint.Hit("arena.finish.taken")
	// From here on this process is the reaper of the slot, so the slot stays dead until this
	// process frees it.
	if _, window := a.windowOf(i); a.slotState(i) != b.of || window != b.window {
		word.CompareAndSwap(uint32(a.self), 0)
		return
	}
	dead := participantIn(i, b.of)
	now := shmsync.Monotonic()
	if b.written == 0 {
		switch {
		case a.hasDeathRecord(dead):
			// Another participant has written the record. The waiters that the death woke have already had the
			// CPU since then. So do not wait for reclaimAfter again: otherwise a series of short-lived reapers
			// would never finish the reap.
			b.written = now - reclaimAfter
		case a.recordDeaths(i, b.of, dead.Generation()):
			b.written = now
		default:
			// A joiner has taken the slot over since the check above, and waits for this process.
			// If the joiner gives the slot back instead, this process has to write the record after
			// all.
			a.leaveFor(i)
			word.CompareAndSwap(uint32(a.self), 0)
			return
		}
		crashpoint.Hit("arena.finish.recorded")
		a.ringTold()
	}
	if b.data && b.undoing { // another process does the rollback, so check again whether it has finished
		b.undoing = a.undoing(dead)
	}
	if b.data {
		a.endings.noteHanded(&a.core, i, b.of, b.window, b.written+reclaimAfter)
	}
	// A participant with KernelIONone counts as gone while the kernel still has to mark its alive
	// words. If the slot were freed now, a late mark would hit the next participant of the slot.
	if !b.data || b.undoing || a.leaveToOthers(b, now) {
		a.leaveFor(i)
		word.CompareAndSwap(uint32(a.self), 0)
		return
	}
	if now-b.written < reclaimAfter || !a.ended(i) {
		a.leaveToFree(i)
		// If this process is stopped now, other processes can go on with the reap.
		word.CompareAndSwap(uint32(a.self), 0)
		return
	}
	if !b.reclaimed {
		a.reclaimMemory(dead)
		b.reclaimed = true
	}
	crashpoint.Hit("arena.finish.reclaimed")
	a.freeSlot(i, b.of, b.unknown)
	crashpoint.Hit("arena.finish.freed")
	word.CompareAndSwap(uint32(a.self), 0)
	a.ringWatchersOf(i)
}

// reclaimMemory reclaims the memory that the given dead participant had not handed to other
// participants. It does the same for earlier participants of the slot whose reapers died before
// they had done so.
//
// Preconditions: this process is the reaper of the slot, or owns the slot.
func (a *Arena) reclaimMemory(dead ParticipantID) {
	reclaimed := a.u32(a.slot(dead.Slot()) + slotReclaimed)
	if reclaimed.Load() == dead.Generation() {
		a.clearOpenBits(dead) // a leaving participant may have opened objects after it stored slotReclaimed
		return
	}
	const most = 256 // bounds how many generations are reclaimed, because a peer may have overwritten the word
	first := reclaimed.Load() + 1
	// Never reclaim the generation 0: no participant has it, and the block words of slot records name it.
	if last := dead.Generation(); first == 0 || first > last || last-first >= most {
		first = last - min(last, most) + 1
	}
	for g := first; g <= dead.Generation(); g++ {
		n := makeParticipantID(dead.Slot(), g)
		if !a.touchedNothing(dead.Slot()) { // if the set of touched chunks is empty, the participant has claimed no node
			a.freeNodesOf(n)
		}
		a.reclaimBlocks(n)
		a.clearOpenBits(n)
	}
	a.handles.Lock()
	left := dead == a.self && len(a.handles.deferred) > 0
	a.handles.Unlock()
	if !left { // after a death, the next participant of the slot frees the deferred blocks
		reclaimed.Store(dead.Generation())
	}
}

// freeSlot makes slot i available again. The slot is dead or leaving, in state w. From then on,
// only the death records name its last participant. If keep is true, the set of chunks that the
// participant may have changed stays for the next participant of the slot. The reaper of that next
// participant then repairs what this process could not repair.
func (a *Arena) freeSlot(i int, w slotWord, keep bool) {
	a.clearSlot(i, w, keep)
	a.casSlot(i, w, w.with(phaseFree))
}

// clearSlot does what freeSlot does, but does not change the state of the slot.
func (a *Arena) clearSlot(i int, w slotWord, keep bool) {
	s := a.slot(i)
	if !keep && a.u32(s+slotReclaimed).Load() == w.generation() {
		a.forgetTouched(i)
	}
	described := a.u32(s + slotDescribed)
	if g := described.Load(); g <= w.generation() { // a late reaper must not clear the next description
		described.CompareAndSwap(g, 0)
		described.Load() // as in clearBeforeLabel
	}
	a.u32(s + slotPID).Store(0)
	a.putLabel(s+slotLabel, "")
	if died := a.u64(s + slotDied).Load(); died > maxGeneration || died <= uint64(w.generation()) { // the word is not that of the next participant
		a.u64(s+slotDied).CompareAndSwap(died, 0)
	}
}

// surveyAhead asks the kernel whether the participants that this process has to watch hold their
// byte locks. It reaps each participant that does not hold its byte lock. surveyAhead ends when
// this process watches as many living participants as it should, or when no more participants are
// left.
//
// Each living participant asks about these locks when it joins, and asks again about each
// participant that it begins to watch. So for every participant, some process has asked whether it
// is alive. This matters in a copied file, and in a file that has survived a crash of the computer:
// there the kernel has marked no death.
func (a *Arena) surveyAhead() {
	for again := true; again; {
		again = false
		for _, i := range a.watchTargets() {
			if w := a.slotState(i); a.surveyDead(i, w) {
				a.reap(i, w)
				again = again || a.slotState(i) != w
			}
		}
	}
}
