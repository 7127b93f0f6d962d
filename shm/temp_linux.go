package shm

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/crashpoint"
)

// If a file must have a name from the start, its creator gives it a temporary name. While the file has this name, the
// creator holds a flock on it. If the creator dies, the kernel releases the lock. The next process that creates a
// file in the directory then removes the old file. The table calls that process a sweeper.
//
//	state of the temporary file    remover of its name
//	named, not locked yet          a sweeper; the creator notices and begins again
//	locked                         the creator
//	published by renaming          nobody: the name is gone
//	published by a second name     anybody
//	creator dead                   a sweeper, which holds the lock meanwhile
var (
	_ = crashpoint.Register("shm.create.temp_unlocked")
	_ = crashpoint.Register("shm.create.temp_locked")
	_ = crashpoint.Register("shm.create.before_rename")
	_ = crashpoint.Register("shm.create.after_rename")
	_ = crashpoint.Register("shm.create.before_unlink")
	_ = crashpoint.Register("shm.sweep.before_unlink")
)

const (
	// tempSuffix ends the temporary names. Its last byte is not allowed in the name of a segment, so no segment has
	// such a name.
	tempSuffix = ".tmp~"
	// tempTries limits the search for a temporary name. A try fails if the name is taken. It also fails if another
	// creator sweeps the directory before this creator has locked its file, because a sweep removes unlocked temporary
	// files. Both cases are rare, because each creation sweeps only once. Even if another process sweeps all the time,
	// on another CPU, only about every second try fails.
	tempTries = 256
)

// tempName returns a new temporary name for base: .base.pid.random.tmp~. It shortens a long base. File systems limit the
// bytes of a name, so it counts bytes: a precision of Sprintf would count characters.
func tempName(base string) string {
	base = base[:min(len(base), maxNameLen)]
	return fmt.Sprintf(".%s.%d.%016x%s", base, os.Getpid(), rand.Uint64(), tempSuffix)
}

// isTempName reports whether name has the form that tempName returns.
func isTempName(name string) bool {
	name, dot := strings.CutPrefix(name, ".")
	name, suffix := strings.CutSuffix(name, tempSuffix)
	if !dot || !suffix {
		return false
	}
	parts := strings.Split(name, ".")
	if len(parts) < 3 {
		return false
	}
	random, pid := parts[len(parts)-1], parts[len(parts)-2]
	return len(random) == 16 && strings.Trim(random, "0123456789abcdef") == "" &&
		pid != "" && strings.Trim(pid, "0123456789") == ""
}

// tempBase returns the base from which tempName made a temporary name. If the base was too long, tempName shortened it,
// and tempBase returns the shortened base.
func tempBase(name string) string {
	parts := strings.Split(strings.TrimSuffix(name, tempSuffix), ".")
	return strings.Join(parts[1:len(parts)-2], ".")
}

// temporary creates the segment under a temporary name and then renames the file to its name.
func (c *creation) temporary() (*Segment, error) {
	sweep(c.dirfd)
	fd, temp, err := openTemp(c.dirfd, c.base)
	if err != nil {
		return nil, fail("create", c.path, "temporary file", err)
	}
	named := true
	defer func() {
		if named {
			unix.Unlinkat(c.dirfd, temp, 0)
		}
	}()
	crashpoint.Hit("shm.create.temp_locked")
	s, err := build(os.NewFile(uintptr(fd), c.name), c.name, c.size, c.set, nil, c.init)
	if err != nil {
		return nil, err
	}
	crashpoint.Hit("shm.create.before_rename")
	if err := publish(c.dirfd, temp, c.base); err != nil {
		s.Close()
		return nil, fail("create", c.path, "rename", err)
	}
	named = false
	crashpoint.Hit("shm.create.after_rename")
	unix.Flock(fd, unix.LOCK_UN) // the caller gets the file without a lock
	return s, nil
}

// openTemp makes an empty, locked file with a temporary name.
func openTemp(dirfd int, base string) (fd int, temp string, err error) {
	for range tempTries {
		temp = tempName(base)
		fd, err = unix.Openat(dirfd, temp, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
		if err == unix.EEXIST || err == unix.EINTR {
			continue
		}
		if err != nil {
			return -1, "", err
		}
		crashpoint.Hit("shm.create.temp_unlocked")
		err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil && sameEntry(fd, dirfd, temp) {
			return fd, temp, nil
		}
		// Another creator was sweeping the directory, and has locked or removed the file before this creator could lock
		// it.
		unix.Unlinkat(dirfd, temp, 0)
		unix.Close(fd)
		if err != nil && err != unix.EWOULDBLOCK && err != unix.EINTR {
			return -1, "", err
		}
		err = unix.EAGAIN
	}
	return -1, "", err
}

// publish renames the file at temp to base. It fails if base exists.
func publish(dirfd int, temp, base string) error {
	err := unix.Renameat2(dirfd, temp, dirfd, base, unix.RENAME_NOREPLACE)
	if err != unix.ENOSYS && err != unix.EINVAL && err != unix.EOPNOTSUPP {
		return err
	}
	return publishByLink(dirfd, temp, base)
}

// publishByLink does what the function publish does, for kernels without renameat2.
func publishByLink(dirfd int, temp, base string) error {
	if err := unix.Linkat(dirfd, temp, dirfd, base, 0); err != nil {
		return err
	}
	crashpoint.Hit("shm.create.before_unlink")
	// The segment is published even if this call fails.
	unix.Unlinkat(dirfd, temp, 0)
	return nil
}

// sweep removes from a directory the temporary files of dead creators. It ignores errors, because nothing depends on
// its success.
func sweep(dirfd int) {
	fd, err := unix.Openat(dirfd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	dir := os.NewFile(uintptr(fd), "directory")
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(listBatch)
		for _, name := range names {
			if isTempName(name) {
				sweepFile(dirfd, name)
			}
		}
		if err != nil {
			return
		}
	}
}

// sweepFile removes one temporary file if its creator is dead.
func sweepFile(dirfd int, name string) {
	fd, err := unix.Openat(dirfd, name, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() {
		return
	}
	// If the file also has the name for which it was made, the segment is published. Then this process may remove the
	// temporary name without a lock, as the creator would do next. Any other second name does not show that the segment
	// is published.
	published := st.Nlink > 1 && sameEntry(fd, dirfd, tempBase(name))
	if !published && unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return // its creator is alive, or another sweeper has locked it
	}
	if sameEntry(fd, dirfd, name) {
		crashpoint.Hit("shm.sweep.before_unlink")
		unix.Unlinkat(dirfd, name, 0)
	}
}

// sameEntry reports whether name in the directory leads to the file of fd.
func sameEntry(fd, dirfd int, name string) bool {
	var a, b unix.Stat_t
	return unix.Fstat(fd, &a) == nil && unix.Fstatat(dirfd, name, &b, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		a.Dev == b.Dev && a.Ino == b.Ino
}
