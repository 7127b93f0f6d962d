//go:build linux

package proctest

import (
	"os"
	"strconv"
	"testing"

	"github.com/shmsync/shmsync/internal/race"
)

// Long reports whether tests run at full length, which SHMSYNC_TEST_LONG=1 asks for.
// A variable of the environment says so, and no flag: a flag that a package does not
// know would end the tests of that package, so go test ./... could not pass it on.
func Long() bool {
	long, _ := strconv.ParseBool(os.Getenv("SHMSYNC_TEST_LONG"))
	return long
}

// Quick reports whether tests do only what a developer waits for: with -short, and without
// the race detector. CI runs the race detector with -short, and it shall miss nothing.
func Quick() bool { return testing.Short() && !race.Enabled }

// Rounds returns the number of rounds, or the duration, of a test. It is long if [Long], and
// short with -short. Otherwise it is a thirtieth of long, or a fifth in builds with crash points,
// since CI runs those at this length only; but it is at least short. CI runs the others long.
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
