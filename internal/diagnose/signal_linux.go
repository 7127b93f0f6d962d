package diagnose

import (
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
