package arenakernel

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/shm"
)

// attached are the arenas that this process has joined, by identity of their
// file: joining one again gives the same membership.
var attached struct {
	sync.Mutex
	arenas map[segmentID]*membership // guarded by: Mutex
}

type segmentID struct{ dev, ino uint64 }

// Open joins the arena of that name under /dev/shm and creates it first if there is none.
// If several processes race to create it, one of them does, and all join the same arena. A
// nil opts means the defaults. If the arena exists, Size and MaxParticipants that are set
// are compared with those of the arena, and a difference is an error that Is
// [shmsync.ErrIncompatible].
//
// A file that is no arena, or one of another layout, is ErrIncompatible or
// ErrCorrupt and is left as it was. No free slot is ErrNoSpace. In a program for
// a 32-bit or big-endian machine, and on another system than Linux, every call
// that joins an arena is an error that Is [shmsync.ErrNotSupported].
//
// Joining the same arena again in one process, by whatever name, gives another
// opening of the same membership, which is closed separately.
func Open(name string, opts *Options) (*Arena, error) {
	o := opts.orDefault()
	if err := o.check("arena.open", name); err != nil {
		return nil, err
	}
	watcher := startFirstWatcherThread()
	defer watcher.dismiss()
	seg, created, err := shm.OpenOrCreate(name, o.size(), o.format, o.segment())
	if err != nil {
		return nil, err
	}
	return join(seg, opts, created, watcher)
}

// Create makes a new arena under /dev/shm and joins it. Where the name is
// taken the error Is [fs.ErrExist].
func Create(name string, opts *Options) (*Arena, error) {
	o := opts.orDefault()
	if err := o.check("arena.create", name); err != nil {
		return nil, err
	}
	watcher := startFirstWatcherThread()
	defer watcher.dismiss()
	seg, err := shm.Create(name, o.size(), o.format, o.segment())
	if err != nil {
		return nil, err
	}
	return join(seg, opts, true, watcher)
}

// Attach joins an existing arena under /dev/shm. Where there is none the error
// Is [fs.ErrNotExist].
func Attach(name string, opts *Options) (*Arena, error) {
	o := opts.orDefault()
	if err := checkPlatform("arena.attach", name); err != nil {
		return nil, err
	}
	watcher := startFirstWatcherThread()
	defer watcher.dismiss()
	seg, err := shm.Open(name, o.segment())
	if err != nil {
		return nil, err
	}
	return join(seg, opts, false, watcher)
}

// Format makes an arena of a segment that no other process has yet. Call it in the init
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

// FromSegment joins the arena that is in a segment. The segment belongs to the
// arena from then on, also when an error is returned, and is closed with it.
func FromSegment(seg *shm.Segment, opts *Options) (*Arena, error) {
	if err := checkPlatform("arena.from_segment", seg.Name()); err != nil {
		seg.Close()
		return nil, err
	}
	return join(seg, opts, false, nil)
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

// join makes this process a participant of the arena in seg. watcher may be nil.
func join(seg *shm.Segment, opts *Options, created bool, watcher *watcherThread) (*Arena, error) {
	dev, ino := seg.ID()
	id := segmentID{dev, ino}
	attached.Lock()
	defer attached.Unlock()
	if a := attached.arenas[id]; a != nil {
		if err := a.compare(opts, created); err != nil {
			seg.Close()
			return nil, err
		}
		a.opens++
		a.widen(opts.orDefault().KernelIO)
		return &Arena{membership: a}, seg.Close()
	}
	a, err := newMember(seg, opts, created, watcher)
	if err != nil {
		seg.Close()
		return nil, err
	}
	a.opens = 1
	if attached.arenas == nil {
		attached.arenas = map[segmentID]*membership{}
	}
	attached.arenas[id] = a.membership
	// The first is the library's own, for what this process does for all openings.
	return &Arena{membership: a.membership}, nil
}

// compare checks the options that were set against an arena that exists.
func (a *membership) compare(opts *Options, created bool) error {
	if opts != nil && opts.KernelIO > KernelIONone {
		return a.fail("arena.open", shmsync.ErrIncompatible, fmt.Sprintf("KernelIO is %d, which is none of its values", opts.KernelIO))
	}
	if opts == nil || created {
		return nil
	}
	bad := func(what string, asked, is uint64) error {
		return a.fail("arena.open", shmsync.ErrIncompatible, fmt.Sprintf("%s is %d, asked for %d", what, is, asked))
	}
	if n := opts.MaxParticipants; n != 0 && n != a.geo.slots {
		return bad("MaxParticipants", uint64(n), uint64(a.geo.slots))
	}
	if opts.Size != 0 && uint64(opts.size()) != a.geo.size {
		return bad("Size", uint64(opts.size()), a.geo.size)
	}
	return nil
}

func newMember(seg *shm.Segment, opts *Options, created bool, watcher *watcherThread) (*Arena, error) {
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
	dev, ino := seg.ID()
	a := &Arena{membership: &membership{
		seg: seg, id: segmentID{dev, ino}, reaps: map[int]*reapProgress{},
		live: newMeeting(), repaired: newMeeting(), watcherEnded: newMeeting(),
	}}
	a.memory = newMemory(seg.Bytes())
	a.geo = geo
	a.label = seg.Name()
	a.current, a.gone = a.isCurrent, a.Gone
	a.asked = make([]atomic.Int64, geo.slots+1)
	a.reserve = func(off, n uint64) error { return seg.Reserve(int64(off), int64(n)) }
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
	if err := a.enter(o.Label, watcher); err != nil {
		return nil, err
	}
	return a, nil
}
