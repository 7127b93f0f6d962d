package shm

import (
	"sync"

	"golang.org/x/sys/unix"
)

// Other code of the program may close the descriptor of a segment by mistake: a daemon, for example, closes all
// descriptors. The number of the descriptor may refer to another file by now, which this package must neither change
// nor close.

// isFile reports whether fd is a descriptor of the segment's file.
func (s *Segment) isFile(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && uint64(st.Dev) == s.dev && st.Ino == s.ino
}

// descriptor returns a descriptor of the segment's file. The caller calls done when it no longer needs the
// descriptor. If the program has closed the descriptor of the segment, this call opens the file again by its path. It
// fails if the path leads to no file or to another file.
func (s *Segment) descriptor(op string) (fd int, done func(), err error) {
	if fd = int(s.file.Fd()); s.isFile(fd) {
		return fd, func() {}, nil
	}
	err = retry(func() (err error) {
		fd, err = unix.Open(s.name, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		return err
	})
	if err == nil && s.isFile(fd) {
		return fd, func() { unix.Close(fd) }, nil
	}
	if err == nil {
		unix.Close(fd)
	}
	switch err {
	case nil, unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EISDIR, unix.ENXIO, unix.ENODEV: // there is no file, or no regular one
		return -1, nil, &opError{op: op, name: s.name, err: unix.ESTALE,
			why: "this program has closed the descriptor of the segment, and the path does not lead to it"}
	}
	return -1, nil, fail(op, s.name, "this program has closed the descriptor of the segment, and could not open the file again", err)
}

// The map lost holds the files of closed segments whose descriptors were lost. If nothing referred to such a file,
// the garbage collector would close its descriptor, which may belong to other code of the program.
var lost sync.Map // *os.File to nil

// closeFile closes the file of the segment, unless its descriptor is lost.
func (s *Segment) closeFile() error {
	if s.isFile(int(s.file.Fd())) {
		return s.file.Close()
	}
	lost.Store(s.file, nil)
	return nil
}
