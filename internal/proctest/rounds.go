//go:build linux

package proctest

import (
	"os"
	"strconv"
	"testing"
)

// Long reports whether tests run at full length, which SHMSYNC_TEST_LONG=1 asks for.
// A variable of the environment says so, and no flag: a flag that a package does not
// know would end the tests of that package, so go test ./... could not pass it on.
func Long() bool {
	long, _ := strconv.ParseBool(os.Getenv("SHMSYNC_TEST_LONG"))
	return long
}

// Rounds returns how often a test repeats what it does, or how long it goes on: long
// if [Long], short with -short, and otherwise a tenth of long but at least short.
func Rounds[N ~int | ~int64 | ~uint64](short, long N) N {
	switch {
	case testing.Short():
		return short
	case Long():
		return long
	}
	return max(short, long/10)
}
