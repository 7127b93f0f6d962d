package shm

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// reserveTries is how often a reservation is tried in one piece. On older kernels, a signal makes tmpfs give back
	// all that the call has allocated so far. The Go runtime sends signals for preemption, so a long reservation might
	// never succeed in one piece.
	reserveTries = 4
	// reserveChunk is the size in bytes of the pieces that are reserved after reserveTries has been reached. A piece
	// takes a few milliseconds. If signals still interrupt a piece, its size is halved, but not below reserveLeast.
	reserveChunk = 8 << 20
	reserveLeast = 64 << 10
)

func (s *Segment) reserve(off, n int64) error {
	fd, done, err := s.descriptor("reserve")
	if err != nil {
		return err
	}
	defer done()
	if s.pageSize > int64(os.Getpagesize()) {
		// For huge pages from the pool, the NUMA policy belongs to the mapping and not to the file. A page fault
		// follows the policy, but fallocate does not. So reserve such pages by page faults.
		lo, hi := s.wholePages(off, n)
		if unix.Madvise(s.mem[lo:hi], unix.MADV_POPULATE_WRITE) == nil {
			return nil
		}
	}
	err = allocate(off, n, max(reserveChunk, s.pageSize), max(reserveLeast, s.pageSize), func(off, n int64) error {
		err := unix.Fallocate(fd, fallocKeepSize, off, n)
		if err == unix.EOPNOTSUPP {
			// gVisor supports no flags of fallocate. The flag is not necessary here: the range is within the file, so
			// the size does not change without the flag either.
			err = unix.Fallocate(fd, 0, off, n)
		}
		return err
	})
	switch err {
	case nil:
		return nil
	case unix.ENOSPC, unix.EDQUOT, unix.ENOMEM:
		return &opError{op: "reserve", name: s.name, kind: ErrNoSpace, err: err,
			why: fmt.Sprintf("shared memory is full: could not reserve %d bytes of %s (%s)", n, s.name, free(fd))}
	}
	return fail("reserve", s.name, fmt.Sprintf("%d bytes at %d", n, off), err)
}

func (s *Segment) discard(off, n int64) error {
	fd, done, err := s.descriptor("discard")
	if err != nil {
		return err
	}
	defer done()
	err = retry(func() error { return unix.Fallocate(fd, fallocPunchHole|fallocKeepSize, off, n) })
	if err != nil {
		return fail("discard", s.name, fmt.Sprintf("%d bytes at %d", n, off), err)
	}
	return nil
}

// allocate calls fallocate for n bytes from the offset off. If signals interrupt each of several calls, allocate
// reserves the range in pieces. The parameter chunk is the size of a piece in bytes. If signals still interrupt a
// piece, allocate halves the size, but not below the parameter least.
func allocate(off, n, chunk, least int64, fallocate func(off, n int64) error) error {
	for range reserveTries {
		if err := fallocate(off, n); err != unix.EINTR {
			return err
		}
	}
	for end, tries := off+n, 0; off < end; {
		piece := min(chunk, end-off)
		switch err := fallocate(off, piece); err {
		case nil:
			off += piece
			tries = 0
		case unix.EINTR:
			if tries++; tries == reserveTries && chunk/2 >= least {
				chunk /= 2
				tries = 0
			}
		default:
			return err
		}
	}
	return nil
}

// free says in words how much room the filesystem of fd has left.
func free(fd int) string {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Blocks == 0 {
		return "how much is free is not known" // statfs reports no limit for a memfd
	}
	block := uint64(fs.Bsize)
	return fmt.Sprintf("%d bytes free of %d", fs.Bavail*block, fs.Blocks*block)
}

// populate reserves n bytes from the offset off and faults in their pages for writing. It changes
// no byte.
func (s *Segment) populate(off, n int64) error {
	if s.advised {
		// Only a page fault allocates a huge page, and the reservation below would allocate small pages. So fault in
		// the pages first, and ignore an error: if there is no room, the reservation returns an error.
		unix.Madvise(s.mem[off:off+n], unix.MADV_POPULATE_WRITE)
	}
	reserved := s.reserve(off, n)
	if reserved != nil && !errors.Is(reserved, ErrNotSupported) {
		return reserved
	}
	mem := s.mem[off : off+n]
	err := retry(func() error { return unix.Madvise(mem, unix.MADV_POPULATE_WRITE) })
	switch err {
	case nil:
		return nil
	case unix.EINVAL, unix.ENOSYS:
		// Linux before 5.14 does not have MADV_POPULATE_WRITE. Then touch the pages, but only if they have been
		// reserved: the touch of a page for which there is no room raises SIGBUS.
		if reserved == nil {
			touch(mem, s.pageSize)
		}
		return reserved
	}
	return fail("populate", s.name, fmt.Sprintf("fault in %d bytes at %d", n, off), err)
}
