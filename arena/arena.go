package arena

import (
	"context"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/shm"
)

// Arena is one opening of a shared arena by this process. All openings of the
// process share one membership. Each opening is closed separately: its Close ends
// the handles that were opened through it, and no others.
//
// Many goroutines may call the methods at once. After Close, a method that can return an
// error returns one that Is [shmsync.ErrClosed]. Methods that cannot return an error panic,
// or still work while this process has another opening.
type Arena arenakernel.Arena

// kernel gives the arena with the methods that package prims needs. The types have the same
// fields, so this costs nothing.
func (a *Arena) kernel() *arenakernel.Arena { return (*arenakernel.Arena)(a) }

// Open joins the arena of that name under /dev/shm, or at a path if name has a slash, and
// creates it first if there is none. If several processes race to create it, one of them does,
// and all join the same arena. A nil opts means the defaults. If the arena exists, Size and
// MaxParticipants that are set are compared with those of the arena, and a difference is an
// error that Is [shmsync.ErrIncompatible].
//
// A file that is no arena, or one of another layout, is ErrIncompatible or
// ErrCorrupt and is left as it was, unless Recreate says otherwise. If no slot is free, Open
// waits for one of a process that has died, leaves or joins, for a second at most; then the
// error is ErrNoSpace. In a program for a 32-bit or big-endian machine, and on another system than
// Linux, every call that joins an arena is an error that Is [shmsync.ErrNotSupported].
//
// Joining the same arena again in one process, by whatever name, gives another
// opening of the same membership, which is closed separately.
//
// Open waits while another process runs its OnFirst.
func Open(name string, opts *Options) (*Arena, error) {
	a, err := arenakernel.Open(name, opts.kernel())
	return (*Arena)(a), err
}

// OpenContext is Open; ctx bounds the wait for another process's OnFirst.
func OpenContext(ctx context.Context, name string, opts *Options) (*Arena, error) {
	a, err := arenakernel.OpenContext(ctx, name, opts.kernel())
	return (*Arena)(a), err
}

// Create makes a new arena under /dev/shm, or at a path if name has a slash, and joins it.
// Where the name is taken the error Is [fs.ErrExist].
func Create(name string, opts *Options) (*Arena, error) {
	a, err := arenakernel.Create(name, opts.kernel())
	return (*Arena)(a), err
}

// Attach joins an existing arena under /dev/shm, or at a path if name has a slash. Where there
// is none the error Is [fs.ErrNotExist].
func Attach(name string, opts *Options) (*Arena, error) {
	a, err := arenakernel.Attach(name, opts.kernel())
	return (*Arena)(a), err
}

// AttachContext is Attach; ctx bounds the wait for another process's OnFirst.
func AttachContext(ctx context.Context, name string, opts *Options) (*Arena, error) {
	a, err := arenakernel.AttachContext(ctx, name, opts.kernel())
	return (*Arena)(a), err
}

// Remove removes the file of the arena of that name under /dev/shm, or at a path if name has a
// slash. While a participant is in, the error Is [syscall.EBUSY] and names those that are, and
// the file stays. If there is no file the error Is [fs.ErrNotExist]. A file that is no arena is
// an error that Is [shmsync.ErrIncompatible]; [shm.Remove] removes any file.
//
// Where byte locks do not work the error Is [shmsync.ErrNotSupported].
func Remove(name string) error { return arenakernel.Remove(name) }

// Format makes an arena of a segment that no other process has yet. Call it in the init
// function of a constructor of package shm to create an arena at a path, or in a memfd:
//
//	seg, err := shm.CreateMemfd("jobs", size, func(s *shm.Segment) error { return arena.Format(s, nil) }, nil)
//	a, err := arena.FromSegment(seg, nil)
func Format(seg *shm.Segment, opts *Options) error {
	return arenakernel.Format(seg, opts.kernel())
}

// FromSegment joins the arena that is in a segment. The segment belongs to the
// arena from then on, also when an error is returned, and is closed with it.
func FromSegment(seg *shm.Segment, opts *Options) (*Arena, error) {
	a, err := arenakernel.FromSegment(seg, opts.kernel())
	return (*Arena)(a), err
}

// Close ends this opening of the arena. It closes the handles that were opened
// through it first: their waits end with an error that Is [shmsync.ErrClosed].
// Closing an opening twice is such an error, too, and changes nothing.
//
// The Close of the last opening of this process leaves the arena. Locks that this process
// still holds are then treated as after its death: other processes get ErrOwnerDead.
// Pointers into the arena become invalid: using one during or after Close is a mistake of
// the caller and may end in a fault.
//
// Close waits until the waits have ended, and the functions of the caller that they run, such as a
// Repair or one of an Update. So such a function must not call Close. Its waits through this
// opening end, it may unlock what it has locked, and it can open nothing any more.
func (a *Arena) Close() error { return a.kernel().Close() }

// Segment is the memory under the arena.
func (a *Arena) Segment() *shm.Segment { return a.kernel().Segment() }

// Path names the arena to people: its file.
func (a *Arena) Path() string { return a.kernel().Path() }

// PathState says whether the path of an arena still leads to it.
type PathState string

// The states of an arena's path. A process that opens the path of an arena whose path was
// removed or replaced does not meet the participants of that arena.
const (
	PathThere    PathState = "there"    // the path leads to the arena
	PathRemoved  PathState = "removed"  // no file is at the path
	PathReplaced PathState = "replaced" // another file is at the path
	PathNone     PathState = "none"     // the arena has no path: a memfd, or an open file
)

// PathState reports whether the path of the arena still leads to it. If the file of an arena was
// removed, its participants go on with it, as [shm.Remove] intends, but no process can join them
// by the path. systemd's RemoveIPC and clean-up jobs remove files that are in use, too. The call
// costs two system calls. [Arena.Metrics] reports the state.
func (a *Arena) PathState() PathState { return PathState(a.kernel().PathState()) }

// Size is the arena's size in bytes.
func (a *Arena) Size() int64 { return a.kernel().Size() }

// MaxParticipants is the most processes that can be in the arena at once.
func (a *Arena) MaxParticipants() int { return a.kernel().MaxParticipants() }

// Counted reports whether the arena's objects count their operations.
func (a *Arena) Counted() bool { return a.kernel().Counted() }
