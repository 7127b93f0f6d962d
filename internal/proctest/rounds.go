//go:build linux

package proctest

import (
	"os"
	"strconv"
	"testing"

	"github.com/shmsync/shmsync/internal/crashpoint"
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

// Rounds returns how often a test repeats what it does, or how long it goes on: long
// if [Long], short with -short, and otherwise a tenth of long but at least short. With
// crash points it is a fifth, since CI runs those tests at this length only.
func Rounds[N ~int | ~int64 | ~uint64](short, long N) N {
	switch {
	case testing.Short():
		return short
	case Long():
		return long
	case crashpoint.Enabled:
		return max(short, long/5)
	}
	return max(short, long/10)
}
