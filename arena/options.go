package arena

import (
	"io/fs"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/shm"
)

// KernelIO says which system calls of a process write into an arena. After the death of the
// process, its data is not handed over before these calls are finished; see [Arena.Gone]. A
// declaration that leaves out a call that the process makes can corrupt data.
type KernelIO = arenakernel.KernelIO

const (
	// KernelIOSynchronous is the default. It covers system calls that are finished when their
	// thread leaves them: read(2), recv(2) and the like, also with O_DIRECT, and io_uring without
	// O_DIRECT. The data is handed over when no thread of the process has memory any more, usually
	// less than a millisecond after the death is known.
	KernelIOSynchronous = arenakernel.KernelIOSynchronous
	// KernelIOAsynchronous also covers io_submit(2), and the system calls of other processes that
	// share the memory of this one, such as a child of clone(CLONE_VM) that is no thread. The data
	// is handed over when the kernel has taken the memory of the process apart, which takes 30 ms
	// or more for each GiB.
	KernelIOAsynchronous = arenakernel.KernelIOAsynchronous
	// KernelIONone says that this process passes no memory of the arena to a system
	// call that writes there. The data is handed over as soon as the death is known.
	KernelIONone = arenakernel.KernelIONone
)

// Options says how an arena is created and joined. A nil *Options means the
// zero value.
type Options struct {
	// Size of a new arena in bytes, rounded up to 64 KiB; 0 means 64 MiB. The size never changes.
	// The file is sparse: it takes memory only as the arena fills. The slots of participants take 2
	// KiB each when the arena is created: 256 KiB for the default of 128, and 4 MiB for 2047.
	Size int64
	// MaxParticipants of a new arena, at most 2047; 0 means 128. It never changes.
	MaxParticipants int
	// Counted makes the objects of a new arena count their operations and date their holds, for
	// tools; see [Counts]. It costs the fast paths: a lock and unlock takes several times as long.
	// It is ignored for an arena that exists; [Arena.Counted] says whether an arena is counted.
	Counted bool
	// Mode is the permission of a new arena's file; 0 means 0600.
	Mode fs.FileMode
	// TrustUIDs are users whose arenas this process may join, besides the arenas of its effective
	// user and of root.
	TrustUIDs []uint32
	// Label names this process to people, in errors about its death and in tools. Only the first 63
	// bytes are kept. Empty means the program's name.
	Label string
	// KernelIO declares which system calls of this process write into the arena. If the process
	// opens the arena several times, the most general declaration holds.
	KernelIO KernelIO
	// NUMA places the pages of a new arena. It is ignored for an arena that exists.
	// Segment().Degraded and Where report the result; use Place for parts of an arena.
	NUMA shm.Policy
	// HugePages is as in shm.Options. An arena with a name can use only HugeTransparent. For Huge2M
	// or Huge1G, format the arena into a segment of shm.CreateMemfd.
	HugePages shm.HugePages
	// Populate is as in shm.Options, for the mapping of this process.
	Populate bool
	// Lock is as in shm.Options, for the mapping of this process.
	Lock bool
	// OnFirst runs in the participant that begins an epoch, before its Open returns. No other
	// process is in, and none can get in meanwhile, so OnFirst may delete and repair anything. If
	// OnFirst fails, or its process dies, the next participant that joins begins the epoch. OnFirst
	// must not open the same arena. RecoverAll of package prims repairs the objects that deaths
	// have made unusable.
	OnFirst func(a *Arena, e Epoch) error `json:"-"`
	// Recreate says for which reasons a new arena replaces an arena that no process is in; 0 means
	// never.
	Recreate Recreate
	// Lifetime says what becomes of the arena when no process is in. All processes that open an
	// arena should set the same Lifetime.
	Lifetime Lifetime
	// OnDetached is called once, on a goroutine of its own, when the file of the arena was removed
	// or replaced while this opening is in use. Processes that open the name afterwards join
	// another arena.
	OnDetached func() `json:"-"`
	// OnEvent is called for events of the arena while this opening is in use: deaths, locks that a
	// death has left, repairs, and damage. Each process gets an event for each death. Every other
	// event is reported only in the process that makes the change or finds the damage, so set
	// OnEvent in every process that should log events. A C process makes such changes, too, but
	// calls only its own function for deaths. No process reports a change if the process that makes
	// it dies or is stopped right after it, or if the change is a lock that Close leaves behind. So
	// treat an event as a hint, and read the state from the object.
	//
	// Events arrive one after the other, on a goroutine that calls nothing else, and begin when
	// Open is about to return; events of the joining itself arrive then, too. OnEvent may block,
	// use the arena, and close it. It may be called once more after Close has returned, so it must
	// handle ErrClosed. No call, death watcher or repair waits for OnEvent. While OnEvent runs, the
	// latest 256 events wait; earlier ones are dropped, and Missed of the next event counts them.
	// Events that still wait when Close is called are dropped. A panic of OnEvent ends the program.
	OnEvent func(Event) `json:"-"`
}

// Recreate is a set of reasons to replace an arena that no process is in with a new one. The old
// data is lost.
type Recreate = arenakernel.Recreate

const (
	// RecreateIncompatible means that the layout, the features, Size, MaxParticipants or Counted of
	// the arena differ from those of this program.
	RecreateIncompatible = arenakernel.RecreateIncompatible
	// RecreateCorrupt means that the header of the arena is damaged, or that Check finds damage.
	RecreateCorrupt = arenakernel.RecreateCorrupt
	// RecreateUnclean means that a participant died since the last epoch began, or that the
	// computer went down while one was in.
	RecreateUnclean = arenakernel.RecreateUnclean
)

// Lifetime is what becomes of an arena when no process is in.
type Lifetime = arenakernel.Lifetime

const (
	// LifetimeDurable means that the arena stays, until Remove or, on a tmpfs, a reboot.
	LifetimeDurable = arenakernel.LifetimeDurable
	// LifetimeEphemeral means that each epoch begins with an empty arena, and that the last
	// Close removes the file.
	LifetimeEphemeral = arenakernel.LifetimeEphemeral
)

// Epoch describes the epoch that a participant begins: the time from a join while no
// participant is in the arena until none is in again.
type Epoch struct {
	// Number counts the epochs of the arena from 1. If OnFirst fails, the next epoch has the
	// same number.
	Number uint64
	// Clean reports that every participant of the last epoch left by Close, and that the file is as
	// these participants left it. It is true for a new arena.
	Clean bool
	// Reboot reports that the computer was started again since the last epoch began. It is
	// false for an arena on a tmpfs, whose files a reboot removes.
	Reboot bool
	// Dead are the participants that died since the last epoch began, at most the last 192.
	Dead []Participant
}

// kernel returns the options in the form of package arenakernel.
func (o *Options) kernel() *arenakernel.Options {
	if o == nil {
		return nil
	}
	k := &arenakernel.Options{
		Size: o.Size, MaxParticipants: o.MaxParticipants, Counted: o.Counted, Mode: o.Mode,
		TrustUIDs: o.TrustUIDs, Label: o.Label, KernelIO: o.KernelIO, NUMA: o.NUMA,
		HugePages: o.HugePages, Populate: o.Populate, Lock: o.Lock,
		Recreate: o.Recreate, Lifetime: o.Lifetime, OnDetached: o.OnDetached, OnEvent: onEvent(o.OnEvent),
	}
	if o.OnFirst != nil {
		k.OnFirst = func(a *arenakernel.Arena, e arenakernel.Epoch) error {
			x := Epoch{Number: e.Number, Clean: e.Clean, Reboot: e.Reboot}
			for _, p := range e.Dead {
				x.Dead = append(x.Dead, Participant(p))
			}
			return o.OnFirst((*Arena)(a), x)
		}
	}
	return k
}
