package arena

import (
	"io/fs"

	"github.com/shmsync/shmsync/shm"
)

// Options says how an arena is created and joined. A nil *Options means the
// zero value.
type Options struct {
	// Size of a new arena in bytes, rounded up to 64 KiB; 0 means 64 MiB. The
	// size is fixed for life. The file is sparse: memory is taken as the arena
	// fills.
	Size int64
	// MaxParticipants of a new arena, at most 2047; 0 means 128. Fixed for life.
	MaxParticipants int
	// Counted makes the objects of a new arena count what is done with them, and date
	// their holds, for tools; see [Counts]. It costs the fast paths: a lock and unlock
	// takes several times as long. It is ignored for an arena that exists; [Arena.Counted]
	// tells.
	Counted bool
	// Mode is the permission of a new arena's file; 0 means 0600.
	Mode fs.FileMode
	// TrustUIDs are users whose arenas may be joined, besides those of this
	// process's effective user and of root.
	TrustUIDs []uint32
	// Label names this process to people: in errors about its death, and in
	// tools. At most 63 bytes are kept. Empty means the program's name.
	Label string
	// NoKernelIO declares that this process passes no memory of the arena to a system
	// call that writes there, such as read(2) into a Block or io_uring. The data that it leaves
	// behind when it dies is then handed over as soon as its death is known, without
	// waiting for the end of its system calls; see [Arena.Gone]. A false declaration
	// corrupts data. It holds if every Open of this process makes it.
	NoKernelIO bool
	// NUMA places the pages of a new arena. It is ignored for an arena that exists.
	// Segment().Degraded and Where tell the result; see Place for parts of an arena.
	NUMA shm.Policy
	// HugePages is as in shm.Options. An arena under a name
	// takes HugeTransparent; one of Huge2M or Huge1G is formatted into a segment
	// of shm.CreateMemfd.
	HugePages shm.HugePages
	// Populate is of this process, as that of shm.Options.
	Populate bool
	// Lock is of this process, as that of shm.Options.
	Lock bool
}
