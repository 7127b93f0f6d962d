package shm

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

func openAt(path string, opts *Options) (*Segment, error) {
	set, err := opts.settings()
	if err != nil {
		return nil, &opError{op: "open", name: path, err: err}
	}
	// O_NONBLOCK and O_NOCTTY matter if the file is not a regular file. Then open must not block, and
	// must not make a terminal the controlling terminal of this process.
	var fd int
	err = retry(func() (err error) {
		fd, err = unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		return err
	})
	switch err {
	case nil:
	case unix.ELOOP:
		return nil, &opError{op: "open", name: path, why: "is a symbolic link", kind: ErrIncompatible, err: err}
	case unix.EISDIR, unix.ENXIO, unix.ENODEV:
		return nil, &opError{op: "open", name: path, why: "is not a regular file", kind: ErrIncompatible, err: err}
	default:
		return nil, fail("open", path, whyDenied(path, err), err)
	}
	name := absolute(path)
	return adopt(fd, name, name, set)
}

// whyDenied returns the owner, the group and the mode of a file whose open failed with the error err for lack of
// permission. For other errors, and if the file cannot be examined, it returns "".
func whyDenied(path string, err error) string {
	var st unix.Stat_t
	if err != unix.EACCES || unix.Lstat(path, &st) != nil {
		return ""
	}
	return fmt.Sprintf("uid %d may not read and write this file of uid %d and gid %d with mode %04o", os.Geteuid(), st.Uid, st.Gid, st.Mode&0o7777)
}

// absolute makes a path absolute, so that it still leads to the segment after this process has changed its working
// directory. It does not remove ".." from the path, because ".." may follow a symbolic link. absolute asks the kernel
// for the working directory. It does not use the variable PWD, because the path in PWD may contain a symbolic link that
// later leads to another directory. If the kernel does not know the working directory, absolute returns the path as it
// is.
func absolute(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	dir, err := unix.Getwd()
	if err != nil {
		return path
	}
	return strings.TrimSuffix(dir, "/") + "/" + strings.TrimPrefix(path, "./")
}

func fromFile(f *os.File, opts *Options) (*Segment, error) {
	set, err := opts.settings()
	if err != nil {
		return nil, &opError{op: "open", name: f.Name(), err: err}
	}
	// Do not use f.Fd, which would put the caller's file into blocking mode.
	conn, err := f.SyscallConn()
	if err != nil {
		return nil, &opError{op: "open", name: f.Name(), err: err}
	}
	fd, mode := -1, 0
	cerr := conn.Control(func(orig uintptr) {
		if mode, err = unix.FcntlInt(orig, unix.F_GETFL, 0); err == nil {
			fd, err = unix.FcntlInt(orig, unix.F_DUPFD_CLOEXEC, 0)
		}
	})
	if cerr != nil {
		return nil, &opError{op: "open", name: f.Name(), kind: ErrClosed, err: os.ErrClosed}
	}
	if err != nil {
		return nil, fail("open", f.Name(), "duplicate the descriptor", err)
	}
	if mode&unix.O_ACCMODE != unix.O_RDWR || mode&unix.O_PATH != 0 {
		unix.Close(fd)
		return nil, &opError{op: "open", name: f.Name(), why: "is not open for reading and writing", err: unix.EACCES}
	}
	name, path := f.Name(), ""
	// A name such as "fd/3" or "/dev/fd/3" says which descriptor the program inherited. It is no path by which another
	// process could find the file.
	if strings.Contains(name, "/") && sameEntry(fd, unix.AT_FDCWD, name) {
		name = absolute(name)
		path = name
	}
	return adopt(fd, name, path, set)
}

// adopt checks the file behind fd and maps it. The parameter named path is "" if the file has no path. adopt takes
// ownership of fd. So if adopt fails, it closes fd.
func adopt(fd int, name, path string, set settings) (*Segment, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, fail("open", name, "stat", err)
	}
	pageSize, _ := backing(fd)
	if err := checkFile(fd, name, &st, pageSize, set.TrustUIDs); err != nil {
		unix.Close(fd)
		return nil, err
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		unix.Close(fd)
		return nil, fail("open", name, "fcntl", err)
	}
	s, err := mapFile("open", os.NewFile(uintptr(fd), name), name, &st, set, false)
	if err != nil {
		return nil, err
	}
	s.path = path
	return s, nil
}

// checkFile returns an error if the file of fd must not be mapped as a segment. st is the result of fstat.
func checkFile(fd int, name string, st *unix.Stat_t, pageSize int64, trust []uint32) error {
	incompatible := func(format string, args ...any) error {
		return &opError{op: "open", name: name, why: fmt.Sprintf(format, args...), kind: ErrIncompatible}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return incompatible("is not a regular file")
	}
	owned := st.Uid == 0 || slices.Contains(trust, st.Uid)
	euid := uint32(os.Geteuid())
	if !owned {
		var err error
		if owned, err = owns(fd, st.Uid, euid); err != nil {
			return fail("open", name, "it is not known whether this process owns the file", err)
		}
	}
	if !owned {
		why := fmt.Sprintf("is owned by uid %d, which is not this process's (%d), root or a trusted one", st.Uid, euid)
		if st.Uid == euid {
			why = fmt.Sprintf("is owned by a user that this user namespace does not map, and whom it shows as uid %d", euid)
		}
		return &opError{op: "open", name: name, err: unix.EPERM, why: why}
	}
	switch {
	case st.Size == 0:
		return incompatible("is empty")
	case st.Size < pageSize:
		return incompatible("is %d bytes long, less than a page (%d)", st.Size, pageSize)
	case st.Size%pageSize != 0:
		return incompatible("is %d bytes long, not a multiple of the page size (%d)", st.Size, pageSize)
	case int64(int(st.Size)) != st.Size:
		return incompatible("is %d bytes long, too large to map", st.Size)
	}
	return nil
}

// owns reports whether the file of fd belongs to the effective user of this process. The parameter uid is the owner
// that fstat reports, and euid is the effective user.
//
// A user namespace shows all users that it does not map as one uid, the overflow uid. So if both numbers are the
// overflow uid, they may stand for different users. Then owns asks the kernel to set O_NOATIME on fd, which the kernel
// permits only for the owner of the file, and for a process that has CAP_FOWNER over a user that the namespace maps.
// The kernel does not ask if the flag is already set, so owns clears the flag first.
//
// The error is not nil if this process has too few descriptors or too little memory to find out.
func owns(fd int, uid, euid uint32) (bool, error) {
	if uid != euid {
		return false, nil
	}
	if overflow, err := overflowUID(); err != nil || uid != overflow {
		return err == nil, err
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return false, nil
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags&^unix.O_NOATIME); err != nil {
		return false, nil
	}
	_, refused := unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags|unix.O_NOATIME)
	if flags&unix.O_NOATIME == 0 && refused == nil {
		unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags)
	}
	return refused == nil, nil
}

// knownOverflowUID is 1 plus the overflow uid, or 0 if overflowUID has not read it yet.
var knownOverflowUID atomic.Uint64

// overflowUID returns the uid as which a user namespace shows users that it does not map. If this process cannot find
// out the uid, for example without /proc, overflowUID returns the usual uid, 65534. But if the process has too few
// descriptors or too little memory, it returns an error. overflowUID does not use os.ReadFile, which could start a
// netpoller; see reopen.
func overflowUID() (uint32, error) {
	const path, usual = "/proc/sys/kernel/overflowuid", 65534
	if known := knownOverflowUID.Load(); known != 0 {
		return uint32(known - 1), nil
	}
	var b [16]byte
	n := 0
	err := retry(func() error {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		n, err = unix.Read(fd, b[:])
		return err
	})
	switch err {
	case nil:
	case unix.EMFILE, unix.ENFILE, unix.ENOMEM:
		return 0, &os.PathError{Op: "read", Path: path, Err: err}
	default:
		return usual, nil
	}
	uid, err := strconv.ParseUint(strings.TrimSpace(string(b[:n])), 10, 32)
	if err != nil {
		return usual, nil
	}
	knownOverflowUID.Store(uid + 1)
	return uint32(uid), nil
}

func (s *Segment) reopen() (*os.File, error) {
	// Do not use os.OpenFile, which tries to add the file to the netpoller of the Go runtime. In a
	// process without a netpoller, that would start one.
	path, fd := fdPath(int(s.file.Fd())), -1
	err := retry(func() (err error) {
		fd, err = unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		e := &opError{op: "reopen", name: s.name, err: err}
		switch err {
		case unix.ENOENT, unix.ENOTDIR:
			e.why, e.kind = "/proc is not available", ErrNotSupported
		case unix.EACCES, unix.EPERM, unix.ELOOP, unix.EROFS, unix.ENOSYS, unix.EINVAL, unix.EOPNOTSUPP, unix.ENXIO, unix.ENODEV:
			// Permissions, a mount, a security module or a filter forbid it.
			e.kind = ErrNotSupported
		}
		return nil, e
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || uint64(st.Dev) != s.dev || st.Ino != s.ino {
		unix.Close(fd)
		return nil, &opError{op: "reopen", name: s.name, why: "/proc shows another file", kind: ErrNotSupported, err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// fdPath returns a path by which this process can open the file of fd a second time.
func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
