package shm

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

func openImage(name string) (*Image, error) {
	path, follow := name, 0
	if !strings.Contains(name, "/") {
		var err error
		if path, err = namedPath(name); err != nil {
			return nil, err
		}
		follow = unix.O_NOFOLLOW // follow no link here, because every user may create files in this directory
	}
	var fd int
	err := retry(func() (err error) {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY|follow, 0)
		return err
	})
	if err != nil {
		return nil, fail("open", path, "", err)
	}
	return imageOf(os.NewFile(uintptr(fd), path))
}

func imageOf(f *os.File) (*Image, error) {
	var st unix.Stat_t
	err := unix.Fstat(int(f.Fd()), &st)
	switch {
	case err != nil:
		err = fail("open", f.Name(), "stat", err)
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		err = &opError{op: "open", name: f.Name(), why: "is not a regular file", kind: ErrIncompatible}
	case st.Size == 0:
		err = &opError{op: "open", name: f.Name(), why: "is empty", kind: ErrIncompatible}
	case int64(int(st.Size)) != st.Size:
		err = &opError{op: "open", name: f.Name(), why: "is too large", kind: ErrIncompatible}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	// Use a mapping instead of the function make. A sparse file may be larger than the memory of the system, and a
	// mapping takes memory only for pages that are written.
	mem, err := unix.Mmap(-1, 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		f.Close()
		return nil, fail("open", f.Name(), "memory for its image", err)
	}
	pieces := (st.Size + imagePiece - 1) / imagePiece
	return &Image{name: f.Name(), file: f, mem: mem, have: make([]bool, pieces)}, nil
}

// isHole reports whether the n bytes of the file at off are a hole, that is, zeros without memory or disk space. It
// returns false if the file system does not tell, or if the file ends before these bytes do.
func isHole(f *os.File, off, n int64) bool {
	fd := int(f.Fd())
	data, err := unix.Seek(fd, off, unix.SEEK_DATA)
	if err == nil {
		return data >= off+n
	}
	var st unix.Stat_t
	return err == unix.ENXIO && unix.Fstat(fd, &st) == nil && st.Size >= off+n
}

// forget zeroes all bytes and returns the memory to the system.
func (m *Image) forget() {
	if unix.Madvise(m.mem, unix.MADV_DONTNEED) != nil {
		clear(m.mem)
	}
}

func (m *Image) drop() {
	unix.Munmap(m.mem)
	m.mem, m.have = nil, nil
}
