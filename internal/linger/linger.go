// Package linger lets tests keep the byte lock of a process for some time after the process was killed. On a host
// with many CPUs, Linux 6.17 and later keeps the byte lock, too, if the process has started a thread shortly before
// its end. The kernel then frees the memory of the process late, and the mapping of the file keeps the lock.
package linger

import (
	"fmt"
	"os"
	"regexp"
	"time"
)

// Time returns how long a byte lock stays after its process was killed. The environment variable SHMSYNC_TEST_LINGER
// says so. If it is not set, Time returns 0.
func Time() time.Duration {
	s := os.Getenv("SHMSYNC_TEST_LINGER")
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(fmt.Sprintf("SHMSYNC_TEST_LINGER: %v", err))
	}
	return d
}

// byteLock matches a line of /proc/PID/fdinfo that shows a lock on one byte. The byte locks of participants come after
// the header of an arena, so their offsets have at least four digits.
var byteLock = regexp.MustCompile(`(?m)^lock:.* OFDLCK .* [0-9]{4,} [0-9]{4,}$`)

// Locks reports whether a descriptor has the byte lock of a participant. fdinfo is the contents of its file in
// /proc/PID/fdinfo.
func Locks(fdinfo []byte) bool { return byteLock.Match(fdinfo) }
