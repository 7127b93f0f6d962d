//go:build linux

package control

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/shm"
)

// segmentPattern is the pattern for the names of temporary files. A file has its name only until NewFileIn or
// NewSegmentIn removes the name.
const segmentPattern = "shmbench-*"

// NewFileIn creates a file in a directory and removes its name, so that only its descriptor refers to it.
func NewFileIn(dir string, size int64) (*os.File, error) {
	f, err := os.CreateTemp(dir, segmentPattern)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.Remove(f.Name()), f.Truncate(size)); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// NewSegmentIn creates a segment, that is, a file of shared memory, in a directory. It removes the name of the file, so
// that only its descriptor refers to it.
func NewSegmentIn(dir string, size int64, format func(*shm.Segment) error) (*shm.Segment, error) {
	own, err := os.MkdirTemp(dir, segmentPattern)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(own, "arena")
	seg, err := shm.CreateAt(path, size, format, nil)
	if err = errors.Join(err, os.RemoveAll(own)); err != nil && seg != nil {
		seg.Close()
		seg = nil
	}
	return seg, err
}

// NewMemfd creates a memfd of the given size. It is close-on-exec until it is passed to a worker.
func NewMemfd(name string, size int64) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := f.Truncate(size); err != nil {
		f.Close()
		return nil, fmt.Errorf("size of %s: %w", name, err)
	}
	return f, nil
}
