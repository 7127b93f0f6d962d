package arena

import (
	"io/fs"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/shm"
)

// KernelIO says which system calls of a process write into an arena. After the death of the process, other processes
// get the data that it had locked only when these system calls are finished; see [Arena.Gone]. If the process makes a
// system call into the arena that its KernelIO does not cover, data can be corrupted.
type KernelIO = arenakernel.KernelIO

const (
	// KernelIOSynchronous is the default. It covers system calls that are finished when their
	// thread returns from them: read(2), recv(2) and the like, also with O_DIRECT, and io_uring
	// without O_DIRECT. After a death, the data is handed over when no thread of the dead process
	// has memory any more. That is usually less than a millisecond after the death is known.
	KernelIOSynchronous = arenakernel.KernelIOSynchronous
	// KernelIOAsynchronous also covers io_submit(2), and the system calls of other processes that share
	// the memory of this process, such as a child of clone(CLONE_VM) that is no thread. The data is
	// handed over when the kernel has freed the memory of the process, which takes 30 ms or more for
	// each GiB.
	KernelIOAsynchronous = arenakernel.KernelIOAsynchronous
	// KernelIONone says that this process passes no memory of the arena to a system
	// call that writes there. The data is handed over as soon as the death is known.
	KernelIONone = arenakernel.KernelIONone
)

// Options says how an arena is created and joined. A nil *Options means the
// zero value.
type Options struct {
	// Size of a new arena in bytes, rounded up to a multiple of 64 KiB; 0 means 64 MiB. The size
	// never changes. The file is sparse: most of it takes memory only as the arena fills. When the
	// arena is created, the directory of names takes 1.6 % of a Size that is a power of two, and up
	// to 3.2 % of another Size. For 1 GiB, the directory takes 16 MiB. The slots of participants
	// take 2 KiB each: 256 KiB for the default of 128 slots, and 4 MiB for 2047.
	Size int64
	// MaxParticipants of a new arena, at most 2047; 0 means 128. It never changes.
	MaxParticipants int
	// Counted makes the objects of a new arena count their operations, and record when holds begin,
	// for tools; see [Counts]. A lock and unlock without waiting then takes several times as long.
	// Counted is ignored if the arena exists; see [Arena.Counted].
	Counted bool
	// Mode is the permission of a new arena's file; 0 means 0600.
	Mode fs.FileMode
	// TrustUIDs are users whose arenas this process may join, besides the arenas of its effective
	// user and of root.
	TrustUIDs []uint32
	// Label names this process for people, in errors about its death and in tools. Only the first 63
	// bytes are kept. Empty means the name of the program.
	Label string
	// KernelIO declares which system calls of this process write into the arena. If the process opens
	// the arena several times, the most general of its declarations applies.
	KernelIO KernelIO
	// NUMA places the pages of a new arena. NUMA is ignored if the arena exists. Segment().Degraded
	// and Where report the result. Use Place for parts of an arena.
	NUMA shm.Policy
	// HugePages is the same option as in shm.Options. An arena with a name can use only HugeTransparent. For
	// Huge2M or Huge1G, format the arena into a segment of shm.CreateMemfd.
	HugePages shm.HugePages
	// Populate is the same option as in shm.Options, for the mapping of this process.
	Populate bool
	// Lock is the same option as in shm.Options, for the mapping of this process.
	Lock bool
	// OnFirst runs in the participant that begins an epoch by joining while no other participant is in the arena. It
	// runs before Open returns. During the call no other process is in the arena or can join it, so OnFirst may delete
	// and repair anything. If OnFirst fails, or its process dies, the next participant that joins begins the epoch.
	// OnFirst must not open the same arena. RecoverAll of package prims repairs the objects that deaths have made
	// unusable.
	OnFirst func(a *Arena, e Epoch) error `json:"-"`
	// Recreate says for which reasons a new arena replaces an arena in which there is no process. 0
	// means that an arena is never replaced.
	Recreate Recreate
	// Lifetime says what happens to the arena when no process is in it any more. All processes that
	// open an arena should set the same Lifetime.
	Lifetime Lifetime
	// OnDetached is called once, on a goroutine of its own, if the file of the arena is removed or
	// replaced while this opening is in use. From then on, processes that open the name join another
	// arena. A change of the root directory or of the mount namespace of this process does not count as a
	// removal.
	OnDetached func() `json:"-"`
	// OnEvent is called for events of the arena while this opening is in use: deaths, locks whose holder
	// has died, repairs, and damage.
	//
	// Each process gets an event for each death. Every other event is reported only in the process
	// that makes the change or finds the damage, so set OnEvent in every process that should log
	// events. A C process reports only deaths, to a function of the C program; its other events are
	// reported nowhere.
	// Some changes are reported in no process: a process may die or be stopped between a change and
	// its report, and Close does not report a lock that it leaves behind. So treat an event as a
	// hint, and read the state from the object.
	//
	// The calls run one after the other, on a goroutine that calls nothing else. They begin when
	// Open is about to return. The first calls report what happened during Open. OnEvent may
	// block, use the arena, and close it. It may be called once more after Close has returned, so
	// it must handle ErrClosed. No call, death watcher or repair waits for OnEvent.
	//
	// While OnEvent runs, the latest 256 events wait. Earlier events are dropped, and Missed of the
	// next event counts them. Events that still wait when Close is called are dropped. A panic of
	// OnEvent ends the program.
	OnEvent func(Event) `json:"-"`
}

// Recreate is a set of reasons to replace an arena, in which there is no process, with a new arena. The
// old data is lost.
type Recreate = arenakernel.Recreate

const (
	// RecreateIncompatible means that the layout, the features, Size, MaxParticipants or Counted of
	// the arena differ from those of this program.
	RecreateIncompatible = arenakernel.RecreateIncompatible
	// RecreateCorrupt means that the header of the arena is damaged, or that Check finds damage.
	RecreateCorrupt = arenakernel.RecreateCorrupt
	// RecreateUnclean means that, since the last epoch began, a participant died, or the computer went
	// down while a participant was in the arena.
	RecreateUnclean = arenakernel.RecreateUnclean
)

// Lifetime says what happens to an arena when no process is in it any more.
type Lifetime = arenakernel.Lifetime

const (
	// LifetimeDurable means that the arena stays, until Remove or, on a tmpfs, a reboot.
	LifetimeDurable = arenakernel.LifetimeDurable
	// LifetimeEphemeral means that each epoch begins with an empty arena, and that the last Close
	// removes the file. If another process is stopped while it removes or opens the arena, Close
	// waits one second for that process, and then leaves the file.
	LifetimeEphemeral = arenakernel.LifetimeEphemeral
)

// Epoch describes the epoch that a participant begins. An epoch begins when a participant joins an arena in which no
// other participant is. It ends when no participant is in the arena any more.
type Epoch struct {
	// Number counts the epochs of the arena from 1. If OnFirst fails, the next epoch has the same
	// number.
	Number uint64
	// Clean reports that every participant of the last epoch left by Close, and that the file is as
	// they left it. It is true for a new arena.
	Clean bool
	// Reboot reports that the computer was started again since the last epoch began. It is always false
	// for an arena on a tmpfs, because a reboot removes the files of a tmpfs.
	Reboot bool
	// Dead lists the participants that died since the last epoch began, at most the last 192.
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
