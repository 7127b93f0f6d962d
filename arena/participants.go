package arena

import (
	"iter"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// ParticipantID identifies a participant in shared memory. It consists of the number of a slot, and of
// a generation, which distinguishes the participants of the slot. The methods Slot and Generation
// return these two numbers, and String renders them as slot.generation. The zero ParticipantID stands
// for no participant.
//
// The process of a ParticipantID may have died: call [Arena.Current] to find out.
type ParticipantID = arenakernel.ParticipantID

// Participant describes a process that is in the arena, or was in it.
type Participant struct {
	shmsync.Identity

	State     string    // joining, live, leaving or dead
	Self      bool      // whether the participant is this process
	UID       int       // effective user
	TID       int       // thread ID, in the pid namespace of the process; the end of this thread shows the death
	StartTime uint64    // in clock ticks since boot; like PIDNS and BootID, 0 for the first millisecond after the join
	PIDNS     uint64    // inode of the pid namespace of the process
	BootID    [16]byte  // identifies the boot of the host on which the process runs
	Joined    time.Time // when the process joined
	// Notice says how other processes notice the death of the participant. "robust": the kernel marks
	// the slot at once. "ofd": they have to ask the kernel whether the participant still has its byte
	// lock.
	Notice string
	Fenced bool // the participant may release locks by a plain store; see [Arena.Fenced]
	// Missed is set for OnDeath only. It counts the death records that were overwritten before this
	// process could read them, since the last death that OnDeath reported. The count may be too high:
	// if a process dies while it records a death, another process may record the same death again.
	Missed uint64
}

// ID returns the ID of the participant.
func (p Participant) ID() ParticipantID { return arenakernel.Participant(p).Name() }

// Self returns the ID of this process in the arena.
func (a *Arena) Self() ParticipantID { return a.kernel().Self() }

// Participants iterates over the participants of the arena, including dead participants that have not
// been reaped. If a participant has only just taken its slot, only its slot, generation and state are
// known.
//
// Close does not wait for the loop. When Close has begun, the loop ends with the present iteration.
func (a *Arena) Participants() iter.Seq[Participant] {
	return func(yield func(Participant) bool) {
		for p := range a.kernel().Participants() {
			if !yield(Participant(p)) {
				return
			}
		}
	}
}

// Current reports whether n is a participant that is not marked dead and has not left. It costs one load.
//
// A false result synchronizes with the reap of n: no thread of n executes another instruction that
// stores to the arena. But a system call of such a thread may still write to the arena until
// [Arena.Gone] returns true, and a device may write even longer.
func (a *Arena) Current(n ParticipantID) bool { return a.kernel().Current(n) }

// Gone reports whether neither a thread nor a system call of n can write to the arena any more. The
// participant n may be alive, dead, or replaced in its slot. Once Gone has returned true for n, it
// always does. While the process of n is ending, each call of Gone makes system calls.
//
// Gone covers those system calls that the [KernelIO] of n covers. It does not cover
// stores by a device for which the kernel does not wait at the end of a process:
// RDMA, and a read through io_uring with O_DIRECT. docs/memory-model.md lists what is covered.
//
// A true result synchronizes with the last store of n to the arena.
func (a *Arena) Gone(n ParticipantID) bool { return a.kernel().Gone(n) }

// Who returns the identity of the participant n, living or dead. It reads the slot of n or, if another
// participant has taken the slot, the death records. It returns nil if the identity is in neither.
func (a *Arena) Who(n ParticipantID) *shmsync.Identity { return a.kernel().Who(n) }

// Fenced reports whether [shmsync.Fence] already reaches this process. Only then may this process
// release a lock by a plain store.
func (a *Arena) Fenced() bool { return a.kernel().Fenced() }

// OnDeath registers the function f. A goroutine of its own calls f once for every participant that dies
// from now on. A participant that leaves by Close does not die.
//
// The arena keeps the records of the last 192 deaths. If more participants die while this process is
// stopped, f is not called for the earliest of them. [Participant.Missed] of the next call says how
// many records were lost.
//
// Close of this opening of the arena ends the calls of f, even if the process has other openings. A call that has begun
// may still run after Close has returned. OnDeath panics with an *Error that Is ErrClosed if this opening is closed.
func (a *Arena) OnDeath(f func(Participant)) {
	a.kernel().OnDeath(func(p arenakernel.Participant) { f(Participant(p)) })
}
