package arenakernel

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("arena.enter.locked")
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

// enter takes a slot and makes this process live in it. It first takes the byte lock, then changes
// the state word, then registers the robust list, and then sets the alive words. So a slot that is
// not free and whose byte is not locked belongs to a dead participant. And an alive word is never
// set before the kernel knows that it has to mark it.
func (a *Arena) enter(label string, watcher *watcherThread) error {
	if f, err := a.seg.Reopen(); err == nil {
		a.lock = f
		a.caps |= capOFD
		if _, err := shmsync.ByteLocked(f, a.lockByte(1)); errors.Is(err, shmsync.ErrNotSupported) {
			a.dropLock()
		} else if a.pin, err = pinLock(f); err != nil {
			a.dropLock()
			return a.fail("arena.open", err, "cannot map the page that keeps this process's byte lock")
		}
	}
	for {
		name, before, err := a.takeSlot()
		if err != nil {
			a.dropLock()
			return err
		}
		a.mySlot, a.self = name.Slot(), name
		if a.settleIn(before, label) {
			break
		}
	}
	i, name := a.mySlot, a.self
	// The doorbell is rung before this participant is live, so that a death watcher watches it
	// from the first moment on.
	a.ringBefore(i, 1)

	watcher.hire(a)
	a.live.await(false)
	if err := a.notLive; err != nil {
		joining := a.ownWord(phaseJoining, name.Generation())
		a.describeNobody(i)
		a.casSlot(i, joining, joining.with(phaseFree))
		a.dropLock()
		return err
	}
	// This rings the watchers before Open returns. Afterwards this participant may hold a lock, and
	// the watcher that was rung above may be stopped.
	a.ringWatchersOf(i)
	a.goOn()
	return nil
}

// settleIn cleans up after before, the dead participant that had this joiner's slot (0 for none),
// and fills the slot in. It returns false if it has given the slot back for another joiner.
func (a *Arena) settleIn(before ParticipantID, label string) bool {
	// A goroutine of this process reaps a participant that this process finds dead. It uses the
	// words of the slot, too.
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
		a.lock.Close()
		a.lock = nil
	}
	a.caps &^= capOFD
}

// takeTimeout is how long, in ns, a joiner waits for a slot whose owner has died or is leaving,
// until the kernel or a reaper has finished with the slot.
const takeTimeout = 1e9

// takeSlot moves a free slot to the phase joining. If no slot is free, it takes the slot of a dead
// participant. Then before is the ID of that participant, and the caller has to clean up after it.
func (a *Arena) takeSlot() (name, before ParticipantID, err error) {
	for end := shmsync.Monotonic() + takeTimeout; ; time.Sleep(time.Millisecond) {
		// If the end passed while this joiner was stopped, it searches once more.
		late := shmsync.Monotonic() > end
		if name, before = a.trySlots(); name != 0 {
			return name, before, nil
		}
		if a.renewSlots() && !late {
			continue
		}
		if !a.vacating() || late {
			return 0, 0, a.fail("arena.open", shmsync.ErrNoSpace, a.whyFull())
		}
	}
}

// whyFull says why no slot could be taken.
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

// isStuck reports whether the participant in slot i, in state w, is dead and no generation is left
// for a joiner that would clean up after it.
func (a *Arena) isStuck(i int, w slotWord) bool {
	next, _ := a.nextGeneration(i, w, true)
	return next == 0 && (w.phase() == phaseDead || a.surveyDead(i, w))
}

// vacating reports whether a slot may soon be free. It counts slots in the phase joining, because
// the joiner may have died: only a free byte lock shows that, which may take a while.
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

func (a *Arena) trySlots() (name, before ParticipantID) {
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
			if next := a.inherit(i, w); next != 0 {
				return makeParticipantID(i, next), participantIn(i, w)
			}
			a.unlockSlot(i)
		}
	}
	return 0, 0
}

// lockSlot takes the byte lock of slot i, if there are byte locks.
func (a *Arena) lockSlot(i int) bool {
	if a.lock == nil {
		return true
	}
	locked, err := shmsync.LockByte(a.lock, a.lockByte(i))
	if err == nil && locked {
		a.noteLocked(i)
		crashpoint.Hit("arena.enter.locked")
	}
	return err == nil && locked
}

func (a *Arena) unlockSlot(i int) {
	if a.lock != nil {
		shmsync.UnlockByte(a.lock, a.lockByte(i))
	}
}

// take moves slot i, which is free or dead in state w, to the phase joining. next is its
// generation, in the window raw.
func (a *Arena) take(i int, w slotWord, next uint32, raw uint64) bool {
	reclaimed := a.u32(a.slot(i) + slotReclaimed)
	enters := w.phase() == phaseFree && next != w.generation()+1
	// This is the first generation of a window. All participants before it are cleaned up, and
	// their generations mean nothing in this window. The CAS fails if others have entered the
	// window since w was read.
	if enters && !reclaimed.CompareAndSwap(w.generation(), next-1) && reclaimed.Load() != next-1 {
		return false
	}
	joining := a.ownWord(phaseJoining, next)
	if !a.casSlot(i, w, joining) {
		return false
	}
	if _, now := a.windowOf(i); now != raw {
		// Without a byte lock, other participants may have used the slot up while this process was
		// stopped. Then the slot is in the same state in another window.
		if enters {
			reclaimed.CompareAndSwap(next-1, w.generation())
		}
		a.casSlot(i, joining, w)
		return false
	}
	// Watchers use it to tell apart two joiners of one generation. It is stored before the
	// capabilities: see givenUp.
	a.u64(a.slot(i) + slotJoined).Store(uint64(time.Now().UnixNano()))
	if !a.publishCaps(i, joining) {
		return false
	}
	if w.phase() == phaseFree { // otherwise the words describe the dead participant, until its death is recorded
		a.describeNobody(i)
	}
	crashpoint.Hit("arena.enter.joining")
	return true
}

// inherit takes slot i over from a dead participant that no living process is cleaning up after. It
// returns the generation of this participant, or 0 if it did not take the slot. The caller holds
// the slot's byte lock.
func (a *Arena) inherit(i int, w slotWord) uint32 {
	next, raw := a.nextGeneration(i, w, true)
	if next == 0 {
		return 0
	}
	if w.present() {
		if (a.lock == nil || !w.hasByte()) && !a.seenDead(i, w) && !a.givenUp(i, w) {
			return 0 // alive, as far as this process can find out
		}
		a.mark(i, w)
	}
	w = w.with(phaseDead)
	// System calls of the dead participant may still write, and only its ID shows that to peers. A
	// participant that has neither bit never became live, so it has made no such call.
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
	// From now on the ID of this joiner is current. If another process became the reaper in
	// between, it finishes first. That reaper may be stopped. Then this joiner gives the slot back
	// unchanged, because the reaper will record the death; it must not be recorded a second time,
	// as the death of this joiner.
	end := shmsync.Monotonic() + takeTimeout
	for u := ParticipantID(reaper.Load()); u.Slot() != i && a.isCurrent(u); u = ParticipantID(reaper.Load()) {
		if shmsync.Monotonic() > end {
			a.casSlot(i, a.ownWord(phaseJoining, next), w)
			return 0
		}
		time.Sleep(time.Millisecond)
	}
	a.recordDeaths(i, a.ownWord(phaseJoining, next), w.generation())
	a.describeSelf(i, next, "")
	crashpoint.Hit("arena.inherit.recorded")
	a.ringTold()
	return next
}

// succeed cleans up after dead, whose slot we have. The wakes that dead owed may be lost. Until succeed
// has sent them, this participant records that it owes them: if it dies first, its reaper examines
// every object. The result says whether dead may hold objects whose kind this process
// cannot repair.
func (a *Arena) succeed(dead ParticipantID) (unknown bool) {
	all := a.owesAnybody(dead)
	if all {
		a.restGuard(walkOwed)
	}
	// Otherwise the wakes that dead was about to make would count as wakes of this participant.
	a.u32(a.slot(a.mySlot) + slotTelling).Store(0)
	unknown = a.reclaimMemoryFor(dead, all)
	a.restGuard(0)
	return unknown
}

// reclaimMemoryFor repairs the objects of dead, sends the wakes that it owed, and reclaims its memory.
// all is the argument of repairAll. unknown is the result of succeed.
func (a *Arena) reclaimMemoryFor(dead ParticipantID, all bool) (unknown bool) {
	concerned := a.repairAll(dead, all)
	crashpoint.Hit("arena.inherit.repaired")
	a.wakeAll(dead, concerned)
	crashpoint.Hit("arena.inherit.woken")
	if !concerned.undoing { // if undoing, this is done later, together with what this participant leaves
		a.reclaimMemory(dead)
	}
	crashpoint.Hit("arena.inherit.reclaimed")
	return concerned.unknown || concerned.undoing
}

// lockByte returns the byte of the file whose lock shows that a living process has taken slot i:
// the first byte of the slot.
func (a *Arena) lockByte(i int) int64 { return int64(a.slot(i)) }

func (a *Arena) fillSlot(i int, label string) {
	s := a.slot(i)
	a.u32(s + slotReaper).Store(0)
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

// fillIdentity fills in what it reads from /proc. That takes as long as the rest of joining, so
// Open does not wait for it. Until then, only the byte lock shows whether this participant is gone.
func (a *Arena) fillIdentity() {
	id, s := selfIdentity(), a.slot(a.mySlot)
	shmsync.FeatureThreads.Have() // the first probe takes long, so it should not happen during a death
	a.u64(s + slotPIDNS).Store(id.pidNS)
	copyBytes(a.slice(s+slotBootID, 16), id.bootID[:])
	a.u64(s + slotIdentitySum).Store(id.sum(a.self.Generation(), uint32(os.Getpid())))
	a.u64(s + slotStart).Store(id.startTime) // last, so that a process that reads it can read the others
}

// becomeLive makes this participant live. The death watcher calls it.
func (a *Arena) becomeLive(list *shmsync.RobustList) error {
	i := a.mySlot
	tid := uint32(shmsync.ThreadID())
	if list != nil {
		list.Link(wordPtr(a.u32(a.aliveWord(i, 0))), aliveWords)
		if list.Register() == nil {
			a.robust = list
			a.caps |= capRobust
		}
	}
	crashpoint.Hit("arena.enter.registered")
	if a.robust == nil && a.lock == nil {
		return a.fail("arena.open", shmsync.ErrNotSupported,
			"neither robust lists nor byte locks work here, so nobody could tell this process's death")
	}
	if shmsync.FeatureWaitV.Have() {
		a.caps |= capWaitV
	}
	s := a.slot(i)
	joining := a.ownWord(phaseJoining, a.self.Generation())
	if !a.publishCaps(i, joining) {
		return a.fail("arena.open", shmsync.ErrCorrupt, "a peer took the slot away")
	}
	a.u32(s + slotTID).Store(tid)
	for k := range aliveWords {
		// FUTEX_WAITERS is always set: without this bit the kernel marks the word, but wakes
		// nobody.
		a.u32(a.aliveWord(i, k)).Store(tid&shmsync.RobustTIDMask | shmsync.RobustWaiters)
	}
	crashpoint.Hit("arena.enter.before_live")
	if !a.casSlot(i, joining, joining.with(phaseLive)) {
		return a.fail("arena.open", shmsync.ErrCorrupt, "a peer took the slot away")
	}
	crashpoint.Hit("arena.enter.live")
	return nil
}

// fenceAfter is the age at which a participant registers its process for fences. The registration
// takes milliseconds, and if the process is killed meanwhile, it ends only after the registration.
// A participant with a shorter life does not register.
const fenceAfter = 50 * time.Millisecond

// fenceRegistered registers this process once.
var fenceRegistered = sync.OnceValue(shmsync.RegisterFence)

// becomeFenceTarget makes this process a target of fences, and then records that in its slot. Close
// does not wait for it.
func (a *Arena) becomeFenceTarget() {
	go func() {
		if fenceRegistered() != nil {
			return
		}
		a.inBackground(func() {
			a.u32(a.slot(a.mySlot) + slotCaps).Or(capFence)
			a.fenced.Store(true)
		})
	}()
}

// identifyAfter is the age at which a participant reads its identity from /proc.
const identifyAfter = time.Millisecond

// postponed is work that a participant does after it has lived for a while.
type postponed struct {
	at int64 // CLOCK_MONOTONIC ns
	do func()
}

// afterJoining returns this work, in order. The death watcher does it. It does not use a timer,
// because the first timer of a Go program sets up the poller of the runtime, and Open would wait
// for that.
func (a *Arena) afterJoining() []postponed {
	now := shmsync.Monotonic()
	return []postponed{
		{now + int64(identifyAfter), a.fillIdentity},
		{now + int64(fenceAfter), a.becomeFenceTarget},
	}
}
