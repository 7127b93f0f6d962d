package diagnose

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// maySignal reports whether this user may send signals to a process, if there is such a process.
func maySignal(pid int) bool { return unix.Kill(pid, 0) != unix.EPERM }

// ownerOf returns the user of a process.
func ownerOf(pid int) string {
	var st unix.Stat_t
	if unix.Stat("/proc/"+strconv.Itoa(pid), &st) != nil {
		return "of the process"
	}
	return strconv.Itoa(int(st.Uid))
}

// mayJoin reports whether this user may join the arena in a file, by the permissions and the owner of the file. If not,
// and if another user than root owns the file, owner is this other user.
func mayJoin(file *os.File) (may bool, owner int) {
	var st unix.Stat_t
	euid := os.Geteuid()
	if euid == 0 || unix.Fstat(int(file.Fd()), &st) != nil {
		return true, 0
	}
	// Package shm refuses a file of a third user: its owner could truncate it.
	if owner = int(st.Uid); owner != euid && owner != 0 {
		return false, owner
	}
	path := fmt.Sprintf("/proc/self/fd/%d", file.Fd())
	return unix.Faccessat(unix.AT_FDCWD, path, unix.R_OK|unix.W_OK, unix.AT_EACCESS) != unix.EACCES, 0
}
