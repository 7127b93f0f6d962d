package arenakernel

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/shm"
)

var (
	_ = crashpoint.Register("arena.enter.locked")
	_ = crashpoint.Register("arena.enter.taken")
	_ = crashpoint.Register("arena.enter.joining")
	_ = crashpoint.Register("arena.enter.registered")
	_ = crashpoint.Register("arena.enter.before_live")
	_ = crashpoint.Register("arena.enter.live")
	_ = crashpoint.Register("arena.inherit.reaper")
	_ = crashpoint.Register("arena.inherit.taken")
	_ = crashpoint.Register("arena.inherit.recorded")
	_ = crashpoint.Register("arena.inherit.repaired")
	_ = crashpoint.Register("arena.inherit.woken")
	_ = crashpoint.Register("arena.inherit.reclaimed")
)

// enter takes a slot and makes this process live in it. It first takes the byte lock of the slot, which the kernel
// drops only when this process has ended. It then changes the state word, then registers the robust list, and then
// sets the alive words. So if a slot is not free and its byte is not locked, its participant is dead. And no alive
// word is set before the kernel knows that it has to mark this word at the death of the process. A process that has no
// byte lock sets the alive words before it fills the slot in; see linkAlive.
func (a *Arena) enter(label string, watcher *watcherThread) error {
	if err := a.openLock(); err != nil {
		return err
	}
	a.watcher = watcher
	if a.lock == nil {
		watcher.ready.await(false)
		if watcher.list == nil {
			return a.fail("arena.open", shmsync.ErrNotSupported,
				"neither robust lists nor byte locks work here, so nobody could tell this process's death")
		}
	}
	for {
		name, before, err := a.takeSlot(label)
		if err != nil {
			a.dropLock()
			return err
		}
		a.mySlot, a.self = name.Slot(), name
		if a.settleIn(before, label) {
			break
		}
	}
	i := a.mySlot
	// Before this process becomes live, ring the doorbell of the participant before it in the ring
	// of slots. The death watcher of that participant then watches this process from the first
	// moment on.
	a.ringBefore(i, 1)

	watcher.hire(a)
	a.live.await(false)
	if err := a.notLive; err != nil {
		a.dropLock() // the slot does not belong to this process any more
		return err
	}
	// Ring all watchers before Open returns, because this participant may hold a lock afterwards,
	// and the watcher that was rung above may be stopped.
	a.ringWatchersOf(i)
	a.goOn()
	return nil
}

// reopen opens the file of a segment again. It is a variable so that tests can make it fail.
var reopen = (*shm.Segment).Reopen

// openLock opens the file of the arena again, for the byte lock. If the file cannot be opened again, or if byte locks
// do not work on it, a.lock stays nil. Then no byte lock shows other processes that this process is alive. Any other
// error may be temporary, so it makes the Open fail.
func (a *Arena) openLock() error {
	f, err := reopen(a.seg)
	if errors.Is(err, shmsync.ErrNotSupported) {
		return nil
	}
	if err != nil {
		return a.fail("arena.open", err, "could not open the file a second time, for the byte lock")
	}
	a.lock = f
	a.caps |= capOFD
	if _, err := shmsync.ByteLocked(f, a.lockByte(1)); errors.Is(err, shmsync.ErrNotSupported) {
		a.dropLock()
	} else if a.pin, err = pinLock(f); err != nil {
		a.dropLock()
		return a.fail("arena.open", err, "cannot map the page that keeps this process's byte lock")
	}
	return nil
}

// settleIn first recovers what a dead predecessor left in this joiner's slot. The parameter named
// before is the ID of this predecessor, or 0 if there is none. Then settleIn fills in the slot. It
// returns false if it has given the slot back instead, so that a joiner can renew the slot.
func (a *Arena) settleIn(before ParticipantID, label string) bool {
	// Another goroutine of this process that cleans up after a death uses the words of the slot,
	// too.
	a.reapMu.Lock()
	defer a.reapMu.Unlock()
	i := a.mySlot
	a.forgetActs()
	if before != 0 {
		if unknown := a.succeed(before); !unknown && a.stepBack() {
			return false
		}
	}
	a.renewOthers()
	a.fillSlot(i, label)
	return true
}

func (a *Arena) dropLock() {
	unpinLock(a.pin)
	a.pin = nil
	if a.lock != nil {
		closeUnlessLost(a.lock, isFile(a.lock, a.id))
		a.lock = nil
	}
	a.caps &^= capOFD
}

// takeTimeout is how long, in ns, a joiner waits for a slot whose participant has died or is
// leaving. The kernel or a reaper still has to finish with such a slot.
const takeTimeout = 1e9

// takeSlot changes the state of a free slot to joining. If no slot is free, it takes the slot of a
// dead participant. In that case, the result named before is the ID of that participant, and the
// caller has to recover what that participant left. label is that of this joiner.
func (a *Arena) takeSlot(label string) (name, before ParticipantID, err error) {
	for end := shmsync.Monotonic() + takeTimeout; ; time.Sleep(time.Millisecond) {
		// Read the clock before the search. If the time runs out while this joiner is stopped, it still searches once
		// more.
		late := shmsync.Monotonic() > end
		a.lockErr = nil
		if name, before = a.trySlots(label); name != 0 {
			return name, before, nil
		}
		if a.lockErr != nil {
			return 0, 0, a.fail("arena.open", a.lockErr, "could not take the byte lock of a slot")
		}
		if a.renewSlots() && !late {
			continue
		}
		if !a.vacating() || late {
			return 0, 0, a.fail("arena.open", shmsync.ErrNoSpace, a.whyFull())
		}
	}
}

// whyFull returns the reason why no slot could be taken.
func (a *Arena) whyFull() string {
	usedUp, unclean := 0, 0
	for i := 1; i <= a.geo.slots; i++ {
		w := a.slotState(i)
		switch {
		case w.taken() && a.isStuck(i, w):
			usedUp++
			unclean++
		case a.usedUp(i, w):
			usedUp++
			if !a.cleaned(i, w) {
				unclean++
			}
		}
	}
	if usedUp == 0 {
		return fmt.Sprintf("all %d slots for participants are taken", a.geo.slots)
	}
	s := fmt.Sprintf("all %d slots for participants are taken or used up: %d have no generation left", a.geo.slots, usedUp)
	switch {
	case a.postponed != "":
		return s + "; they could not be renewed now: " + a.postponed
	case unclean > 0:
		return s + fmt.Sprintf("; in %d of them nobody could take back what dead participants left; make a new arena", unclean)
	case a.crowded > 0:
		return s + fmt.Sprintf("; the objects hold too many bytes that may be IDs of %d of them; delete objects, or make a new arena", a.crowded)
	}
	return s
}

// isStuck reports whether the participant in slot i, in state w, is dead and the slot has no
// generation left for a joiner that would take it over.
func (a *Arena) isStuck(i int, w slotWord) bool {
	next, _ := a.nextGeneration(i, w, true)
	return next == 0 && (w.phase() == phaseDead || a.surveyDead(i, w))
}

// vacating reports whether a slot may soon be free. Slots in the state joining count, because the joiner may have
// died. Only a free byte lock shows that, and it may take a while until the lock is free.
func (a *Arena) vacating() bool {
	for i := 1; i <= a.geo.slots; i++ {
		w := a.slotState(i)
		switch p := w.phase(); {
		case a.usedUp(i, w):
		case p == phaseFree, p == phaseJoining, p == phaseLeaving, p == phaseDead, a.surveyDead(i, w):
			return true
		}
	}
	return false
}

func (a *Arena) trySlots(label string) (name, before ParticipantID) {
	for i := 1; i <= a.geo.slots; i++ {
		if w := a.slotState(i); w.phase() == phaseFree && !a.usedUp(i, w) && a.lockSlot(i) {
			if next, raw := a.nextGeneration(i, w, false); next != 0 && a.take(i, w, next, raw) {
				return makeParticipantID(i, next), 0
			}
			a.unlockSlot(i)
		}
	}
	for i := 1; i <= a.geo.slots; i++ {
		if w := a.slotState(i); w.taken() && a.noteByteFree(i, w) && a.lockSlot(i) {
			if next := a.inherit(i, w, label); next != 0 {
				return makeParticipantID(i, next), participantIn(i, w)
			}
			a.unlockSlot(i)
		}
	}
	return 0, 0
}

// lockSlot takes the byte lock of slot i, if byte locks are available. If the kernel refuses the lock although no
// process has it, lockSlot stores the error in a.lockErr.
func (a *Arena) lockSlot(i int) bool {
	if a.lock == nil {
		return true
	}
	locked, err := shmsync.LockByte(a.lock, a.lockByte(i))
	if err != nil {
		a.lockErr = err
		return false
	}
	if locked {
		a.noteLocked(i)
		crashpoint.Hit("arena.enter.locked")
	}
	return locked
}

func (a *Arena) unlockSlot(i int) {
	if a.lock != nil {
		shmsync.UnlockByte(a.lock, a.lockByte(i))
	}
}

// take changes the state of slot i, which is free or dead in state w, to joining. The parameter named next is the new
// generation. The parameter named raw contains the slot's window, that is, the range of generations to which next
// belongs.
func (a *Arena) take(i int, w slotWord, next uint32, raw uint64) bool {
	reclaimed := a.u32(a.slot(i) + slotReclaimed)
	enters := w.phase() == phaseFree && next != w.generation()+1
	// The variable named enters is true if next begins a new window of the slot (see slotWindow). The participants of
	// earlier windows are reaped, so slotReclaimed becomes next-1. If the CAS fails because another participant has
	// entered the window since w was read, this process must not take the slot.
	if enters && !reclaimed.CompareAndSwap(w.generation(), next-1) && reclaimed.Load() != next-1 {
		return false
	}
	joining := a.ownWord(phaseJoining, next)
	if !a.casSlot(i, w, joining) {
		return false
	}
	if _, now := a.windowOf(i); now != raw {
		// A joiner without a byte lock may have been stopped before the CAS of the slot. Meanwhile
		// other participants may have used up all generations. The slot was then in the same state
		// again, but in another window.
		if enters {
			reclaimed.CompareAndSwap(next-1, w.generation())
		}
		a.casSlot(i, joining, w)
		return false
	}
	// Watchers use this time to tell two joiners of the same generation apart. It must be stored before the
	// capabilities; see givenUp.
	if !a.publishJoined(i, joining) || !a.publishCaps(i, joining) {
		return false
	}
	crashpoint.Hit("arena.enter.taken")
	if a.lock == nil && !a.linkAlive(i, joining) {
		return false
	}
	if w.phase() == phaseFree { // if not free, the words describe the dead participant until its death is recorded
		a.describeNobody(i)
	}
	crashpoint.Hit("arena.enter.joining")
	return true
}

// inherit takes over slot i from a dead participant that no living process is reaping. It returns the generation that
// this process has in the slot, or 0 if it did not take the slot. The caller holds the byte lock of the slot.
func (a *Arena) inherit(i int, w slotWord, label string) uint32 {
	next, raw := a.nextGeneration(i, w, true)
	if next == 0 {
		a.endStepBack(i, w)
		return 0
	}
	if w.present() {
		if (a.lock == nil || !w.hasByte()) && !a.seenDead(i, w) && !a.givenUp(i, w) {
			return 0 // the participant is alive, as far as this process can find out
		}
		a.mark(i, w)
	}
	w = w.with(phaseDead)
	// System calls of the dead participant may still write to the arena. Gone can tell peers whether they have ended,
	// but only as long as the ID of the dead participant is in the slot. So the slot must not change before these
	// system calls have ended. A participant with neither a byte lock nor a robust list never became live, so it has
	// made no such system call.
	if (w.hasByte() || a.slotCaps(i)&capRobust != 0) && !a.ended(i) {
		return 0
	}
	reaper := a.u32(a.slot(i) + slotReaper)
	u := ParticipantID(reaper.Load())
	if a.isCurrent(u) || !reaper.CompareAndSwap(uint32(u), uint32(makeParticipantID(i, next))) {
		return 0
	}
	crashpoint.Hit("arena.inherit.reaper")
	if !a.take(i, w, next, raw) {
		return 0
	}
	crashpoint.Hit("arena.inherit.taken")
	// From now on the ID of this joiner is current. If another process has become the reaper of the
	// slot meanwhile, the joiner waits until this reaper has finished. If the reaper is stopped, the
	// joiner gives the slot back unchanged and records nothing. The reaper will record the death, and
	// a record by the joiner would be taken for the joiner's own death.
	end := shmsync.Monotonic() + takeTimeout
	for u := ParticipantID(reaper.Load()); u.Slot() != i && a.isCurrent(u); u = ParticipantID(reaper.Load()) {
		if shmsync.Monotonic() > end {
			joining := a.ownWord(phaseJoining, next)
			a.unlinkAlive(i, joining)
			a.casSlot(i, joining, w)
			return 0
		}
		time.Sleep(time.Millisecond)
	}
	a.recordDeaths(i, a.ownWord(phaseJoining, next), w.generation())
	// fillSlot stores the same description again later. A process may read some words before that and the other words
	// after it. It still gets one description.
	a.describeSelf(i, next, label)
	crashpoint.Hit("arena.inherit.recorded")
	a.ringTold()
	return next
}

// succeed recovers what this participant's dead predecessor in the slot left. The predecessor may
// have died before it sent a wake that a waiter needs. Until succeed has sent such wakes, the slot
// records that this participant still has to send them. If this participant dies first, its reaper
// examines every object. The result reports whether the dead participant may hold objects whose kind
// this process cannot repair.
func (a *Arena) succeed(dead ParticipantID) (unknown bool) {
	all := a.owesAnybody(dead)
	if all {
		a.restGuard(walkOwed)
	}
	// Clear the word slotTelling. Otherwise the wakes that the dead participant had not sent yet would count as wakes
	// of this participant.
	a.u32(a.slot(a.mySlot) + slotTelling).Store(0)
	unknown = a.reclaimMemoryFor(dead, all)
	a.restGuard(0)
	return unknown
}

// reclaimMemoryFor repairs the objects of a dead participant, sends the wakes that the dead participant may not have
// sent, and frees its memory. The parameter dead is its ID, and the parameter all is passed to repairAll. The result
// is that of the method succeed.
func (a *Arena) reclaimMemoryFor(dead ParticipantID, all bool) (unknown bool) {
	concerned := a.repairAll(dead, all)
	crashpoint.Hit("arena.inherit.repaired")
	a.wakeAll(dead, concerned)
	crashpoint.Hit("arena.inherit.woken")
	if !concerned.undoing { // otherwise the memory is freed later, together with that of this participant
		a.reclaimMemory(dead)
	}
	crashpoint.Hit("arena.inherit.reclaimed")
	return concerned.unknown || concerned.undoing
}

// lockByte returns the first byte of slot i in the file. A lock on this byte shows that a living
// process has the slot.
func (a *Arena) lockByte(i int) int64 { return int64(a.slot(i)) }

func (a *Arena) fillSlot(i int, label string) {
	s := a.slot(i)
	// If the slot was marked dead meanwhile, the word slotReaper says who reaps it, and must stay.
	reaper, joining := a.u32(s+slotReaper), a.ownWord(phaseJoining, a.self.Generation())
	for was := reaper.Load(); was != 0 && a.slotState(i) == joining && !reaper.CompareAndSwap(was, 0); {
		was = reaper.Load()
	}
	a.u32(s + slotUID).Store(uint32(os.Geteuid()))
	a.u64(s + slotPIDNS).Store(0)
	a.u64(s + slotJoined).Store(uint64(time.Now().UnixNano()))
	copyBytes(a.slice(s+slotBootID, 16), make([]byte, 16))
	a.describeSelf(i, a.self.Generation(), label)
	a.u64(s + slotReady).Store(0)
	a.u64(s + slotOpening).Store(0)
	a.u64(s + slotWalking).Store(0)
	a.u32(s + slotTelling).Store(0)
	a.forgetGone(i)
	for k := range announceCount {
		r := s + slotAnnounce + Offset(k*announceStride)
		a.u64(r + announceWord).Store(0)
	}
}
