package shm

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/edsrzf/mmap-go"
	"golang.org/x/sys/unix"
)

// fail returns the error of a failed system call, together with the sentinel error that the errno stands for.
func fail(op, name, why string, err error) error {
	e := &opError{op: op, name: name, why: why, err: err}
	switch err {
	case unix.ENOSPC, unix.EDQUOT:
		e.kind = ErrNoSpace
	case unix.ENOSYS, unix.EOPNOTSUPP:
		e.kind = ErrNotSupported
	}
	return e
}

// retry repeats f as long as it fails with EINTR.
func retry(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}

// disabled reports whether SHMSYNC_DISABLE lists the feature.
func disabled(feature string) bool {
	for f := range strings.SplitSeq(os.Getenv("SHMSYNC_DISABLE"), ",") {
		if strings.TrimSpace(f) == feature {
			return true
		}
	}
	return false
}

// mapFile maps all of f, with the properties in the parameter set. st is the result of fstat for f, and has been
// checked. fresh says that the segment is being created. mapFile takes ownership of f: if mapFile fails, it closes f.
func mapFile(op string, f *os.File, name string, st *unix.Stat_t, set settings, fresh bool) (_ *Segment, err error) {
	s := &Segment{name: name, file: f, dev: uint64(st.Dev), ino: st.Ino}
	s.pageSize, s.canPlace = backing(int(f.Fd()))
	mem, err := mmap.MapRegion(f, int(st.Size), mmap.RDWR, 0, 0)
	if err != nil {
		f.Close()
		if err == syscall.ENOMEM && s.pageSize > int64(os.Getpagesize()) {
			return nil, &opError{op: op, name: name, kind: ErrNoSpace, err: err,
				why: fmt.Sprintf("too few free huge pages of %d bytes for %d bytes", s.pageSize, st.Size)}
		}
		if err == syscall.ENOMEM {
			return nil, fail(op, name, fmt.Sprintf("could not map %d bytes of address space (see RLIMIT_AS and vm.max_map_count)", st.Size), err)
		}
		if err == syscall.EAGAIN { // the process has called mlockall with MCL_FUTURE
			return nil, fail(op, name, fmt.Sprintf("could not lock %d bytes of memory, as this process locks all (see RLIMIT_MEMLOCK)", st.Size), err)
		}
		return nil, fail(op, name, "mmap", err)
	}
	s.mem = mem
	s.refs.Store(1)
	defer func() {
		if err != nil {
			s.Close()
		}
	}()

	if set.HugePages == HugeTransparent {
		s.advised = true
		if err := unix.Madvise(s.mem, unix.MADV_HUGEPAGE); err != nil {
			s.degraded = append(s.degraded, fail(op, name, "transparent huge pages", err))
		} else if why := noHuge(uint64(st.Dev)); why != "" {
			s.degraded = append(s.degraded, &opError{op: op, name: name, why: "transparent huge pages: " + why, kind: ErrNotSupported})
		}
	}
	switch {
	case fresh && set.placed():
		if err := s.placeNew(set); err != nil {
			return nil, err
		}
	case set.Populate || set.Lock:
		if err := s.populate(0, s.Size()); err != nil {
			return nil, err
		}
	}
	if set.Lock {
		if err := mem.Lock(); err != nil {
			return nil, fail(op, name, fmt.Sprintf("could not lock %d bytes in memory (see RLIMIT_MEMLOCK)", s.Size()), err)
		}
	}
	return s, nil
}

// backing returns the page size of the file behind fd, in bytes. canPlace reports whether the
// filesystem stores NUMA policies. Other filesystems accept a policy and ignore it, because their pages
// belong to the page cache.
func backing(fd int) (pageSize int64, canPlace bool) {
	var fs unix.Statfs_t
	pageSize = int64(os.Getpagesize())
	if unix.Fstatfs(fd, &fs) != nil {
		return pageSize, false
	}
	switch uint32(fs.Type) {
	case unix.HUGETLBFS_MAGIC:
		return int64(fs.Bsize), true
	case unix.TMPFS_MAGIC:
		return pageSize, true
	}
	return pageSize, false
}

// unmap unmaps memory that mapFile has mapped.
func unmap(mem []byte) error {
	m := mmap.MMap(mem)
	return m.Unmap()
}
