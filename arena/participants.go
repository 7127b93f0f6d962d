package arena

import (
	"iter"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// ParticipantID is a participant as the shared memory names it: the number of its slot, and
// how often the slot had been taken. Its methods Slot and Generation give these, and String
// renders them as slot.generation. The zero ParticipantID stands for no participant.
//
// The process of a ParticipantID may have died since: [Arena.Current] tells.
type ParticipantID = arenakernel.ParticipantID

// Participant describes a process that is in the arena, or was.
type Participant struct {
	shmsync.Identity

	State     string    // joining, live, leaving or dead
	Self      bool      // this process
	UID       int       // effective user
	TID       int       // the thread whose end tells the death, in its own pid namespace
	StartTime uint64    // of the process, in clock ticks since boot; like PIDNS and BootID, 0 until 1 ms after it joined
	PIDNS     uint64    // inode of its pid namespace
	BootID    [16]byte  // of the boot it runs under
	Joined    time.Time // when it joined
	// Notice says how its death is noticed: "robust" by the kernel's mark at
	// once, "ofd" by asking for its byte lock.
	Notice string
	Fenced bool // it may release locks by a plain store
	// Missed is set for OnDeath only: how many records of deaths were overwritten before
	// this process could read them, since the last death that was told. A death has two
	// records if the process that recorded it died over that.
	Missed uint64
}

// ID is the participant as the shared memory names it.
func (p Participant) ID() ParticipantID { return arenakernel.Participant(p).Name() }

// Self is the ID of this process in the arena.
func (a *Arena) Self() ParticipantID { return a.kernel().Self() }

// Participants goes through the participants of the arena, including the dead that have not
// been reaped. Of a process that has only just taken its slot, it gives the slot, the generation
// and the state.
func (a *Arena) Participants() iter.Seq[Participant] {
	return func(yield func(Participant) bool) {
		for p := range a.kernel().Participants() {
			if !yield(Participant(p)) {
				return
			}
		}
	}
}

// Current reports whether n is a participant that is neither dead nor gone. It
// costs one load.
//
// A false answer synchronizes with the reap of n: no thread of n executes an
// instruction that stores to the arena any more. A system call that such a thread is
// in may go on to write there, until [Arena.Gone] is true, and a device longer still.
func (a *Arena) Current(n ParticipantID) bool { return a.kernel().Current(n) }

// Gone reports whether nothing can write into the arena for n any more, not even a system
// call of n. n need not be current. Once the answer is true it stays true. While n's process
// ends it costs system calls.
//
// What Gone waits for depends on the [KernelIO] that n has declared. It does not
// cover stores that a device makes by itself: RDMA, and a read through io_uring with
// O_DIRECT, which the kernel does not wait for when a process ends.
// docs/memory-model.md lists what is covered.
//
// A true answer synchronizes with the last store of n to the arena.
func (a *Arena) Gone(n ParticipantID) bool { return a.kernel().Gone(n) }

// Who returns the identity of the participant n, living or dead. It reads n's slot, or the
// death records if the slot has been taken again. It returns nil if neither has it.
func (a *Arena) Who(n ParticipantID) *shmsync.Identity { return a.kernel().Who(n) }

// Fenced reports whether this process is a target of [shmsync.Fence] by now,
// which is what a hold that is released by a plain store needs.
func (a *Arena) Fenced() bool { return a.kernel().Fenced() }

// OnDeath makes f be called for every participant that dies from now on, once
// each, on a goroutine of its own. Leaving by Close is no death.
//
// The arena keeps the last 192 deaths. If this process is stopped while more
// participants die, the first of them are not told; the next one that is told says
// how many, in [Participant.Missed].
func (a *Arena) OnDeath(f func(Participant)) {
	a.kernel().OnDeath(func(p arenakernel.Participant) { f(Participant(p)) })
}
