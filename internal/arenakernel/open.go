package arenakernel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/shm"
)

var _ = crashpoint.Register("arena.remove.judged")

// attached contains the arenas that this process has joined, by the identity of their file. If the
// process joins one of these arenas again, it gets the same membership.
var attached struct {
	sync.Mutex
	arenas map[segmentID]*membership // guarded by: Mutex
}

type segmentID struct{ dev, ino uint64 }

// Open joins the arena of that name under /dev/shm, or at a path if name has a slash. If there is
// no such arena, Open creates it first. If several processes race to create it, one of them creates
// it and all of them join it. A nil opts means the defaults. If the arena exists and opts sets
// another Size or MaxParticipants than the arena has, the error Is [shmsync.ErrIncompatible].
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
// Open waits while another process runs its function Options.OnFirst.
//
// If Open has created the arena and then fails, for example because OnFirst fails, the arena stays, unless it has
// [LifetimeEphemeral] and no participant is in.
func Open(name string, opts *Options) (*Arena, error) {
	return OpenContext(context.Background(), name, opts)
}

// OpenContext is Open with a context. The end of ctx ends the wait for the OnFirst of another
// process.
func OpenContext(ctx context.Context, name string, opts *Options) (*Arena, error) {
	o := opts.orDefault()
	if err := o.check("arena.open", name); err != nil {
		return nil, err
	}
	return enterNamed(ctx, "arena.open", name, opts, func() (*shm.Segment, bool, error) {
		if isPath(name) {
			return shm.OpenOrCreateAt(name, o.size(), o.format, o.segment())
		}
		return shm.OpenOrCreate(name, o.size(), o.format, o.segment())
	})
}

// Create makes a new arena under /dev/shm, or at a path if name has a slash, and joins it. If the
// name is taken, the error Is [fs.ErrExist].
//
// Create may make the arena and then fail to join it, for example because OnFirst fails. Then the arena stays, and the
// next Create finds the name taken. An arena with [LifetimeEphemeral] stays only if a participant is in.
func Create(name string, opts *Options) (*Arena, error) {
	o := opts.orDefault()
	if err := o.check("arena.create", name); err != nil {
		return nil, err
	}
	o.Recreate = 0
	return enterNamed(context.Background(), "arena.create", name, &o, func() (seg *shm.Segment, _ bool, err error) {
		if isPath(name) {
			seg, err = shm.CreateAt(name, o.size(), o.format, o.segment())
		} else {
			seg, err = shm.Create(name, o.size(), o.format, o.segment())
		}
		return seg, true, err
	})
}

// Attach joins an existing arena under /dev/shm, or at a path if name has a slash. If there is
// none, the error Is [fs.ErrNotExist].
func Attach(name string, opts *Options) (*Arena, error) {
	return AttachContext(context.Background(), name, opts)
}

// AttachContext is Attach with a context. The end of ctx ends the wait for the OnFirst of another
// process.
func AttachContext(ctx context.Context, name string, opts *Options) (*Arena, error) {
	o := opts.orDefault()
	if err := checkPlatform("arena.attach", name); err != nil {
		return nil, err
	}
	return enterNamed(ctx, "arena.attach", name, opts, func() (seg *shm.Segment, _ bool, err error) {
		if isPath(name) {
			seg, err = shm.OpenAt(name, o.segment())
		} else {
			seg, err = shm.Open(name, o.segment())
		}
		return seg, false, err
	})
}

// isPath reports whether the name of an arena is the path of a file.
func isPath(name string) bool { return strings.Contains(name, "/") }

// maxMoves limits how often an opener starts over because the name leads to another file.
const maxMoves = 1000

// enterNamed joins the arena in the segment that the function find returns. It starts over if the
// name leads to another file after the join, or if the arena was replaced.
func enterNamed(ctx context.Context, op, name string, opts *Options, find func() (*shm.Segment, bool, error)) (*Arena, error) {
	if ctx == nil {
		ctx = context.Background() // as in every call of the API that takes a context
	}
	for range maxMoves {
		a, again, err := tryEnter(ctx, name, opts, find)
		if !again {
			return a, err
		}
		if err := ctx.Err(); err != nil {
			return nil, &shmsync.Error{Op: op, Object: name, Err: err, Detail: "the name leads to another file each time"}
		}
	}
	return nil, &shmsync.Error{Op: op, Object: name, Err: shmsync.ErrIncompatible,
		Detail: "the arena was removed, but the name still leads to it, or leads to another file each time"}
}

// tryEnter joins the arena in the segment that the function find returns. If the result again is true, the caller
// starts over: the name leads to another file, or tryEnter has removed an arena that Recreate allows to replace.
func tryEnter(ctx context.Context, name string, opts *Options, find func() (*shm.Segment, bool, error)) (_ *Arena, again bool, _ error) {
	o := opts.orDefault()
	watcher := startFirstWatcherThread()
	defer watcher.dismiss() // deferred, like judged.Close below, so that it also runs if OnFirst panics
	seg, created, err := find()
	if err != nil {
		return nil, errors.Is(err, errMoved), err
	}
	if created {
		sweepRemoved(seg.Name())
	}
	var judged *os.File
	if o.Recreate != 0 && !created {
		// While this process has the file open, no other file can get its inode number.
		judged, err = seg.Reopen()
		if err != nil && !errors.Is(err, shmsync.ErrNotSupported) {
			seg.Close()
			return nil, errors.Is(err, errMoved), err
		}
		defer judged.Close()
	}
	a, joined, err := join(ctx, seg, opts, created, name, watcher)
	if err == nil {
		return a, false, nil
	}
	again = errors.Is(err, errMoved)
	if !again && !joined && judged != nil && o.mayReplace(err) {
		crashpoint.Hit("arena.remove.judged")
		info, gone := judged.Stat()
		if gone == nil {
			gone = removeUnused(name, info, nil)
		}
		if again = gone == nil || errors.Is(gone, fs.ErrNotExist); !again {
			err = errors.Join(err, gone)
		}
	}
	return nil, again, err
}

// mayReplace reports whether the options allow a new arena to replace the existing arena, which
// could not be opened because of err.
func (o *Options) mayReplace(err error) bool {
	return o.Recreate&RecreateIncompatible != 0 && errors.Is(err, errOtherArena) ||
		o.Recreate&RecreateCorrupt != 0 && errors.Is(err, shmsync.ErrCorrupt)
}

// Format makes an arena in a segment that no other process can find yet. Call it in the init
// function of a constructor of package shm to create an arena at a path, or in a memfd:
//
//	seg, err := shm.CreateMemfd("jobs", size, func(s *shm.Segment) error { return arena.Format(s, nil) }, nil)
//	a, err := arena.FromSegment(seg, nil)
func Format(seg *shm.Segment, opts *Options) error {
	o := opts.orDefault()
	if err := o.check("arena.format", seg.Name()); err != nil {
		return err
	}
	return o.format(seg)
}

// FromSegment joins the arena in seg. From then on the segment belongs to the arena, and is closed
// together with the arena. If FromSegment returns an error, it has closed the segment.
func FromSegment(seg *shm.Segment, opts *Options) (*Arena, error) {
	return FromSegmentContext(context.Background(), seg, opts)
}

// FromSegmentContext is FromSegment with a context. The end of ctx ends the wait for the OnFirst of
// another process.
func FromSegmentContext(ctx context.Context, seg *shm.Segment, opts *Options) (*Arena, error) {
	if ctx == nil {
		ctx = context.Background() // as in every call of the API that takes a context
	}
	if err := checkPlatform("arena.from_segment", seg.Name()); err != nil {
		seg.Close()
		return nil, err
	}
	name := seg.Name()
	a, _, err := join(ctx, seg, opts, false, "", nil)
	if errors.Is(err, errMoved) {
		err = &shmsync.Error{Op: "arena.from_segment", Object: name, Err: shmsync.ErrIncompatible, Detail: "the arena was removed"}
	}
	return a, err
}

func (o *Options) check(op, name string) error {
	if err := checkPlatform(op, name); err != nil {
		return err
	}
	if o.MaxParticipants < 0 || o.MaxParticipants > MaxSlots {
		return &shmsync.Error{Op: op, Object: name, Err: shmsync.ErrIncompatible,
			Detail: fmt.Sprintf("MaxParticipants is %d, which is not within 1..%d", o.MaxParticipants, MaxSlots)}
	}
	if o.Size < 0 || o.Size > 1<<47 {
		return &shmsync.Error{Op: op, Object: name, Err: shmsync.ErrIncompatible,
			Detail: fmt.Sprintf("Size is %d, which is not within 0..2^47", o.Size)}
	}
	return nil
}

func (o *Options) size() int64 { return int64(alignUp(uint64(o.Size), chunkSize)) }

func (o *Options) format(seg *shm.Segment) error { return format(seg, o.MaxParticipants, o.Counted) }

// join makes this process a participant of the arena in seg. The parameter name is the name by which seg was
// found, or "". The parameter watcher may be nil. The second result is true if the segment contains the arena
// that was asked for, even if join also returns an error, for example an error of OnFirst.
func join(ctx context.Context, seg *shm.Segment, opts *Options, created bool, name string, watcher *watcherThread) (_ *Arena, joined bool, _ error) {
	dev, ino := seg.ID()
	id := segmentID{dev, ino}
	o := opts.orDefault()
	attached.Lock()
	for m := attached.arenas[id]; m != nil; m = attached.arenas[id] {
		if m.opening {
			attached.Unlock()
			if h := m.hook.Load(); h != 0 && h == goroutineID() {
				seg.Close()
				return nil, false, m.fail("arena.open", errDeadlock,
					"its OnFirst opens it, and would wait for itself: use the Arena that OnFirst gets")
			}
			select {
			case <-m.opened:
			case <-ctx.Done():
				seg.Close()
				return nil, false, m.fail("arena.open", ctx.Err(), "another goroutine opens the arena")
			}
			attached.Lock()
			continue
		}
		if err := m.compare(opts, created); err != nil {
			attached.Unlock()
			seg.Close()
			return nil, false, err
		}
		m.opens++
		attached.Unlock()
		m.widen(o.KernelIO)
		a := &Arena{membership: m}
		a.keep(&o, nil)
		seg.Close() // the arena uses the segment of the first opening; an error here would not concern the caller
		return a, true, nil
	}
	fresh := created && o.Lifetime == LifetimeEphemeral
	a, err := newMember(seg, seg.Bytes(), opts, created, watcher)
	if err != nil {
		attached.Unlock()
		if info, failed := seg.File().Stat(); fresh && failed == nil {
			removeUnused(name, info, seg) // if this fails, the next epoch replaces the arena
		}
		seg.Close()
		return nil, false, err
	}
	a.home = workingDirOf(name)
	a.opens = 1
	a.opening, a.opened = true, make(chan struct{})
	if attached.arenas == nil {
		attached.arenas = map[segmentID]*membership{}
	}
	attached.arenas[id] = a.membership
	attached.Unlock()
	// The first Arena value is for the library itself, which uses it for work on behalf of all
	// openings. The caller gets a second Arena value.
	a = &Arena{membership: a.membership}
	admitted := false
	defer func() { // deferred so that it also runs if OnFirst panics
		if !admitted {
			a.ephemeral.Store(fresh)
			a.Close()
		}
		attached.Lock()
		a.opening = false
		attached.Unlock()
		close(a.opened)
	}()
	if err := a.admit(ctx, &o, name != ""); err != nil {
		return nil, true, err
	}
	admitted = true
	a.keep(&o, a.firstHook)
	return a, true, nil
}

// keep carries out the options o of an opening: it notes LifetimeEphemeral, watches the path for OnDetached,
// and starts the calls of OnEvent. The parameter h is a hook that was made before the join and may have collected
// events, or nil. If h is nil, keep makes a hook if the options need one.
func (a *Arena) keep(o *Options, h *eventHook) {
	if o.Lifetime == LifetimeEphemeral {
		a.ephemeral.Store(true)
	}
	if o.OnDetached != nil {
		a.watchName(o.OnDetached)
	}
	if o.OnEvent != nil {
		if h == nil {
			h = a.events.hook(o.OnEvent)
		}
		a.keepTelling(h)
	}
}

// compare returns an error if opts.KernelIO is invalid. It also returns an error if the arena
// existed before and does not have what opts asks for.
func (a *membership) compare(opts *Options, created bool) error {
	if opts != nil && opts.KernelIO > KernelIONone {
		return a.fail("arena.open", shmsync.ErrIncompatible, fmt.Sprintf("KernelIO is %d, which is none of its values", opts.KernelIO))
	}
	if opts == nil || created {
		return nil
	}
	bad := func(what string, asked, is uint64) error {
		return otherArena(a.fail("arena.open", shmsync.ErrIncompatible, fmt.Sprintf("%s is %d, asked for %d", what, is, asked)))
	}
	if n := opts.MaxParticipants; n != 0 && n != a.geo.slots {
		return bad("MaxParticipants", uint64(n), uint64(a.geo.slots))
	}
	if opts.Size != 0 && uint64(opts.size()) != a.geo.size {
		return bad("Size", uint64(opts.size()), a.geo.size)
	}
	if opts.Recreate&RecreateIncompatible != 0 && opts.Counted && !a.geo.counted {
		return otherArena(a.fail("arena.open", shmsync.ErrIncompatible, "it does not count operations, and Counted is asked for"))
	}
	return nil
}

// newMember makes a participant and enters it into the arena. The parameter bytes is a mapping of the file of
// seg, on which the participant works.
func newMember(seg *shm.Segment, bytes []byte, opts *Options, created bool, watcher *watcherThread) (*Arena, error) {
	if watcher == nil {
		watcher = startWatcherThread()
		defer watcher.dismiss()
	}
	header := make([]byte, headerSize)
	n, err := seg.File().ReadAt(header, 0)
	if err != nil && err != io.EOF {
		return nil, &shmsync.Error{Op: "arena.open", Object: seg.Name(), Err: err}
	}
	geo, err := validate(header[:n], uint64(seg.Size()), seg.Name())
	if err != nil {
		return nil, err
	}
	info, err := seg.File().Stat()
	if err != nil {
		return nil, &shmsync.Error{Op: "arena.open", Object: seg.Name(), Err: err}
	}
	dev, ino := seg.ID()
	a := &Arena{membership: &membership{
		seg: seg, id: segmentID{dev, ino}, info: info, origin: originNow(), onDisk: outlivesBoot(seg.File()), reaps: map[int]*reapProgress{},
		live: newMeeting(), repaired: newMeeting(), watcherEnded: newMeeting(),
	}}
	a.memory = newMemory(bytes)
	a.geo = geo
	a.label = seg.Name()
	a.current, a.gone = a.isCurrent, a.Gone
	a.asked = make([]atomic.Int64, geo.slots+1)
	a.reserve = func(off, n uint64) error { return seg.Reserve(int64(off), int64(n)) }
	a.discard = a.discardOf(seg)
	if err := a.compare(opts, created); err != nil {
		return nil, err
	}
	if err := a.restoreReservations(); err != nil {
		return nil, err
	}
	o := opts.orDefault()
	if o.Label == "" {
		o.Label = filepath.Base(os.Args[0])
	}
	a.caps |= o.KernelIO.caps()
	if o.OnEvent != nil {
		a.firstHook = a.events.hook(o.OnEvent) // made before enter, because repairs in enter cause events
	}
	if err := a.enter(o.Label, watcher); err != nil {
		return nil, err
	}
	return a, nil
}
