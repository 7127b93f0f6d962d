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

// sharesMappings reports whether the participants of Join share one mapping. The race detector
// identifies memory by its address, so it finds a race between two participants only if they share
// a mapping.
const sharesMappings = race.Enabled

// mapping is the file of an arena in the memory of this process. Under the race detector the file
// is mapped over an object of the Go heap, because the detector watches no other memory.
type mapping struct {
	bytes []byte
	heap  []byte // the object, with enough bytes to contain whole pages
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

// replace replaces this mapping by another one.
func (m *mapping) replace(fd, flags int) error {
	// SAFETY: the bytes are whole pages that this package has mapped, or an object of the Go heap
	// without pointers, which does not move and which m keeps. Go frees the object only after
	// retire has replaced the file by anonymous memory.
	return os.NewSyscallError("mmap", remap(m.bytes, fd, flags))
}

// makePrivate detaches the mapping from the file. The mapping keeps its bytes, but no store to it
// reaches the file any more, and no store to the file appears in it.
func (m *mapping) makePrivate(f *os.File) error {
	if err := m.replace(int(f.Fd()), unix.MAP_PRIVATE); err != nil {
		return err
	}
	page := os.Getpagesize()
	return eachExtent(f, int64(len(m.bytes)), func(from, to int64) {
		for at := int(from); at < int(to); at += page {
			// SAFETY: at is the start of a page of the mapping. The addition changes no byte, but
			// makes the kernel copy the page for this mapping. It is atomic because a goroutine may
			// write there meanwhile.
			(*atomic.Uint64)(unsafe.Pointer(&m.bytes[at])).Add(0)
		}
	})
}

// eachExtent calls f for each part of a file that is backed by memory.
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

// retire frees the memory and keeps the addresses mapped, because a goroutine that is returning
// from a call when the test ends may still use them.
func (m *mapping) retire() error {
	return m.replace(-1, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
}

// control is a page through which a tracer and the thread that it steps communicate without the
// arena.
type control struct {
	_ structs.HostLayout
	// The field began becomes 1 when the function begins. The field ended becomes 1 when the function has returned.
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
	// SAFETY: the mapping is one page, aligned to a page, and stays until close.
	return (*control)(unsafe.Pointer(unsafe.SliceData(b))), nil
}

func (c *control) close() {
	// SAFETY: openControl mapped these bytes.
	unix.Munmap(unsafe.Slice((*byte)(unsafe.Pointer(c)), os.Getpagesize()))
}
