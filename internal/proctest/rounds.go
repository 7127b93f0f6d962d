//go:build linux

package proctest

import (
	"os"
	"strconv"
	"testing"

	"github.com/shmsync/shmsync/internal/race"
)

// Long reports whether tests run at full length, for which SHMSYNC_TEST_LONG=1 asks. This is an
// environment variable, and not a flag, because go test ./... passes a flag to every package, and a
// package that does not know the flag fails.
func Long() bool {
	long, _ := strconv.ParseBool(os.Getenv("SHMSYNC_TEST_LONG"))
	return long
}

// Quick reports whether tests do only what a developer would wait for: with -short, and without the
// race detector. CI runs the race detector with -short, and must not skip anything.
func Quick() bool { return testing.Short() && !race.Enabled }

// Rounds returns the number of rounds, or the duration, of a test. It returns the parameter short
// with the flag -short, and the parameter long if [Long] is true. Otherwise it returns a part of
// long, but at least short. The part is a fifth in builds with crash points, because CI runs these
// at this length only. It is a thirtieth in other builds, which CI runs with Long.
func Rounds[N ~int | ~int64 | ~uint64](short, long N) N {
	switch {
	case testing.Short():
		return short
	case Long():
		return long
	case crashPoints:
		return max(short, long/5)
	}
	return max(short, long/30)
}
