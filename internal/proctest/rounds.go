//go:build linux

package proctest

import (
	"math/rand/v2"
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

// Quick reports whether tests do only as much as a developer would wait for: with -short and without the race
// detector. CI uses -short with the race detector, too, but then must not skip anything.
func Quick() bool { return testing.Short() && !race.Enabled }

// Rounds returns the number of rounds of a test, or its duration. With the flag -short it returns the parameter
// short, and with [Long] the parameter long. Otherwise it returns long/5 in builds with crash points, because CI runs
// these builds at no other length. In other builds it returns long/30. It never returns less than short.
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

// Sample returns the cases of a test: all of them at full length, in builds with crash points and with the race detector,
// because CI runs these builds at no other length. Otherwise it returns n of them, chosen at random, in their order, so that many short runs
// together run all cases.
func Sample[T any](all []T, n int) []T {
	if Long() || race.Enabled || crashPoints && !testing.Short() || n >= len(all) {
		return all
	}
	some := make([]T, 0, n)
	for i, c := range all {
		if rand.IntN(len(all)-i) < n-len(some) {
			some = append(some, c)
		}
	}
	return some
}
