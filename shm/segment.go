package shm

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Segment is a mapped segment. Its methods may be called concurrently.
//
// A Segment that is no longer referenced is not unmapped: call Close.
type Segment struct {
	name     string
	path     string // the name, if it is a path of the file; otherwise ""
	file     *os.File
	mem      []byte
	dev, ino uint64
	pageSize int64 // size of the pages behind the mapping
	canPlace bool  // the filesystem stores NUMA policies
	advised  bool  // madvise has asked for transparent huge pages

	closed atomic.Bool
	keep   atomic.Int64 // how long the addresses stay mapped after Close, in nanoseconds; see Retire
	// refs is the number of operations in progress, plus 1 until Close. The goroutine that decrements refs to 0 unmaps
	// the segment.
	refs atomic.Int64

	mu         sync.Mutex
	placements []Placement // guarded by: mu
	degraded   []error     // guarded by: mu
}

// Bytes returns the mapped bytes, or nil after Close. Every process that has
// the segment mapped reads and writes the same bytes. The slice must not be
// used after Close.
func (s *Segment) Bytes() []byte {
	if s.closed.Load() {
		return nil
	}
	return s.mem
}

// Size returns the size of the segment in bytes, a multiple of the page size.
func (s *Segment) Size() int64 { return int64(len(s.mem)) }

// Name returns the name that error messages show. This is the absolute path of the segment, or "memfd:" and the
// label, or the name of the file that was passed to [FromFile]. If the name of that file is a relative path that has
// a slash and leads to the file, Name returns the absolute path.
func (s *Segment) Name() string { return s.name }

// Path returns the path by which the segment was made or opened, or "" if it has none: a memfd has no path. The name
// of a file that was passed to [FromFile] is a path if it has a slash and led to the file at the time of that call. The
// path is absolute unless the kernel did not know the working directory.
func (s *Segment) Path() string { return s.path }

// File returns the open file of the segment, so that it can be passed to another process. The file
// belongs to the segment, and is closed with it.
func (s *Segment) File() *os.File { return s.file }

// ID returns the device and inode number of the segment. Two segments with the same ID are the same memory, even if
// different processes of this system have opened them.
func (s *Segment) ID() (dev, ino uint64) { return s.dev, s.ino }

// Close unmaps the segment and closes its file. It does not affect other mappings of the segment. Close
// does not wait for operations that are in progress in other goroutines. These end normally, and the
// last of them unmaps the segment. The caller must not use slices from Bytes any more. A second Close
// does nothing.
func (s *Segment) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	return s.release()
}

// Retire is Close for a program in which calls of other goroutines still use a slice from Bytes, and end soon. For
// the time d these goroutines can still read and write the slice, but it is private memory now, zero at first: no
// other process sees what they write. After that, the memory is unmapped. If the kernel refuses the private memory,
// or if addresses have 32 bits and are scarce, Retire does the same as Close. If the kernel has the memory but fails
// to move it to the addresses of the segment, nothing unmaps these addresses, because other code may have got them.
func (s *Segment) Retire(d time.Duration) error {
	if strconv.IntSize > 32 {
		s.keep.CompareAndSwap(0, int64(d))
	}
	return s.Close()
}

// acquire keeps the segment mapped until release. It returns an error after Close.
func (s *Segment) acquire(op string) error {
	for !s.closed.Load() {
		// If the CAS fails, another goroutine has changed refs, so the loop is lock-free.
		if n := s.refs.Load(); n > 0 && s.refs.CompareAndSwap(n, n+1) {
			return nil
		}
	}
	return &opError{op: op, name: s.name, kind: ErrClosed}
}

func (s *Segment) release() error {
	if s.refs.Add(-1) != 0 {
		return nil
	}
	var err error
	kept := false
	if d := time.Duration(s.keep.Load()); d > 0 {
		mem := s.mem
		lost, failed := replace(mem)
		if failed == nil {
			time.AfterFunc(d, func() { unmap(mem) })
		}
		kept = lost || failed == nil
	}
	if !kept {
		err = unmap(s.mem)
	}
	if cerr := s.closeFile(); err == nil {
		err = cerr
	}
	if err != nil {
		return &opError{op: "close", name: s.name, err: err}
	}
	return nil
}

// Reserve allocates memory for the n bytes from offset off, so that a write to them cannot fail for
// lack of space. The bytes do not change, and a second call for the same bytes allocates nothing. If
// there is not enough room, the error matches [ErrNoSpace] and the errno, and part of the range may
// have been reserved.
func (s *Segment) Reserve(off, n int64) error {
	if err := s.acquire("reserve"); err != nil {
		return err
	}
	defer s.release()
	if err := s.checkRange("reserve", off, n); err != nil {
		return err
	}
	if n == 0 {
		return nil
	}
	return s.reserve(off, n)
}

// Discard gives the memory of the n bytes from offset off back to the filesystem, as far as it consists of whole
// pages. All n bytes become 0. A later write to them can fail for lack of space, unless they are reserved again. If
// the filesystem cannot free a part of a file, the bytes stay, and the error Is [ErrNotSupported].
func (s *Segment) Discard(off, n int64) error {
	if err := s.acquire("discard"); err != nil {
		return err
	}
	defer s.release()
	if err := s.checkRange("discard", off, n); err != nil {
		return err
	}
	if n == 0 {
		return nil
	}
	return s.discard(off, n)
}

// Reopen opens the file of the segment again. The result refers to the same bytes, but has an open
// file description of its own. OFD locks and flock locks belong to an open file description. So
// locks that are taken through the result belong to this caller alone, even if the descriptor of
// the segment was inherited. Reopen needs /proc, and permission on the file. Without them the error
// Is [ErrNotSupported]. Any other error may be temporary, for example if the process has too many
// open files.
func (s *Segment) Reopen() (*os.File, error) {
	if err := s.acquire("reopen"); err != nil {
		return nil, err
	}
	defer s.release()
	return s.reopen()
}

// Degraded returns an error for each property that the options asked for and that the system refused,
// although the segment works without it. Such properties are transparent huge pages and NUMA placement.
func (s *Segment) Degraded() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.degraded)
}

// String returns the name, the size and the placement of the segment.
func (s *Segment) String() string {
	str := fmt.Sprintf("%s, %d bytes", s.name, s.Size())
	for _, pl := range s.Placement() {
		str += "; " + pl.String()
	}
	return str
}

// checkRange returns an error unless the n bytes from off lie in the segment.
func (s *Segment) checkRange(op string, off, n int64) error {
	if off < 0 || n < 0 || off > s.Size() || n > s.Size()-off {
		return &opError{op: op, name: s.name, why: fmt.Sprintf("%d bytes at %d are not within its %d bytes", n, off, s.Size()), err: syscall.EINVAL}
	}
	return nil
}
