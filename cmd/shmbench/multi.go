//go:build linux

package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/shmsync/shmsync"
)

// keyLocker is what multi cells need: a lock for each key of the plan. Keys
// come in ascending order and without repetition.
type keyLocker interface {
	LockKeys(keys []uint32)
	UnlockKeys(keys []uint32)
}

// keyProber is a keyLocker that can tell whether somebody holds any of the keys.
type keyProber interface {
	Held(keys []uint32) bool
}

// maxLocks is the most keys that one hold takes.
const maxLocks = 16

// Skews of a multi cell.
const (
	skewUniform = "uniform"
	skewZipf    = "zipf" // the k-th key with a weight of k^-theta, as in zipf:1.2
)

const (
	zipfUsual = 0.99 // theta of zipf alone
	zipfMost  = 10
)

// parseSkew gives the theta of a skew, 0 where all keys are alike, and the name that it
// has in keys of cells.
func parseSkew(text string) (theta float64, name string, err error) {
	switch text {
	case skewUniform:
		return 0, text, nil
	case skewZipf:
		return zipfUsual, text, nil
	}
	number, ok := strings.CutPrefix(text, skewZipf+":")
	if !ok {
		return 0, "", fmt.Errorf("--skew %q: want %s, %s or %s:THETA", text, skewUniform, skewZipf, skewZipf)
	}
	if theta, err = strconv.ParseFloat(number, 64); err != nil || !(theta > 0 && theta <= zipfMost) {
		return 0, "", fmt.Errorf("--skew %q: theta is no number above 0 and up to %d", text, zipfMost)
	}
	if theta == zipfUsual {
		return theta, skewZipf, nil
	}
	return theta, skewZipf + ":" + strconv.FormatFloat(theta, 'g', -1, 64), nil
}

// drawKeys fills in the keys that the workers of a multi cell take in turn.
func drawKeys(draws *[scratchDraws]uint32, keys int, theta float64, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 3))
	sums := make([]float64, keys)
	total := 0.0
	for i := range sums {
		total += math.Pow(float64(i+1), -theta)
		sums[i] = total
	}
	for i := range draws {
		at, _ := slices.BinarySearch(sums, rng.Float64()*total)
		draws[i] = uint32(min(at, keys-1))
	}
}

// workMulti takes keys and counts under each of them.
func workMulti(t *thread) error {
	l, err := as[keyLocker](t)
	if err != nil {
		return err
	}
	s := t.scratch()
	cs, think := steps(t.csNs, t.perNs), t.thinkSteps()
	locks := int(t.shape.Locks)
	var room [maxLocks]uint32
	var old [maxLocks]uint64
	prober, _ := l.(keyProber)
	taken, looked, held := 0.0, 0.0, 0.0
	x, t0 := uint64(t.index), int64(0)
	at := uint64(t.index) * scratchDraws / uint64(t.procs*t.control.threads)
	t.await()
	for i := uint64(t.index) * lockStride; t.next(); i++ {
		if t.thinkNs > 0 {
			x = work(think[i%thinks], x)
		}
		keys := room[:0]
		for range locks {
			keys = append(keys, s.draws[at%scratchDraws])
			at++
		}
		if locks > 1 {
			slices.Sort(keys)
			keys = slices.Compact(keys)
		}
		sampled := i%lockStride == 0
		if sampled {
			if prober != nil {
				looked++
				if prober.Held(keys) {
					held++
				}
			}
			t0 = shmsync.Monotonic()
		}
		l.LockKeys(keys)
		if sampled {
			t.sample(t.counts, shmsync.Monotonic()-t0)
		}
		for j, k := range keys {
			old[j] = s.counts[k]
		}
		if cs > 0 {
			x = work(cs, x)
		}
		for j, k := range keys {
			s.counts[k] = old[j] + 1
		}
		l.UnlockKeys(keys)
		taken += float64(len(keys))
		t.count(1)
	}
	t.end()
	m := &t.slot.metrics
	m[metricTaken], m[metricProbed], m[metricHeld] = taken, looked, held
	t.sink = x
	return nil
}

// Metrics of a multi cell, by their place in the slot.
const (
	metricTaken  = iota // keys
	metricProbed        // holds before which a thread looked whether a key was held
	metricHeld          // and saw one
)

func collectMulti(rep *repetition, a *account) {
	var counted uint64
	for _, n := range a.scratch().counts {
		counted += n
	}
	if taken := uint64(a.sum(metricTaken)); counted != taken {
		rep.violate("the counters under the keys are %d after %d holds", counted, taken)
	}
	if probed := a.sum(metricProbed); probed > 0 {
		rep.Metrics["waited"] = a.sum(metricHeld) / probed
	}
	rep.throughput(a)
}

// checkShape refuses what has no room in the scratch, and reads the skews.
func (o *options) checkShape() error {
	within := func(flag string, least, most int, list ...int) error {
		for _, v := range list {
			if v < least || v > most {
				return fmt.Errorf("%s: %d is not within %d and %d", flag, v, least, most)
			}
		}
		return nil
	}
	for _, err := range []error{
		within("--read", 0, 100, o.Read...), within("--permits", 1, math.MaxInt32, o.Permits...),
		within("--keys", 1, scratchKeys, o.Keys...), within("--locks", 1, maxLocks, o.Locks...),
		within("--waiters", 0, math.MaxInt32, o.Waiters...), within("--wake", 0, math.MaxInt32, o.Wake...), within("--batch", 1, maxBatch, o.Batch...),
		within("--capacity", 1, maxCapacity, o.Capacity...), within("--lines", 1, maxLines, o.Lines...),
	} {
		if err != nil {
			return err
		}
	}
	names := make([]string, len(o.Skew))
	for i, text := range o.Skew {
		var err error
		if _, names[i], err = parseSkew(text); err != nil {
			return err
		}
	}
	o.Skew = names
	return nil
}
