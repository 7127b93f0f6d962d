//go:build linux

package control

import (
	"math"
	"math/rand/v2"

	"github.com/shmsync/shmsync"
)

// Work runs n steps of a multiplication and an addition, each of which depends on the step before. This takes time
// and touches no memory. peer.h has the same loop.
//
//go:noinline
func Work(n uint64, x uint64) uint64 {
	for ; n > 0; n-- {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}

// Calibrate returns the number of steps of Work per nanosecond on this CPU. It takes the highest number of several
// short runs, because a disturbance can only slow a run down.
func Calibrate(sink *uint64) float64 {
	const steps = 20_000
	best := int64(math.MaxInt64)
	for range 15 {
		t := shmsync.Monotonic()
		*sink = Work(steps, *sink)
		best = min(best, shmsync.Monotonic()-t)
	}
	return steps / float64(max(best, 1))
}

// Steps converts a duration to a number of steps of Work. The parameter perNs is the result of Calibrate.
func Steps(ns uint64, perNs float64) uint64 { return uint64(float64(ns)*perNs + 0.5) }

// Thinks is the number of think times in the table of a plan. A think time is a pause between two operations of a
// thread.
const Thinks = 256

// DrawThinks fills the table with exponentially distributed think times, as multiples of their mean. With constant
// think times, the workers could fall into lock step. The draw is stratified, so that every seed gives the same mean.
func DrawThinks(table *[Thinks]float32, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 2))
	for i, at := range rng.Perm(Thinks) {
		table[at] = float32(-math.Log(1 - (float64(i)+0.5)/Thinks))
	}
}
