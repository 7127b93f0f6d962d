package shm

import (
	"errors"
	"io/fs"
	"iter"
	"os"
	"syscall"
	"time"
)

// Create makes the segment /dev/shm/name of size bytes, rounded up to whole pages. The new bytes are
// zero. If init is not nil, it fills them in before any other process can find the segment. init
// reserves the bytes that it writes ([Segment.Reserve]), and keeps no reference to its argument. Create
// may call init a second time, on another new segment, if this system cannot publish the first segment.
// The segment is published if and only if init returns nil.
//
// If the name is taken, by a segment or by anything else, the error matches [fs.ErrExist]. init may
// have been called in this case, too.
func Create(name string, size int64, init func(*Segment) error, opts *Options) (*Segment, error) {
	path, err := namedPath(name)
	if err != nil {
		return nil, err
	}
	return CreateAt(path, size, init, opts)
}

// Open maps the segment /dev/shm/name. If there is none, the error matches [fs.ErrNotExist]. If the
// file is a symbolic link or not a regular file, or if its size is not a positive multiple of the page
// size, the error matches [ErrIncompatible]. If the owner of the file is not trusted, the error matches
// [fs.ErrPermission].
func Open(name string, opts *Options) (*Segment, error) {
	path, err := namedPath(name)
	if err != nil {
		return nil, err
	}
	return OpenAt(path, opts)
}

// OpenOrCreate opens the segment /dev/shm/name, or creates it as [Create] does. If several processes
// race, one of them creates the segment, and the others open it. created reports whether this call
// created it. A segment that exists keeps its size.
func OpenOrCreate(name string, size int64, init func(*Segment) error, opts *Options) (seg *Segment, created bool, err error) {
	path, err := namedPath(name)
	if err != nil {
		return nil, false, err
	}
	return OpenOrCreateAt(path, size, init, opts)
}

// CreateAt is [Create] for a file at path. Processes can share the segment on any filesystem, but
// NUMA placement needs tmpfs.
func CreateAt(path string, size int64, init func(*Segment) error, opts *Options) (*Segment, error) {
	return createAt(path, size, init, opts)
}

// OpenAt is [Open] for a file at path. The last element of path must not be a symbolic link. Links in
// the other elements are followed.
func OpenAt(path string, opts *Options) (*Segment, error) {
	return openAt(path, opts)
}

// openOrCreateRounds limits the loop of OpenOrCreateAt. An iteration fails only if the name appears and
// disappears between two system calls.
const openOrCreateRounds = 100

// OpenOrCreateAt is [OpenOrCreate] for a file at path.
func OpenOrCreateAt(path string, size int64, init func(*Segment) error, opts *Options) (seg *Segment, created bool, err error) {
	for range openOrCreateRounds {
		seg, err = openAt(path, opts)
		if !errors.Is(err, fs.ErrNotExist) {
			return seg, false, err
		}
		seg, err = createAt(path, size, init, opts)
		if !errors.Is(err, fs.ErrExist) {
			return seg, err == nil, err
		}
	}
	return nil, false, &opError{op: "open or create", name: path, why: "the file keeps appearing and disappearing", err: eAGAIN}
}

// CreateMemfd makes a segment without a name, and runs init on it as [Create] does. Other processes
// inherit its descriptor ([Segment.File]), or are sent it, and call [FromFile]. Error messages and
// /proc show the label, which need not be unique.
//
// The memfd is sealed: no process can change its size or its seals.
func CreateMemfd(label string, size int64, init func(*Segment) error, opts *Options) (*Segment, error) {
	return createMemfd(label, size, init, opts)
}

// FromFile maps the segment that f refers to. f is a memfd, or a file of any filesystem, open for reading and writing.
// FromFile checks the file as [Open] does. The name of f need not be a path of the file, for example in os.NewFile(3,
// "fd/3"). Then the segment has no path ([Segment.Path]).
//
// The caller keeps f and may close it at once, because the segment has a duplicate of its descriptor.
// The duplicate shares the open file description of f, and therefore the locks that belong to that
// description; see [Segment.Reopen].
func FromFile(f *os.File, opts *Options) (*Segment, error) {
	if f == nil {
		return nil, &opError{op: "open", name: "nil file", err: syscall.EINVAL}
	}
	return fromFile(f, opts)
}

// Remove removes the name of the segment /dev/shm/name. Processes that have the segment mapped can
// still use it. Its memory is freed when the last of them closes the segment or dies. If there is no
// such name, the error matches [fs.ErrNotExist]. Use [os.Remove] for a segment at another path.
func Remove(name string) error {
	path, err := namedPath(name)
	if err != nil {
		return err
	}
	return remove(path)
}

// Info describes a file in /dev/shm that could be a segment.
type Info struct {
	Name    string      // without the directory
	Size    int64       // in bytes; the file may be sparse and use less memory
	Mode    fs.FileMode // permission bits
	UID     uint32      // the owner
	ModTime time.Time   // last change by a system call; stores through a mapping may not count
}

// List returns the files in /dev/shm that could be segments, in no particular order: regular files with
// a valid name and the size of a segment. It does not read their contents. For a file that cannot be
// examined, it yields the name and an error, and continues. An error without a name ends the iteration.
func List() iter.Seq2[Info, error] { return list(Dir) }
