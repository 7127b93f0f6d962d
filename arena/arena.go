package arena

import (
	"context"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/shm"
)

// Arena is an opening of a shared arena, that is, what one call of Open or a similar function returned. If this process
// opens an arena several times, other processes still see it as one participant. Each opening is closed separately:
// Close ends the handles that were opened through this opening, and no other handles.
//
// Many goroutines may call the methods at the same time. After Close, a method that can return an error returns an
// error that Is [shmsync.ErrClosed]. A method that cannot return an error panics, or still works while this process has
// another opening.
type Arena arenakernel.Arena

// kernel converts the arena to the type of package arenakernel, which has the methods that package
// prims needs. The two types have the same fields, so the conversion costs nothing.
func (a *Arena) kernel() *arenakernel.Arena { return (*arenakernel.Arena)(a) }

// Open joins the arena of that name under /dev/shm, or at a path if name has a slash. If there is no
// arena, Open creates it first. If several processes race to create it, one of them creates it and all
// of them join it. A nil opts means the defaults. If the arena exists and opts sets another Size or
// MaxParticipants than the arena has, the error Is [shmsync.ErrIncompatible].
//
// If the file is no arena, or has another layout, the error is ErrIncompatible or ErrCorrupt. The file
// stays as it was, unless opts.Recreate says otherwise. If no slot is free, Open waits for at most a
// second, because a process that dies, leaves, or is still joining may free its slot. If no slot
// becomes free, the error is ErrNoSpace. In a program for a 32-bit or big-endian machine, and on
// systems other than Linux, every call that joins an arena returns an error that Is
// [shmsync.ErrNotSupported].
//
// If this process has joined the arena already, by this name or another, Open returns a further opening
// of the same membership. Each opening is closed separately.
//
// Open waits while another process runs its OnFirst. If this process has no byte lock, and is
// stopped for more than 10 s while it joins, another process may take its slot away. Then Open
// returns an error, and the caller may open the arena again.
//
// If Open has created the arena and then fails, for example because OnFirst fails, the arena stays, unless it has
// [LifetimeEphemeral] and no participant is in.
func Open(name string, opts *Options) (*Arena, error) {
	a, err := arenakernel.Open(name, opts.kernel())
	return (*Arena)(a), err
}

// OpenContext is Open with a context. ctx bounds the wait for the OnFirst of another process. A nil ctx never ends.
func OpenContext(ctx context.Context, name string, opts *Options) (*Arena, error) {
	a, err := arenakernel.OpenContext(ctx, name, opts.kernel())
	return (*Arena)(a), err
}

// Create makes a new arena under /dev/shm, or at a path if name has a slash, and joins it. If the
// name is taken, the error Is [fs.ErrExist]. If Create has made the arena and then fails to join it, for example because
// OnFirst fails, the arena stays, unless it has [LifetimeEphemeral] and no participant is in. If the arena stays, the
// next Create finds the name taken.
func Create(name string, opts *Options) (*Arena, error) {
	a, err := arenakernel.Create(name, opts.kernel())
	return (*Arena)(a), err
}

// Attach joins an existing arena under /dev/shm, or at a path if name has a slash. If there is
// none, the error Is [fs.ErrNotExist].
func Attach(name string, opts *Options) (*Arena, error) {
	a, err := arenakernel.Attach(name, opts.kernel())
	return (*Arena)(a), err
}

// AttachContext is Attach with a context. ctx bounds the wait for the OnFirst of another process. A nil ctx never ends.
func AttachContext(ctx context.Context, name string, opts *Options) (*Arena, error) {
	a, err := arenakernel.AttachContext(ctx, name, opts.kernel())
	return (*Arena)(a), err
}

// Remove removes the file of the arena of that name under /dev/shm, or at a path if name has a slash.
// While participants are in the arena, the file stays, and the error Is [syscall.EBUSY] and names the
// participants. If there is no file, the error Is [fs.ErrNotExist]. If the file is no arena, the error
// Is [shmsync.ErrIncompatible]; [shm.Remove] removes any file.
//
// If byte locks do not work on the file, the error Is [shmsync.ErrNotSupported].
func Remove(name string) error { return arenakernel.Remove(name) }

// Format makes an arena in a segment that no other process can find yet. Call it in the init
// function of a constructor of package shm to create an arena at a path, or in a memfd:
//
//	seg, err := shm.CreateMemfd("jobs", size, func(s *shm.Segment) error { return arena.Format(s, nil) }, nil)
//	a, err := arena.FromSegment(seg, nil)
func Format(seg *shm.Segment, opts *Options) error {
	return arenakernel.Format(seg, opts.kernel())
}

// FromSegment joins the arena in seg. From then on the segment belongs to the arena, and is closed together with the
// arena. If this process has joined the arena already, or if FromSegment returns an error, FromSegment closes the
// segment at once. So the caller must not use the segment after the call.
func FromSegment(seg *shm.Segment, opts *Options) (*Arena, error) {
	a, err := arenakernel.FromSegment(seg, opts.kernel())
	return (*Arena)(a), err
}

// FromSegmentContext is FromSegment with a context. ctx bounds the wait for the OnFirst of another process. A nil ctx
// never ends.
func FromSegmentContext(ctx context.Context, seg *shm.Segment, opts *Options) (*Arena, error) {
	a, err := arenakernel.FromSegmentContext(ctx, seg, opts.kernel())
	return (*Arena)(a), err
}

// Close ends this opening of the arena. It first closes the handles that were opened through this opening: waits on
// these handles end with an error that Is [shmsync.ErrClosed]. A second Close of the same opening also returns such an
// error, and changes nothing.
//
// When the last opening of this process is closed, the process leaves the arena. Locks that the process still holds are
// then treated as if the process had died: other processes get ErrOwnerDead. Pointers into the arena become invalid. A
// program that uses such a pointer during or after Close is wrong, and may crash. If Close cannot remove the file of an
// arena with [LifetimeEphemeral], it returns the error of the removal. The process has left the arena nevertheless.
//
// Close returns when the waits on its handles have ended. It also waits while a call through this
// opening runs a function of the program, such as a Repair or the function of an Update. If such a
// function calls Close, Close panics and changes nothing, because it would wait for itself. If such a
// function waits for another goroutine that calls Close, Close does not detect this, and both wait
// for ever. After Close has begun, such a function may still unlock what it has locked, but its waits
// through this opening end, and it can open no more objects.
func (a *Arena) Close() error { return a.kernel().Close() }

// Segment returns the memory that the arena is in.
func (a *Arena) Segment() *shm.Segment { return a.kernel().Segment() }

// Path returns the path of the arena's file, for messages.
func (a *Arena) Path() string { return a.kernel().Path() }

// PathState says whether the path of an arena still leads to the arena's file.
type PathState string

// The states of the path of an arena. After the file at the path was removed or replaced, a process that opens the path
// joins another arena, or none. It does not meet the participants of this arena.
const (
	PathThere    PathState = "there"    // the path leads to the arena
	PathRemoved  PathState = "removed"  // no file is at the path
	PathReplaced PathState = "replaced" // another file is at the path
	PathNone     PathState = "none"     // no path is known: see [Arena.PathState]
)

// PathState reports whether the path of the arena still leads to the arena's file. After the file
// of an arena was removed, its participants can still use the arena, but no other process can join
// the arena by its path. [shm.Remove] removes the file on purpose. But systemd's RemoveIPC and clean-up
// jobs may remove the file by mistake, although it is in use. PathState makes two system calls.
// [Arena.Metrics] reports the state, too.
//
// The state is PathNone for an arena in a memfd, or if the arena was opened by a path that does not lead to its file.
// If this process has changed its root directory or its mount namespace, the path may lead elsewhere although the file
// was not removed. Then the state is PathNone, too.
func (a *Arena) PathState() PathState { return PathState(a.kernel().PathState()) }

// Size returns the size of the arena in bytes.
func (a *Arena) Size() int64 { return a.kernel().Size() }

// MaxParticipants returns how many processes can be in the arena at the same time.
func (a *Arena) MaxParticipants() int { return a.kernel().MaxParticipants() }

// Counted reports whether the arena's objects count their operations.
func (a *Arena) Counted() bool { return a.kernel().Counted() }
