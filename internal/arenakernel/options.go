package arenakernel

import (
	"io/fs"

	"github.com/shmsync/shmsync/shm"
)

// Options says how an arena is created and joined. A nil *Options means the
// zero value.
type Options struct {
	// Size of a new arena in bytes, rounded up to a multiple of 64 KiB; 0 means 64 MiB. The size never
	// changes. The file is sparse: it takes memory only as the arena fills.
	Size int64
	// MaxParticipants of a new arena, at most 2047; 0 means 128. It never changes.
	MaxParticipants int
	// Counted makes the objects of a new arena count their operations, and record since when they
	// are held. Tools show these counts and times; see [Counts]. A lock and unlock without waiting
	// then takes several times as long. Counted is ignored if the arena exists; see [Arena.Counted].
	Counted bool
	// Mode is the permission of a new arena's file; 0 means 0600.
	Mode fs.FileMode
	// TrustUIDs are users whose arenas this process may join, besides the arenas of its effective
	// user and of root.
	TrustUIDs []uint32
	// Label names this process in errors about its death and in tools. Only the first 63 bytes are
	// kept. Empty means the program's name.
	Label string
	// KernelIO declares which kinds of system calls of this process may write into the arena. If
	// the process opens the arena several times, the most general of its declarations applies.
	KernelIO KernelIO
	// NUMA places the pages of a new arena. NUMA is ignored if the arena exists. Segment().Degraded
	// and Where report the result; see Place for parts of an arena.
	NUMA shm.Policy
	// HugePages, Populate and Lock have the meaning of shm.Options. An arena with a name can use only
	// HugeTransparent. For Huge2M or Huge1G, format the arena into a segment of shm.CreateMemfd.
	HugePages shm.HugePages
	Populate  bool
	Lock      bool
	// OnFirst runs in the participant that begins an epoch, before its Open returns. During the call no
	// other process is in the arena or can join it, so OnFirst may delete and repair anything. If
	// OnFirst fails, or its process dies, the next participant that joins begins the epoch.
	//
	// OnFirst uses the arena that is passed to it. If OnFirst opens the same arena, or closes it, the
	// error Is [syscall.EDEADLK]. A goroutine that OnFirst starts may open the arena, but OnFirst must
	// not wait for that.
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
	// OnEvent is called for each event of the arena that this process learns of. The calls run one
	// after the other, on a goroutine of their own, and with no lock of the library held.
	OnEvent func(Event) `json:"-"`
}

// Recreate is a set of reasons to replace an arena with a new one.
type Recreate uint8

const (
	// RecreateIncompatible replaces an arena if its layout, its features, Size, MaxParticipants or
	// Counted differ from those of this program.
	RecreateIncompatible Recreate = 1 << iota
	// RecreateCorrupt replaces an arena if its header is damaged, or if Check finds damage.
	RecreateCorrupt
	// RecreateUnclean replaces an arena if, since the last epoch began, a participant died, or the
	// computer went down while a participant was in the arena.
	RecreateUnclean
)

// Lifetime says what happens to an arena when no process is in it any more.
type Lifetime uint8

const (
	// LifetimeDurable means that the arena stays until it is removed by Remove or, on a tmpfs,
	// until a reboot.
	LifetimeDurable Lifetime = iota
	// LifetimeEphemeral means that each epoch begins with an empty arena, and that the Close of the
	// last participant removes the file.
	LifetimeEphemeral
)

// replaces reports whether the participant that begins the epoch e has to replace the arena with a new one, as
// the options say. If untouched is true, no participant can have changed the arena yet.
func (o *Options) replaces(a *Arena, e Epoch, untouched bool) bool {
	return o.Lifetime == LifetimeEphemeral && !untouched ||
		o.Recreate&RecreateUnclean != 0 && !e.Clean ||
		o.Recreate&RecreateCorrupt != 0 && a.isDamaged()
}

// KernelIO says which system calls of a process write into an arena. After the death of the
// process, other processes get the data that it had locked only when these calls are finished; see
// [Arena.Gone]. If a declaration leaves out a call that the process makes, data can be corrupted.
type KernelIO uint8

const (
	// KernelIOSynchronous is the default. It covers system calls that are finished when their
	// thread returns from them: read(2), recv(2) and the like, also with O_DIRECT, and io_uring
	// without O_DIRECT. After a death, the data is handed over when no thread of the dead process
	// has memory any more. That is usually less than a millisecond after the death is known.
	KernelIOSynchronous KernelIO = iota
	// KernelIOAsynchronous also covers io_submit(2), and the system calls of other processes that share
	// the memory of this process, such as a child of clone(CLONE_VM) that is no thread. The data is
	// handed over when the kernel has freed the memory of the process, which takes 30 ms or more for
	// each GiB.
	KernelIOAsynchronous
	// KernelIONone says that this process passes no memory of the arena to a system
	// call that writes there. The data is handed over as soon as the death is known.
	KernelIONone
)

// caps returns the capability bits of a participant that has declared k.
func (k KernelIO) caps() uint32 {
	switch k {
	case KernelIOAsynchronous:
		return capAsyncIO
	case KernelIONone:
		return capNoKernelIO
	}
	return 0
}

// widen extends what this participant has declared about its system calls, so that the declaration
// also covers an opening with the option k.
func (a *membership) widen(k KernelIO) {
	caps := a.u32(a.slot(a.mySlot) + slotCaps)
	for {
		old := caps.Load()
		v := old | k.caps()&capAsyncIO
		if k != KernelIONone {
			v &^= capNoKernelIO
		}
		if caps.CompareAndSwap(old, v) {
			return
		}
	}
}

const (
	defaultSize  = 64 << 20
	defaultSlots = 128
)

func (o *Options) orDefault() Options {
	var v Options
	if o != nil {
		v = *o
	}
	if v.Size == 0 {
		v.Size = defaultSize
	}
	if v.MaxParticipants == 0 {
		v.MaxParticipants = defaultSlots
	}
	return v
}

func (o *Options) segment() *shm.Options {
	return &shm.Options{
		Mode: o.Mode, TrustUIDs: o.TrustUIDs, NUMA: o.NUMA,
		HugePages: o.HugePages, Populate: o.Populate, Lock: o.Lock,
	}
}
