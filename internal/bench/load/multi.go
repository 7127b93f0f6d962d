//go:build linux

package load

import (
	"slices"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
)

// keyLocker is the interface that multi measurements need of their subject: a lock for each key of the plan. The keys
// of a call are in ascending order and without repetition.
type keyLocker interface {
	LockKeys(keys []uint32)
	UnlockKeys(keys []uint32)
}

// keyProber is a keyLocker that can check whether any of the given keys is held.
type keyProber interface {
	Held(keys []uint32) bool
}

// workMulti locks sets of keys, and increments a counter for each key while it holds the key.
func workMulti(t *thread) error {
	l, err := as[keyLocker](t)
	if err != nil {
		return err
	}
	s := t.Scratch()
	cs, think := control.Steps(t.CSNs, t.perNs), t.thinkSteps()
	locks := int(t.Shape.Locks)
	var room [control.MaxLocks]uint32
	var old [control.MaxLocks]uint64
	prober, _ := l.(keyProber)
	taken, looked, held := 0.0, 0.0, 0.0
	x, t0 := uint64(t.index), int64(0)
	at := uint64(t.index) * control.ScratchDraws / uint64(t.Procs*t.Control.Threads)
	t.await()
	for i := uint64(t.index) * lockStride; t.next(); i++ {
		if t.ThinkNs > 0 {
			x = control.Work(think[i%control.Thinks], x)
		}
		keys := room[:0]
		for range locks {
			keys = append(keys, s.Draws[at%control.ScratchDraws])
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
			old[j] = s.Counts[k]
		}
		if cs > 0 {
			x = control.Work(cs, x)
		}
		for j, k := range keys {
			s.Counts[k] = old[j] + 1
		}
		l.UnlockKeys(keys)
		taken += float64(len(keys))
		t.count(1)
	}
	t.end()
	m := &t.slot.Metrics
	m[metricTaken], m[metricProbed], m[metricHeld] = taken, looked, held
	t.sink = x
	return nil
}

// These are the indices of metrics in the slot of a thread of a multi measurement.
const (
	metricTaken  = iota // number of keys that the thread locked
	metricProbed        // number of times that the thread checked, before it locked keys, whether one of them was held
	metricHeld          // number of these checks that found a held key
)

func collectMulti(rep *bench.Repetition, a *bench.Account) {
	var counted uint64
	for _, n := range a.Scratch().Counts {
		counted += n
	}
	if taken := uint64(a.Sum(metricTaken)); counted != taken {
		rep.Violate("the counters under the keys are %d after %d holds", counted, taken)
	}
	if probed := a.Sum(metricProbed); probed > 0 {
		rep.Metrics["waited"] = a.Sum(metricHeld) / probed
	}
	rep.Throughput(a)
}
