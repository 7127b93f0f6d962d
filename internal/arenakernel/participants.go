package arenakernel

import (
	"iter"
	"time"

	"github.com/shmsync/shmsync"
)

// Participant describes a process that is in the arena, or was in it.
type Participant struct {
	shmsync.Identity

	State     string    // "joining", "live", "leaving" or "dead"
	Self      bool      // whether the participant is this process
	UID       int       // the effective user ID of the process
	TID       int       // the thread whose end shows the death: its ID in the pid namespace of the process
	StartTime uint64    // in clock ticks since boot; like PIDNS and BootID, 0 for the first millisecond after the join
	PIDNS     uint64    // inode of the pid namespace of the process
	BootID    [16]byte  // the ID of the boot of the computer in which the process runs
	Joined    time.Time // when the process joined
	// Notice says how other processes notice the death: "robust" if the kernel marks it at once,
	// "ofd" if they have to ask the kernel whether the participant still holds its byte lock.
	Notice string
	Fenced bool // the participant may release locks by a plain store; see [Arena.Fenced]
	// Missed is set for OnDeath only. It says how many death records were overwritten before this process
	// could read them. Each report counts the records since the previous report. The count may be too high:
	// if a process dies while it records a death, another process may record the same death again.
	Missed uint64
}

// Name returns the ID of the participant, as words of the arena store it.
func (p Participant) Name() ParticipantID { return makeParticipantID(p.Slot, p.Generation) }

// Participants iterates over the participants of the arena, including dead participants that have not
// been reaped. If a participant has only just taken its slot, only its slot, generation and state are
// known.
//
// Close does not wait for the loop. When Close has begun, the loop ends with the present iteration.
func (a *Arena) Participants() iter.Seq[Participant] {
	return func(yield func(Participant) bool) {
		a.mustUse("arena.participants")
		for i := 1; i <= a.geo.slots; i++ {
			if a.BeginCall("arena.participants") != nil {
				return
			}
			p, ok := a.participant(i)
			a.EndCall()
			if ok && !yield(p) {
				return
			}
		}
	}
}

func (a *Arena) participant(i int) (p Participant, ok bool) {
	w := a.slotState(i)
	if !w.taken() {
		return p, false
	}
	s := a.slot(i)
	p = Participant{
		Identity: shmsync.Identity{Slot: i, Generation: w.generation()},
		State:    w.phase().String(),
		Self:     i == a.mySlot,
		Notice:   "ofd",
	}
	d := a.describe(i)
	if d.generation != w.generation() {
		// This participant has not described itself yet. The words of the slot still describe its
		// predecessor.
		return p, a.slotState(i).generation() == w.generation()
	}
	p.PID, p.Label, p.Died = int(d.pid), d.label, unixTime(d.died)
	p.UID, p.TID = int(a.u32(s+slotUID).Load()), int(a.u32(s+slotTID).Load())
	p.StartTime, p.PIDNS = a.u64(s+slotStart).Load(), a.u64(s+slotPIDNS).Load()
	p.Joined = unixTime(a.u64(s + slotJoined).Load())
	caps := capsOf(a.u32(s+slotCaps).Load(), w)
	p.Fenced = caps&capFence != 0
	copyBytes(p.BootID[:], a.slice(s+slotBootID, 16))
	if caps&capRobust != 0 {
		p.Notice = "robust"
	}
	// The result is valid only if the slot had the same participant during all reads above.
	return p, a.slotState(i).generation() == w.generation()
}
