//go:build linux

package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/shmsync/shmsync"
)

// keyLocker is what multi cells need: a lock for each key of the plan. Keys
// come in ascending order and without repetition.
type keyLocker interface {
	LockKeys(keys []uint32)
	UnlockKeys(keys []uint32)
}

// maxLocks is the most keys that one hold takes.
const maxLocks = 16

// Skews of a multi cell.
const (
	skewUniform = "uniform"
	skewZipf    = "zipf" // the k-th key with a weight of k^-0.99
)

// drawKeys fills in the keys that the workers of a multi cell take in turn.
func drawKeys(draws *[scratchDraws]uint32, keys int, skew string, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 3))
	sums := make([]float64, keys)
	total := 0.0
	for i := range sums {
		weight := 1.0
		if skew == skewZipf {
			weight = math.Pow(float64(i+1), -0.99)
		}
		total += weight
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
	taken := 0.0
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
	t.slot.metrics[metricTaken] = taken
	t.sink = x
	return nil
}

// metricTaken is the place of the number of keys that a thread took in its
// slot.
const metricTaken = 0

func collectMulti(rep *repetition, a *account) {
	var counted uint64
	for _, n := range a.scratch().counts {
		counted += n
	}
	if taken := uint64(a.sum(metricTaken)); counted != taken {
		rep.violate("the counters under the keys are %d after %d holds", counted, taken)
	}
	rep.throughput(a)
}

// checkShape refuses what has no room in the scratch.
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
		within("--capacity", 1, maxCapacity, o.Capacity...),
	} {
		if err != nil {
			return err
		}
	}
	for _, s := range o.Skew {
		if s != skewUniform && s != skewZipf {
			return fmt.Errorf("--skew %q: want %s or %s", s, skewUniform, skewZipf)
		}
	}
	return nil
}
