package arenakernel

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/crashpoint"
)

var _ = crashpoint.Register("arena.enter.caps_checked")

// Offsets of a slot's fields; the table is in docs/abi.md.
const (
	slotState         = 0
	slotReaper        = 4
	slotCaps          = 8
	slotPID           = 12
	slotTID           = 16
	slotUID           = 20
	slotStart         = 24
	slotPIDNS         = 32
	slotJoined        = 40
	slotBootID        = 48
	slotLabel         = 64
	slotAlive         = 128
	slotDoorbell      = 192
	slotAdmission     = 196
	slotReady         = 200
	slotDied          = 208
	slotWatchDoorbell = 216
	slotReclaimed     = 220
	slotTelling       = 240
	slotAnnounce      = 256
	slotDescribed     = 1824
	slotIdentitySum   = 1832
	slotGone          = 1840

	aliveStride    = 8
	announceStride = 32
)

// The capabilities of a participant, for peers and tools.
const (
	capRobust     = 1 << iota // the kernel marks the alive words of the participant when its thread ends
	capOFD                    // the participant holds the byte lock of its slot
	capNoKernelIO             // the participant passes no memory of the arena to a system call that writes there
	capFence                  // a call of shmsync.Fence in another process reaches the threads of the participant
	capWaitV                  // the participant can sleep on several words at once
	capTold                   // the participant called OnDeath or OnEvent, so it is woken when a death is recorded
	capAsyncIO                // the kernel may still write into the arena when the participant has no threads any more
)

// slotWord is the state word of a slot.
//
//	bits 0..2   phase
//	bits 3..20  generation: another one each time that the slot is taken
//	bit  21     byte: the participant holds the byte lock of the slot for as long as its process exists
//
//	phase    meaning                              becomes
//	free     not in use                           joining with the next generation, by a joiner
//	joining  being filled in                      live by the joiner, or free if that fails; dead by a process that
//	                                              saw its death
//	live     a participant                        leaving by itself; dead by a process that saw its death
//	leaving  closing                              free by itself; dead by a process that saw its death
//	dead     fence passed, traces being removed   free by the reaper when the participant is gone; joining with
//	                                              the next generation, by a joiner that finds no free slot
//
// The next generation is the old generation plus 1, or the first generation of a new [window].
//
// Every transition is one CAS of the whole word, so it can succeed only in the same generation.
//
//	writers: joiner, owner, reaper (any process)
//	readers: every process that finds a ParticipantID
//	order:   acq_rel on transitions, acquire on loads
//	futex:   none
//	crash:   a death may leave any phase; a free byte lock or a marked alive
//	         word proves the death, and any process then moves the word to dead
type slotWord uint32

// heldByte is a bit of a slotWord. It says that the participant holds the byte lock of the slot. The bit is in
// the state word, and not in the capabilities, so that the CAS that takes the slot also sets the bit. A joiner
// that cannot use byte locks does not set it. Without this information, other processes would take the free
// byte lock of such a joiner for its death.
const heldByte slotWord = 1 << 21

type phase uint32

const (
	phaseFree phase = iota
	phaseJoining
	phaseLive
	phaseLeaving
	phaseDead
)

func (p phase) String() string {
	switch p {
	case phaseFree:
		return "free"
	case phaseJoining:
		return "joining"
	case phaseLive:
		return "live"
	case phaseLeaving:
		return "leaving"
	case phaseDead:
		return "dead"
	}
	return fmt.Sprintf("phase %d", uint32(p))
}

func makeSlotWord(p phase, generation uint32) slotWord {
	return slotWord(uint32(p) | generation<<3)
}

func (w slotWord) phase() phase                { return phase(w & 7) }
func (w slotWord) generation() uint32          { return uint32(w>>3) & maxGeneration }
func (w slotWord) hasByte() bool               { return w&heldByte != 0 }
func (w slotWord) is(p phase, gen uint32) bool { return w&^heldByte == makeSlotWord(p, gen) }
func (w slotWord) String() string              { return fmt.Sprintf("%s.%d", w.phase(), w.generation()) }

// with returns the state word of the slot for the same participant in phase p.
func (w slotWord) with(p phase) slotWord {
	v := makeSlotWord(p, w.generation())
	if p != phaseFree {
		v |= w & heldByte
	}
	return v
}

// ownWord returns the state word that this participant's slot has in phase p.
func (a *membership) ownWord(p phase, generation uint32) slotWord {
	w := makeSlotWord(p, generation)
	if a.caps&capOFD != 0 {
		w |= heldByte
	}
	return w
}

// makeCaps returns the word of a slot with the capabilities of a participant.
//
//	bits 0..13   capabilities
//	bits 14..31  generation of the participant; in another generation the word says nothing
//
//	writers: the participant
//	readers: every process that examines the participant
//	order:   release, acquire
//	futex:   none
//	crash:   without meaning when the slot has another generation
func makeCaps(caps, generation uint32) uint32 { return caps | generation<<capsBits }

const capsBits = 14

// capsOf returns the capabilities in the word c of a slot in state w. It returns 0 if they belong
// to another participant of the slot.
func capsOf(c uint32, w slotWord) uint32 {
	if c>>capsBits != w.generation() {
		return 0
	}
	return c & (1<<capsBits - 1)
}

// hasCaps reports whether the participant in slot i, in state w, has written its capabilities into
// the slot.
func (a *membership) hasCaps(i int, w slotWord) bool {
	return a.u32(a.slot(i)+slotCaps).Load()>>capsBits == w.generation()
}

// dropCap takes a capability away from this participant. If other processes have declared this
// participant dead, the word may belong to a later participant of the slot, and dropCap leaves it as it is.
func (a *membership) dropCap(c uint32) {
	word := a.u32(a.slot(a.mySlot) + slotCaps)
	for {
		// The CAS fails only if another call has changed the word. So the loop is lock-free.
		was := word.Load()
		if was>>capsBits != a.self.Generation() || was&c == 0 || word.CompareAndSwap(was, was&^c) {
			return
		}
	}
}

// publishCaps writes the capabilities of this participant into its slot, which is in state w. It
// returns false if another process has changed the state of the slot, because it took this participant
// for dead.
func (a *membership) publishCaps(i int, w slotWord) bool {
	word := a.u32(a.slot(i) + slotCaps)
	for {
		// The CAS fails only if another participant of the slot has written its own capabilities.
		// So the loop is lock-free.
		was := word.Load()
		if a.slotState(i) != w {
			return false
		}
		crashpoint.Hit("arena.enter.caps_checked")
		if word.CompareAndSwap(was, makeCaps(a.caps, w.generation())) {
			return true
		}
	}
}

// present reports whether a slot with the state word w has a participant that is not marked dead.
func (w slotWord) present() bool {
	p := w.phase()
	return p == phaseJoining || p == phaseLive || p == phaseLeaving
}

// taken reports whether a slot with the state word w has a participant, or a dead participant whose
// slot has not been freed yet.
func (w slotWord) taken() bool { return w.present() || w.phase() == phaseDead }

// slot returns the offset of slot i. Slots are numbered from 1.
func (c *core) slot(i int) Offset {
	if i < 1 || i > c.geo.slots {
		panic(fmt.Sprintf("shmsync: slot %d out of 1..%d", i, c.geo.slots))
	}
	return Offset(c.geo.slotsOff + uint64(i-1)*slotStride)
}

func (c *core) slotState(i int) slotWord {
	return slotWord(c.u32(c.slot(i) + slotState).Load())
}

func (c *core) casSlot(i int, from, to slotWord) bool {
	return c.u32(c.slot(i)+slotState).CompareAndSwap(uint32(from), uint32(to))
}

// aliveWord returns the offset of an alive word of slot i. The kernel marks these words when the thread of the
// participant's death watcher ends.
//
//	writers: the owner once, while joining; the kernel
//	readers: watchers, every process that finds the participant's ID
//	order:   acquire
//	futex:   WAIT by watchers (words 0..2) and by lock waiters (word 3), WAKE 1 by the kernel, WAKE all by the reaper
//	crash:   set by the kernel with FUTEX_OWNER_DIED; sticky until the slot is taken again
func (c *core) aliveWord(i, word int) Offset {
	return c.slot(i) + slotAlive + Offset(word*aliveStride)
}

// participantIn returns the ID of the participant in slot i, if w is the state of the slot.
func participantIn(i int, w slotWord) ParticipantID { return makeParticipantID(i, w.generation()) }

// isCurrent reports whether n is the ID of a participant that is not marked dead and has not left.
func (c *core) isCurrent(n ParticipantID) bool {
	i := n.Slot()
	if i < 1 || i > c.geo.slots {
		return false
	}
	// sync(arena.reap): acquire
	w := c.slotState(i)
	return w.generation() == n.Generation() && w.present()
}
