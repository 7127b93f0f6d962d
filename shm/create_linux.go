package shm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/crashpoint"
)

// A segment is created in an unnamed file, and then gets its name by one call of link. Before that call a death leaves
// nothing behind, and after it the segment is complete.
var (
	_ = crashpoint.Register("shm.create.after_open")
	_ = crashpoint.Register("shm.create.after_size")
	_ = crashpoint.Register("shm.create.before_link")
	_ = crashpoint.Register("shm.create.after_link")
)

// errNoUnnamed means that this system cannot make an unnamed file, or cannot give it a name.
var errNoUnnamed = errors.New("unnamed temporary files are not available")

// creation is one attempt to create a named segment.
type creation struct {
	path  string // the path as the caller wrote it
	name  string // the absolute path, which is the name of the segment
	dirfd int    // the directory; it is opened only once, so that renaming it does no harm
	base  string // the name in that directory
	size  int64
	set   settings
	init  func(*Segment) error
}

func createAt(path string, size int64, init func(*Segment) error, opts *Options) (*Segment, error) {
	set, err := opts.settings()
	if err == nil {
		size, err = roundSize(size, int64(os.Getpagesize()))
	}
	if err != nil {
		return nil, &opError{op: "create", name: path, err: err}
	}
	if set.pageSize != 0 {
		return nil, &opError{op: "create", name: path, why: "huge pages of a given size need CreateMemfd", kind: ErrNotSupported}
	}
	c := creation{path: path, name: absolute(path), size: size, set: set, init: init}
	var dir string
	dir, c.base = filepath.Split(path)
	if c.base == "" || c.base == "." || c.base == ".." || isTempName(c.base) {
		return nil, &opError{op: "create", name: path, why: "is not the name of a file for a segment", err: syscall.EINVAL}
	}
	if dir == "" {
		dir = "."
	}
	if c.dirfd, err = unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, fail("create", path, "open directory", err)
	}
	defer unix.Close(c.dirfd)

	// This check only avoids a useless call of the function init. The call of link, later, decides
	// whether the name is taken.
	var st unix.Stat_t
	if unix.Fstatat(c.dirfd, c.base, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
		return nil, fail("create", path, "", unix.EEXIST)
	}
	s, err := c.unnamed()
	if err == errNoUnnamed {
		s, err = c.temporary()
	}
	if err != nil {
		return nil, err
	}
	s.path = c.name
	return s, nil
}

// unnamed creates the segment in an unnamed file and then links the file to its name. It returns
// errNoUnnamed if this system cannot do that.
func (c *creation) unnamed() (*Segment, error) {
	if disabled("otmpfile") {
		return nil, errNoUnnamed
	}
	fd, err := unix.Openat(c.dirfd, ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	switch err {
	case nil:
	case unix.EOPNOTSUPP, unix.EISDIR, unix.EINVAL:
		// A kernel that does not know O_TMPFILE returns EISDIR.
		return nil, errNoUnnamed
	default:
		return nil, fail("create", c.path, "", err)
	}
	if !sameFile(fd, fdPath(fd)) {
		unix.Close(fd) // /proc is missing, but is needed to link the file to a name
		return nil, errNoUnnamed
	}
	crashpoint.Hit("shm.create.after_open")
	s, err := build(os.NewFile(uintptr(fd), c.name), c.name, c.size, c.set, nil, c.init)
	if err != nil {
		return nil, err
	}
	crashpoint.Hit("shm.create.before_link")
	err = unix.Linkat(unix.AT_FDCWD, fdPath(fd), c.dirfd, c.base, unix.AT_SYMLINK_FOLLOW)
	if err == nil {
		crashpoint.Hit("shm.create.after_link")
		return s, nil
	}
	s.Close()
	switch err {
	case unix.ENOENT, unix.EXDEV, unix.EPERM, unix.ENOSYS, unix.EOPNOTSUPP:
		// The filesystem or a sandbox does not permit a link to an unnamed file.
		return nil, errNoUnnamed
	}
	return nil, fail("create", c.path, "link", err)
}

// build turns f, an empty file of mode 0600, into a segment. It sets the size and the seals, maps the file, and calls
// init. It sets the mode last, because other processes may find a temporary file before the segment is complete. build
// takes ownership of f. So if build fails or init panics, it closes f.
func build(f *os.File, name string, size int64, set settings, seal func() error, init func(*Segment) error) (*Segment, error) {
	fd := int(f.Fd())
	var st unix.Stat_t
	err := retry(func() error { return unix.Ftruncate(fd, size) })
	if err == nil && seal != nil {
		err = seal()
	}
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	if err != nil {
		f.Close()
		why := "prepare the file"
		if err == unix.EFBIG {
			why = fmt.Sprintf("%d bytes are more than RLIMIT_FSIZE or the file system permits", size)
		}
		return nil, fail("create", name, why, err)
	}
	crashpoint.Hit("shm.create.after_size")
	s, err := mapFile("create", f, name, &st, set, true)
	if err != nil {
		return nil, err
	}
	whole := false
	defer func() {
		if !whole {
			s.Close()
		}
	}()
	if init != nil {
		if err := init(s); err != nil {
			return nil, &opError{op: "create", name: name, why: "init", err: err}
		}
	}
	if err := retry(func() error { return unix.Fchmod(fd, uint32(set.Mode)) }); err != nil {
		return nil, fail("create", name, "set the mode", err)
	}
	whole = true
	return s, nil
}

// sameFile reports whether path leads to the file that fd refers to.
func sameFile(fd int, path string) bool {
	var a, b unix.Stat_t
	return unix.Fstat(fd, &a) == nil && unix.Stat(path, &b) == nil && a.Dev == b.Dev && a.Ino == b.Ino
}
