// Package linger lets tests keep the byte lock of a process for some time after it has been killed, as Linux 6.17 and
// later does on a host with many CPUs: it keeps the memory of a process that has started a thread shortly before, and
// the file that has the lock is mapped.
package linger

import (
	"fmt"
	"os"
	"regexp"
	"time"
)

// Time is how long locks stay, from SHMSYNC_TEST_LINGER, and 0 if that is not set.
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

// byteLock is the line of fdinfo of a lock of one byte behind the header of an arena.
var byteLock = regexp.MustCompile(`(?m)^lock:.* OFDLCK .* [0-9]{4,} [0-9]{4,}$`)

// Locks reports whether a descriptor, of which fdinfo is what /proc tells, has the byte lock of a participant.
func Locks(fdinfo []byte) bool { return byteLock.Match(fdinfo) }
