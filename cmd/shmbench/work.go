//go:build linux

package main

import (
	"math"
	"math/rand/v2"

	"github.com/shmsync/shmsync"
)

// work runs n steps of a dependent multiply and add: time that touches no
// memory. peer.h has the same loop.
//
//go:noinline
func work(n uint64, x uint64) uint64 {
	for ; n > 0; n-- {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}

// calibrate gives the steps of work that fit into a nanosecond on this CPU: the
// best of several short runs, since a run can only be disturbed upwards.
func calibrate(sink *uint64) float64 {
	const steps = 20_000
	best := int64(math.MaxInt64)
	for range 15 {
		t := shmsync.Monotonic()
		*sink = work(steps, *sink)
		best = min(best, shmsync.Monotonic()-t)
	}
	return steps / float64(max(best, 1))
}

// steps converts a duration to steps of work.
func steps(ns uint64, perNs float64) uint64 { return uint64(float64(ns)*perNs + 0.5) }

// thinks is how many think times a cell draws from.
const thinks = 256

// drawThinks fills in exponentially distributed think times, in units of their
// mean: constant ones would let the workers lock step. They are stratified, so
// that every seed has the same mean.
func drawThinks(table *[thinks]float32, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 2))
	for i, at := range rng.Perm(thinks) {
		table[at] = float32(-math.Log(1 - (float64(i)+0.5)/thinks))
	}
}
