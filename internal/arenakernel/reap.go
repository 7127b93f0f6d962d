package arenakernel

import (
	"sync/atomic"

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

// reap does everything that a death requires: it marks the slot, repairs what the dead participant
// held, makes the wakes that the dead participant may not have made, and reclaims its memory and
// its slot. Several processes may do each step at once. If one of them dies during a step, another
// one repeats the step.
func (a *Arena) reap(i int, w slotWord) {
	if w.present() && !a.mark(i, w) {
		return // another participant has marked the slot, or it cannot be marked yet
	}
	a.reapMarked(i, w.with(phaseDead))
}

// reapProgress is how far this process has come with the reap of a participant. Every process that
// reaps does all steps, each once.
type reapProgress struct {
	of        slotWord
	window    uint64 // bytes of the slot's window: in another window, another participant can have the same state word
	words     bool   // repairs that need only the death are done, and the wakes are sent
	data      bool   // repairs that need the dead participant to be gone are done
	written   int64  // when the death record was written, CLOCK_MONOTONIC ns; 0 before that
	reclaimed bool   // the memory of the dead participant is reclaimed
	unknown   bool   // the dead participant may hold objects whose kind this process cannot repair
	undoing   bool   // an undo log has a transaction of the dead participant
}

// leaveToOthersFor is how long a process that does not know all kinds of objects leaves the end of
// a reap to other processes. During that time, a process that knows the kinds can repair the
// objects.
const leaveToOthersFor = 200e6 // ns

// leaveToOthers reports whether this process leaves a reap that it cannot complete to other
// participants.
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

// reclaimAfter is how long the memory of a dead participant stays unreclaimed, because the waiters
// that its death has woken need the CPU first.
const reclaimAfter = 1e6 // ns

func (a *Arena) reapMarked(i int, w slotWord) {
	a.reapMu.Lock()
	defer a.reapMu.Unlock()
	_, window := a.windowOf(i)
	if a.closing.Load() || a.slotState(i) != w {
		return // finished by another participant
	}
	a.endings.begin(i, w, window)
	b := a.reaps[i]
	if b == nil || b.of != w || b.window != window {
		b = &reapProgress{of: w, window: window}
		a.reaps[i] = b
	}
	dead := participantIn(i, w)
	// A participant that has touched nothing of the heap has no data in it, so the reap need not
	// wait until this participant is gone.
	gone := a.leftNothing(dead) || a.Gone(dead)
	had := b.data
	if !b.words {
		// Other threads sleep on these words, too, but the kernel has woken only one on each.
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

// concern is the set of participants that a death, or a leave, concerns: those that have an object
// open that the dead participant had open too. Only these can wait for a wake of the dead
// participant. But if it died while it told others how their waits ended, or while it reaped, any
// participant can.
type concern struct {
	slots    slotSet
	anything bool // at least one such object exists
	nobody   bool // the dead participant cannot have left anything in an object
	all      bool // every participant is concerned
	unknown  bool // an object exists whose kind this process cannot repair
	undoing  bool // an undo log has a transaction of the dead participant
}

// owesAnybody reports whether any participant may wait for a wake of dead, and whether dead may
// hold any object. That is so if dead, which is not this process, died while it told others how
// their waits ended, or while it reaped.
func (a *Arena) owesAnybody(dead ParticipantID) bool {
	s := a.slot(dead.Slot())
	return a.u32(s+slotTelling).Load() != 0 || a.u64(s+slotWalking).Load() != 0
}

// leftNothing reports whether dead, which is not this process, cannot have left anything in an
// object or wait node: it had no object open, and had touched nothing of the heap.
func (a *Arena) leftNothing(dead ParticipantID) bool {
	return !a.owesAnybody(dead) && a.touchedNothing(dead.Slot())
}

// repairAll takes back what dead holds in objects, and finds out which participants that concerns.
// all says that dead may hold any object; otherwise dead holds only objects that it has touched.
func (a *Arena) repairAll(dead ParticipantID, all bool) *concern {
	c := &concern{all: all, nobody: !all && a.touchedNothing(dead.Slot())}
	a.visitFor(dead, c, func(o Object) {
		a.addOpeners(c, o, dead)
		ops, ok := opsOf(o)
		if !ok {
			c.unknown = true
		}
		if ok && ops.Repair != nil {
			ops.Repair(a, o, dead)
		}
		if a.hasTransactionOf(o, dead) {
			c.undoing = true
		}
	})
	return c
}

// undoing reports whether an undo log has a transaction of dead. It examines the objects that the
// participants of the slot may have touched. It does not guard the objects, and an object that is
// being deleted may contain any bytes. So it may wrongly return true.
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

// visitFor calls f for the objects in which dead may have left something.
func (a *Arena) visitFor(dead ParticipantID, c *concern, f func(Object)) {
	if c.all {
		a.visit(f)
		return
	}
	a.visitTouched(dead.Slot(), f)
}

// addOpeners adds the participants that have o open to c, if dead has o open.
func (a *Arena) addOpeners(c *concern, o Object, dead ParticipantID) {
	h, err := a.headerAt(o.Offset)
	if err != nil {
		return
	}
	if word, mask := a.openBit(&h, dead.Slot()); word.Load()&mask == 0 {
		return
	}
	c.anything = true
	for i := 0; i <= a.geo.slots; i += 32 {
		word, _ := a.openBit(&h, i)
		c.slots[i/32] |= word.Load()
	}
}

// wakeAll wakes, once, every waiter whose wake may have been lost by the death: sleepers that a
// slot records, and waiters that have announced themselves in an object and are about to sleep. It
// also wakes the pollers of processes with parked goroutines.
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

// countDeath makes the participants that a death or a leave concerns check their objects. Each such
// participant with waiting goroutines then checks all of its objects and waits. So a dead
// participant that cannot have left anything there is not counted.
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

// finish writes the death record. Later, when the dead participant is gone and a moment has passed,
// it reclaims the memory and frees the slot. Only the participant that the slot names as the reaper
// may do that; another participant may replace that name if it is not current. While finish waits
// until the dead participant is gone, the slot names no reaper, because that may take long, and the
// waiting process may be stopped.
func (a *Arena) finish(i int, b *reapProgress) {
	word := a.u32(a.slot(i) + slotReaper)
	u := ParticipantID(word.Load())
	if u != a.self && a.isCurrent(u) {
		if !b.data {
			a.leaveFor(i)
		}
		return // if that reaper dies before it has finished, the watchers of the slot continue
	}
	if !takeFrom(&a.core, u, word, uint32(u), uint32(a.self), false) {
		a.leaveFor(i)
		return
	}
	crashpoint.Hit("arena.finish.taken")
	// From here on the slot stays dead until this process frees it.
	if _, window := a.windowOf(i); a.slotState(i) != b.of || window != b.window {
		word.CompareAndSwap(uint32(a.self), 0)
		return
	}
	dead := participantIn(i, b.of)
	now := shmsync.Monotonic()
	if b.written == 0 {
		b.written = now
		if a.hasDeathRecord(dead) {
			// Another participant has been here before, so the waiters that the death woke have had
			// the CPU. The delay begins only once for each death, because it would never end with a
			// series of short-lived reapers.
			b.written -= reclaimAfter
		} else {
			a.recordDeaths(i, b.of, dead.Generation())
		}
		crashpoint.Hit("arena.finish.recorded")
		a.ringTold()
	}
	if b.data && b.undoing { // another process does the rollback, and may be stopped
		b.undoing = a.undoing(dead)
	}
	if b.data {
		a.endings.noteHanded(i, b.of, b.window, b.written+reclaimAfter)
	}
	// By its own declaration, a participant may be gone while the kernel still has to mark its
	// alive words. If another participant took the slot now, the mark would hit this participant.
	if !b.data || b.undoing || a.leaveToOthers(b, now) {
		a.leaveFor(i)
		word.CompareAndSwap(uint32(a.self), 0)
		return
	}
	if now-b.written < reclaimAfter || !a.ended(i) {
		a.leaveToFree(i)
		// If this process is stopped here, it must not block the reap for others.
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

// reclaimMemory reclaims the memory that dead had not handed to others. It does the same for
// earlier participants of the slot whose reapers died before they had done so.
//
// Preconditions: this process is the reaper of the slot, or owns the slot.
func (a *Arena) reclaimMemory(dead ParticipantID) {
	reclaimed := a.u32(a.slot(dead.Slot()) + slotReclaimed)
	if reclaimed.Load() == dead.Generation() {
		a.clearOpenBits(dead) // a participant that is leaving may have opened objects after the mark
		return
	}
	const most = 256 // limits the generations that died one after the other; the bytes of a peer may claim more
	first := reclaimed.Load() + 1
	if last := dead.Generation(); first > last || last-first >= most {
		first = last - min(last, most) + 1
	}
	for g := first; g <= dead.Generation(); g++ {
		n := makeParticipantID(dead.Slot(), g)
		if !a.touchedNothing(dead.Slot()) { // a participant that has touched nothing has claimed no node
			a.freeNodesOf(n)
		}
		a.reclaimBlocks(n)
		a.clearOpenBits(n)
	}
	a.handles.Lock()
	left := dead == a.self && len(a.handles.deferred) > 0
	a.handles.Unlock()
	if !left { // after a death, the next participant of the slot frees the blocks that a peer guards
		reclaimed.Store(dead.Generation())
	}
}

// freeSlot makes slot i, which is dead or leaving in state w, available again. From then on, only
// the death records name its last participant. keep leaves the set of touched chunks to the next
// participant of the slot; its reaper then repairs what this process could not.
func (a *Arena) freeSlot(i int, w slotWord, keep bool) {
	s := a.slot(i)
	if !keep && a.u32(s+slotReclaimed).Load() == w.generation() {
		a.forgetTouched(i)
	}
	described := a.u32(s + slotDescribed)
	if g := described.Load(); g <= w.generation() { // a late reaper must not clear the next description
		described.CompareAndSwap(g, 0)
	}
	a.u32(s + slotPID).Store(0)
	a.putLabel(s+slotLabel, "")
	a.u64(s + slotDied).Store(0)
	a.casSlot(i, w, w.with(phaseFree))
}

// unfinished says what is left to do in the slots of leftover; 0 means nothing. The bits above
// leftToFree are a count, so that a quiet watch notices new work while it sleeps.
type unfinished struct{ atomic.Uint32 }

const (
	leftToReap = 1 << iota // at least one reap is unfinished
	leftToFree             // at least one slot has to be freed when the kernel has ended its process
	leftOnce               // the unit of the count
)

func (u *unfinished) leave(what uint32) {
	u.Add(leftOnce)
	u.Or(what)
}

func (u *unfinished) any() bool { return u.Load() != 0 }

// onlyToFree reports whether the only work left is to free slots. A quiet watch can wait for that.
func (u *unfinished) onlyToFree() bool { return u.Load()&leftToReap == 0 }

// leaveFor postpones a reap, or the rest of a reap. The death watcher continues it.
func (a *Arena) leaveFor(i int) {
	a.leftover.add(i)
	a.unfinished.leave(leftToReap)
}

// leaveToFree postpones the end of a reap that has handed over all data. endings has recorded when
// the slot may be freed.
func (a *Arena) leaveToFree(i int) {
	a.leftover.add(i)
	a.unfinished.leave(leftToFree)
}

// continueReaps continues unfinished reaps.
func (a *Arena) continueReaps() {
	a.unfinished.Store(0)
	a.forgetReaps()
	left := a.leftover.takeAll()
	left.each(func(i int) {
		w := a.slotState(i)
		if i != a.mySlot && (w.phase() == phaseDead || a.surveyDead(i, w)) {
			a.reap(i, w)
		}
	})
}

// surveyAhead asks for the byte locks of the participants that this process has to watch, and reaps
// those that hold none. It ends when this process watches as many living participants as it should,
// or when no more are left. Each living participant asks when it joins, and asks again about each
// participant that it begins to watch. So even in a file that was copied, or that has survived a
// crash of the computer, some process has asked about every participant.
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

// forgetReaps gives up reaps that another participant has finished, and reaps of slots that a
// joiner has taken over; such a joiner waits for the current reaper of the slot.
func (a *Arena) forgetReaps() {
	a.reapMu.Lock()
	defer a.reapMu.Unlock()
	for i, b := range a.reaps {
		if a.slotState(i) != b.of {
			a.u32(a.slot(i)+slotReaper).CompareAndSwap(uint32(a.self), 0)
			delete(a.reaps, i)
		}
	}
}

// goOn makes the death watcher finish a reap that another goroutine has begun.
func (a *Arena) goOn() {
	if a.unfinished.any() {
		a.ring(a.slot(a.mySlot) + slotWatchDoorbell)
	}
}
