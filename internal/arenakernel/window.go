package arenakernel

import (
	"fmt"
	"runtime"

	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("arena.renew.searched")
	_ = crashpoint.Register("arena.renew.recorded")
	_ = crashpoint.Register("arena.renew.stepping_back")
	_ = crashpoint.Register("arena.renew.stepped_back")
)

// slotWindow is the offset of the field of a slot that contains its [window].
const slotWindow = 248

// window is the range of generations that a slot can give to its participants, from the first to
// the last. When a slot has used up its window, a joiner gives the slot another window. A new
// window has only generations that no word of the arena contains in an ID of this slot. See
// docs/design/0030-generations.md.
//
//	bits 0..17   first   generation
//	bits 18..35  last    generation, not less than the first
//	bits 36..63  number  of the window of this slot, modulo 2^28
//
//	value     meaning                                                left by
//	0         all generations, number 0 (also all-zero memory)       renewSlots
//	any other the generations from first to last                     renewSlots
//
// A slot whose generation is not in its window has not entered the window yet: the next joiner
// that takes the slot gets the first generation.
//
//	writers: a joiner, by CAS, while the slot is free and used up
//	readers: joiners, tools
//	order:   acq_rel: a joiner searches the words, and then records the window
//	futex:   none
//	crash:   the word is written whole or not at all; the next joiner uses a window that nobody has entered
type window uint64

const (
	windowLastShift   = generationBits
	windowNumberShift = 2 * generationBits

	// heirsLeft is how many generations at the end of a window are reserved for heirs. An heir is a
	// joiner that takes over the slot of a dead participant and cleans up after it. A slot gets
	// another window only when nothing of its earlier participants is left, so heirs must not run
	// out of generations.
	heirsLeft = 256

	// renewMost is how many slots one search covers at most. So a search needs at most 2 MiB of
	// memory.
	renewMost = 64
)

// Tests make both variables smaller, so that slots need another window soon.
var (
	generationsMost = uint32(maxGeneration)
	windowLeast     = uint32(32) // 16 for heirs and 16 for other joins: fewer joins are not worth three searches
)

var renewSearched = func() {} // tests replace it; called between the search and the use of its result

func makeWindow(first, last, number uint32) window {
	return window(first) | window(last)<<windowLastShift | window(number)<<windowNumberShift
}

func (w window) first() uint32  { return uint32(w) & maxGeneration }
func (w window) last() uint32   { return uint32(w>>windowLastShift) & maxGeneration }
func (w window) number() uint32 { return uint32(w >> windowNumberShift) }
func (w window) legal() bool    { return w.first() != 0 && w.first() <= w.last() }

// has reports whether g is one of the generations of the window.
func (w window) has(g uint32) bool { return w.first() <= g && g <= w.last() }

// heirs returns how many generations at the end of the window are reserved for heirs; see heirsLeft.
func (w window) heirs() uint32 { return min(heirsLeft, (w.last()-w.first()+1)/2) }

// String shows the parts of the word with their names.
func (w window) String() string {
	return fmt.Sprintf("%d..%d, number %d", w.first(), w.last(), w.number())
}

func (c *core) windowWord(slot int) Offset { return c.slot(slot) + slotWindow }

// windowOf returns the window of a slot, that is, the range of generations that it can give to its
// participants. It also returns the bytes of the word with the window. If a peer has overwritten
// the word, the window may not be legal.
func (c *core) windowOf(slot int) (w window, raw uint64) {
	// sync(arena.window): acquire
	raw = c.u64(c.windowWord(slot)).Load()
	if raw == 0 {
		return makeWindow(1, generationsMost, 0), raw
	}
	return window(raw), raw
}

// nextGeneration returns the generation for a process that takes slot i, or 0 if no generation is left. It also
// returns the bytes of the window that the generation belongs to. The slot is free or dead, in state w. If
// inherit is true, the process takes the slot over from a dead participant.
func (c *core) nextGeneration(i int, w slotWord, inherit bool) (next uint32, raw uint64) {
	win, raw := c.windowOf(i)
	g := w.generation()
	switch left := win.last() - g; {
	case !win.legal():
		return 0, raw
	case !win.has(g) && inherit:
		return 0, raw // a faulty peer has written these bytes, because a new window is recorded only for a free slot
	case !win.has(g):
		if !c.mayEnter(i, w, win) {
			return 0, raw
		}
		return win.first(), raw
	case left > win.heirs(), left > 0 && (inherit || !c.cleaned(i, w)):
		return g + 1, raw
	}
	return 0, raw
}

// cleaned reports whether nothing is left of the earlier participants of slot i, which is free in
// state w. A reaper leaves something if its program does not know a kind of objects. Objects of
// such a kind may contain a generation without its slot, which a search does not recognize as an
// ID.
func (c *core) cleaned(i int, w slotWord) bool {
	return c.u32(c.slot(i)+slotReclaimed).Load() == w.generation() && c.touchedNothing(i)
}

// mayEnter reports whether a joiner may take slot i as the first participant of the window win. The
// parameter w is the state that the joiner has read: the slot is free, and its generation belongs
// to an earlier window. mayEnter returns false if other participants have used the slot since,
// while the joiner was stopped. Another joiner may have died while it entered the window. Then
// slotReclaimed may already be win.first()-1, the value that a joiner stores before it takes the slot.
func (c *core) mayEnter(i int, w slotWord, win window) bool {
	r := c.u32(c.slot(i) + slotReclaimed).Load()
	return (r == w.generation() || r == win.first()-1) && c.touchedNothing(i)
}

// usedUp reports whether slot i, in state w, is free and has no generation left for another
// participant.
func (c *core) usedUp(i int, w slotWord) bool {
	if w.phase() != phaseFree {
		return false
	}
	next, _ := c.nextGeneration(i, w, false)
	return next == 0
}

// alone reports whether every slot except mySlot is free. The answer may be outdated at once,
// because a joiner may take another slot at any moment.
func (c *core) alone(mySlot int) bool {
	for i := 1; i <= c.geo.slots; i++ {
		if i != mySlot && c.slotState(i).taken() {
			return false
		}
	}
	return true
}

// searches is how often a joiner searches before it renews slots. While a search runs, another
// participant may move the ID of a dead participant to a word that the search has already passed. If a
// wait is granted, its owner's ID moves from the wait node to a record, and from there to the state of
// an object. So it moves twice at most, and one of three searches finds it.
const searches = 3

// renewSlots gives another window to slots that have used up theirs. No word of the arena contains
// an ID with a generation of the new window, and no thread is about to act on such an ID.
// renewSlots returns true if it has renewed slots or has to try again. The caller should then
// search for a slot again.
//
//  1. It reads the states and windows of all slots. If a participant is dead, it gives up.
//  2. It searches the words of the arena for IDs of those slots.
//  3. For each participant, it waits until the participant is ending no wait of another participant;
//     see eachTold. Then it searches twice more.
//  4. It reads the act words, whose IDs count as found, and the states again. If a participant is
//     dead, it gives up.
//
// Then it chooses, for each slot, the longest range of generations that it did not find. Other
// participants may be in the arena meanwhile, and may be stopped after they have read an old ID. The act
// words make this safe: before a thread acts on an ID that it has read in a word, it publishes the
// ID in an act word, and then reads the word again; see slotActs.
//
// Finally it records the windows, each by one CAS. The joiner may be stopped for any time before a
// CAS. If another joiner has renewed the slot in the meantime, the CAS fails. Otherwise no
// participant can have taken the slot, which is used up, so no ID of the slot can have appeared in
// a word since the searches.
func (a *Arena) renewSlots() (again bool) {
	a.postponed = ""
	if !a.anyUsedUp() {
		return false
	}
	type snapshot struct {
		state slotWord
		raw   uint64 // bytes of the window
	}
	before := make([]snapshot, a.geo.slots+1)
	var search idSearch
	for i := 1; i <= a.geo.slots; i++ {
		s := snapshot{a.slotState(i), a.u64(a.windowWord(i)).Load()}
		before[i] = s
		if i != a.mySlot && len(search.slots) < renewMost && a.usedUp(i, s.state) && a.cleaned(i, s.state) {
			search.add(i, s.state.generation())
		}
	}
	if len(search.slots) == 0 {
		return false
	}
	if i := a.deadSlot(); i != 0 {
		return a.postpone(false, "slot %d is that of a dead participant", i)
	}
	for k := range 1 + searches {
		if k > 0 {
			search.run(a)
		}
		if k > 1 {
			continue
		}
		// Call eachTold before the first search, too: if it fails now, the long search would be
		// useless.
		if n, ok := a.eachTold(); !ok {
			return a.postpone(true, "%v is in the middle of ending a wait of another, or is stopped there", n)
		}
	}
	crashpoint.Hit("arena.renew.searched")
	renewSearched()
	for i := 1; i <= a.geo.slots; i++ {
		for k := range actWords {
			// sync(arena.act): acquire
			search.id(ParticipantID(a.actWord(i, k).Load() & ParticipantIDMask))
		}
	}
	if i := a.deadSlot(); i != 0 {
		return a.postpone(true, "the participant in slot %d has died", i)
	}
	a.crowded = 0
	for _, i := range search.slots {
		first, last := search.found[i].longestGap()
		if last-first+1 < windowLeast || first == 0 {
			a.crowded++
			continue
		}
		win := window(before[i].raw)
		// sync(arena.window): release
		if a.slotState(i) == before[i].state &&
			a.u64(a.windowWord(i)).CompareAndSwap(before[i].raw, uint64(makeWindow(first, last, win.number()+1))) {
			crashpoint.Hit("arena.renew.recorded")
		}
		again = true
	}
	return again
}

// renewEvery says how often joiners try to renew other slots: once in renewEvery joins of a slot, the
// joiner tries it.
const renewEvery = 64

// renewOthers renews slots other than this joiner's, before later joiners find that all of them are
// used up. Each attempt for a slot that cannot be renewed costs three walks through the arena. So
// while later joiners still find a free slot, most joiners do not try; see renewEvery. If renewSlots
// postpones the work, renewOthers gives up.
func (a *Arena) renewOthers() {
	if a.self.Generation()%renewEvery != 0 && a.otherIsFree() {
		return
	}
	for rounds := 1 + a.geo.slots/renewMost; rounds > 0 && a.renewSlots() && a.postponed == ""; rounds-- {
	}
}

// otherIsFree reports whether some slot other than this joiner's is free and has generations left
// for later joiners.
func (a *Arena) otherIsFree() bool {
	for i := 1; i <= a.geo.slots; i++ {
		if w := a.slotState(i); i != a.mySlot && w.phase() == phaseFree && !a.usedUp(i, w) {
			return true
		}
	}
	return false
}

// deadSlot returns a slot whose participant is dead and not reaped, or 0. While there is such a
// slot, no slot can be renewed: a joiner may be about to take over the slot of the dead
// participant, and such a joiner publishes no act word.
func (a *Arena) deadSlot() int {
	for i := 1; i <= a.geo.slots; i++ {
		if i != a.mySlot && a.slotState(i).phase() == phaseDead {
			return i
		}
	}
	return 0
}

// eachTold goes through all participants. It waits for each one until that participant is ending no wait
// of another participant. If a participant takes too long, eachTold returns that participant and false.
func (c *core) eachTold() (teller ParticipantID, ok bool) {
	for i := 1; i <= c.geo.slots; i++ {
		for try := 0; ; try++ {
			// sync(arena.telling): acquire
			if c.u32(c.slot(i)+slotTelling).Load() == 0 {
				break
			}
			n := participantIn(i, c.slotState(i))
			if !c.current(n) {
				break
			}
			if try == toldYields {
				return n, false
			}
			runtime.Gosched()
		}
	}
	return 0, true
}

// postpone records why slots cannot be renewed now, that is, cannot get another range of generations. It
// returns its first parameter.
func (a *Arena) postpone(again bool, format string, args ...any) bool {
	a.postponed = fmt.Sprintf(format, args...)
	return again
}

func (a *Arena) anyUsedUp() bool {
	for i := 1; i <= a.geo.slots; i++ {
		if i != a.mySlot && a.usedUp(i, a.slotState(i)) {
			return true
		}
	}
	return false
}

// stepBack frees this joiner's slot if the slot is at the end of its window and no other
// participant is in the arena. The joiner took the slot over from a dead participant and has
// cleaned up after it. Before this cleanup, the slot could not be renewed. stepBack reports whether it
// freed the slot.
func (a *Arena) stepBack() bool {
	i, w := a.mySlot, a.ownWord(phaseJoining, a.self.Generation())
	if win, _ := a.windowOf(i); !win.has(w.generation()) || win.last()-w.generation() > win.heirs() || !a.alone(i) {
		return false
	}
	a.reclaimMemory(a.self)
	if a.u32(a.slot(i)+slotReclaimed).Load() != w.generation() {
		return false
	}
	crashpoint.Hit("arena.renew.stepping_back")
	a.clearSlot(i, w, false)
	a.unlinkAlive(i, w)
	a.casSlot(i, w, w.with(phaseFree))
	crashpoint.Hit("arena.renew.stepped_back")
	a.unlockSlot(i)
	a.mySlot, a.self = 0, 0
	return true
}

// endStepBack frees slot i if its participant, in state w, died in stepBack before it had freed the
// slot. That participant may have had the last generation of the window, so that no joiner can take
// the slot over. endStepBack recognizes the case by slotReclaimed: only stepBack stores the generation of
// a joiner there, after all cleanup. So only the death of that participant is left to record.
//
// This joiner has no ID yet, so it cannot be the reaper of the slot. It may free the slot because
// it holds the byte lock of the slot: while the lock is held, no reaper frees the slot. If the dead
// participant had no byte lock, endStepBack does nothing, and a participant in another slot frees
// the slot.
//
// Preconditions: if both participants use byte locks, this joiner has found the byte lock of the dead
// participant free, and holds it now.
func (a *Arena) endStepBack(i int, w slotWord) {
	if a.lock == nil || !w.hasByte() || w.phase() != phaseJoining || a.slotState(i) != w ||
		a.u32(a.slot(i)+slotReclaimed).Load() != w.generation() {
		return
	}
	a.recordDeaths(i, w, w.generation())
	a.freeSlot(i, w, false)
}
