package shm

import (
	"errors"
	"io/fs"
	"iter"
	"os"
	"syscall"
	"time"
)

// Create makes the segment /dev/shm/name of size bytes, rounded up to whole
// pages. The new bytes are zero; init, if it is not nil, fills them in before
// any other process can find the segment, and reserves what it writes
// ([Segment.Reserve]). init keeps no reference to its argument. It may be
// called again, on another fresh segment, where the first cannot be published
// on this system. The segment is published if and only if init returns nil.
//
// If the name is taken, whatever by, the error matches [fs.ErrExist] and init
// may or may not have been called.
func Create(name string, size int64, init func(*Segment) error, opts *Options) (*Segment, error) {
	path, err := namedPath(name)
	if err != nil {
		return nil, err
	}
	return CreateAt(path, size, init, opts)
}

// Open maps the segment /dev/shm/name. If there is none, the error matches
// [fs.ErrNotExist]. A symbolic link, anything else but a regular file, and a
// file whose size is not a positive multiple of the page size give
// [ErrIncompatible]; an owner that is not trusted gives [fs.ErrPermission].
func Open(name string, opts *Options) (*Segment, error) {
	path, err := namedPath(name)
	if err != nil {
		return nil, err
	}
	return OpenAt(path, opts)
}

// OpenOrCreate opens the segment /dev/shm/name, or creates it as [Create] does. If processes
// race, one creates it, and the others open that one; created reports which. A segment that is
// opened keeps the size that it was created with.
func OpenOrCreate(name string, size int64, init func(*Segment) error, opts *Options) (seg *Segment, created bool, err error) {
	path, err := namedPath(name)
	if err != nil {
		return nil, false, err
	}
	return OpenOrCreateAt(path, size, init, opts)
}

// CreateAt is [Create] for a file at path. Processes share what it holds
// wherever the file is; NUMA placement needs tmpfs.
func CreateAt(path string, size int64, init func(*Segment) error, opts *Options) (*Segment, error) {
	return createAt(path, size, init, opts)
}

// OpenAt is [Open] for a file at path. Symbolic links are followed in all but
// the last element of path.
func OpenAt(path string, opts *Options) (*Segment, error) {
	return openAt(path, opts)
}

// openOrCreateRounds bounds OpenOrCreate. A round is lost only when the name
// appears and disappears between two system calls.
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

// CreateMemfd makes a segment without a name, and runs init on it as [Create]
// does. Other processes get at it by its descriptor ([Segment.File]), which
// they inherit or are sent, and [FromFile]. The label is for display, in
// error messages and /proc; it need not be unique.
//
// The memfd is sealed: nobody can change its size or its seals.
func CreateMemfd(label string, size int64, init func(*Segment) error, opts *Options) (*Segment, error) {
	return createMemfd(label, size, init, opts)
}

// FromFile maps the segment that f refers to: a memfd, or a file of any
// filesystem, open for reading and writing. It checks the file as [Open] does.
//
// f remains the caller's, which may close it at once: the segment holds a duplicate of its
// descriptor. The duplicate shares the open file description of f, and so the locks that
// belong to that; see [Segment.Reopen].
func FromFile(f *os.File, opts *Options) (*Segment, error) {
	if f == nil {
		return nil, &opError{op: "open", name: "nil file", err: syscall.EINVAL}
	}
	return fromFile(f, opts)
}

// Remove removes the name of the segment /dev/shm/name. Processes that have
// the segment mapped keep it; its memory is freed when the last one closes it
// or dies. If there is no such name the error matches [fs.ErrNotExist]. For a
// segment at a path of one's own, use [os.Remove].
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
	Size    int64       // in bytes; the space in use may be less
	Mode    fs.FileMode // permission bits
	UID     uint32      // the owner
	ModTime time.Time   // last change through a system call; stores through a mapping may not count
}

// List returns the files in /dev/shm that could be segments, in no particular
// order: regular files with a valid name and the size of a segment. Their
// content is not looked at. An entry that cannot be examined is yielded with
// its name and an error, and the iteration goes on; an error with no name ends
// it.
func List() iter.Seq2[Info, error] { return list(Dir) }
