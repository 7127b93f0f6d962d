//go:build linux

package arenatest

import (
	"errors"
	"os"
	"structs"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/race"
)

// sharesMappings reports whether the participants of Join share one mapping. The race detector knows
// memory by its address, so it finds a race between two participants only if they do.
const sharesMappings = race.Enabled

// mapping is the file of an arena in the memory of this process. Under the race detector it lies
// over an object of the Go heap: the detector does not look at other memory.
type mapping struct {
	bytes []byte
	heap  []byte // the object, and as much as it takes to find whole pages in it
}

func newMapping(f *os.File, size int64) (*mapping, error) {
	if !race.Enabled {
		b, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return nil, os.NewSyscallError("mmap", err)
		}
		return &mapping{bytes: b}, nil
	}
	page := os.Getpagesize()
	m := &mapping{heap: make([]byte, int(size)+page)}
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(m.heap)))) & (page - 1)
	m.bytes = m.heap[skip : skip+int(size) : skip+int(size)]
	return m, m.replace(int(f.Fd()), unix.MAP_SHARED)
}

// replace puts another mapping where this one is.
func (m *mapping) replace(fd, flags int) error {
	// SAFETY: the bytes are whole pages that this package has mapped, or an object of the Go heap
	// without pointers, which does not move and which m keeps. Go frees it when close has put
	// ordinary memory back.
	return os.NewSyscallError("mmap", remap(m.bytes, fd, flags))
}

// makePrivate cuts the mapping off from the file, with the bytes that it has: no store reaches the
// file any more, and no store to the file is seen here.
func (m *mapping) makePrivate(f *os.File) error {
	if err := m.replace(int(f.Fd()), unix.MAP_PRIVATE); err != nil {
		return err
	}
	page := os.Getpagesize()
	return eachExtent(f, int64(len(m.bytes)), func(from, to int64) {
		for at := int(from); at < int(to); at += page {
			// SAFETY: at is the begin of a page of the mapping. The addition changes no byte, but it
			// makes the kernel copy the page for this mapping. It is atomic, since a goroutine may
			// write there meanwhile.
			(*atomic.Uint64)(unsafe.Pointer(&m.bytes[at])).Add(0)
		}
	})
}

// eachExtent calls f for each part of a file that has memory.
func eachExtent(file *os.File, size int64, f func(from, to int64)) error {
	for at := int64(0); at < size; {
		from, err := unix.Seek(int(file.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil
		}
		if err != nil {
			return os.NewSyscallError("lseek", err)
		}
		to, err := unix.Seek(int(file.Fd()), from, unix.SEEK_HOLE)
		if err != nil {
			return os.NewSyscallError("lseek", err)
		}
		f(from, to)
		at = to
	}
	return nil
}

// retire gives the memory back and keeps the addresses: a goroutine that is on its way out of a
// call when the test ends may still use them.
func (m *mapping) retire() error {
	return m.replace(-1, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
}

// control is a page by which a tracer and the thread that it steps speak without the arena.
type control struct {
	_ structs.HostLayout
	// began and ended are 1 when the function begins, and when it is over.
	//   writers: the stepped thread
	//   readers: the tracer
	//   order:   relaxed; the tracer reads when the thread is stopped
	//   futex:   none
	//   crash:   of no importance
	began, ended atomic.Uint32
}

// openControl maps the page in f.
func openControl(f *os.File) (*control, error) {
	b, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	// SAFETY: the mapping is as long as a page and aligned to one, and stays until close.
	return (*control)(unsafe.Pointer(unsafe.SliceData(b))), nil
}

func (c *control) close() {
	// SAFETY: these are the bytes of openControl.
	unix.Munmap(unsafe.Slice((*byte)(unsafe.Pointer(c)), os.Getpagesize()))
}
