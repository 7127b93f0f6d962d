//go:build linux

package main

import "github.com/shmsync/shmsync"

// lockStride is how many acquisitions lie between two timed ones: two clock
// readings cost more than a short section.
const lockStride = 61

// workLock contends for one lock: think, lock, count, work, unlock. The counter
// is read before the critical section's work and written after it, so that two
// owners at a time lose counts. In the line of the counter is who held the lock last.
func workLock(t *thread) error {
	l, err := as[locker](t)
	if err != nil {
		return err
	}
	cs := steps(t.csNs, t.perNs)
	var think [thinks]uint64
	for i, units := range t.think {
		think[i] = steps(uint64(float64(units)*float64(t.thinkNs)), t.perNs)
	}
	s, lines := t.scratch(), min(int(t.shape.Lines), maxLines)
	from, me := &t.slot.from, uint64(t.index)+1
	t.await()
	measuring := false
	x, t0 := uint64(t.index), int64(0)
	for i := uint64(t.index) * lockStride; ; i++ {
		phase := t.phase.Load()
		if phase == phaseStop {
			break
		}
		if phase == phaseMeasure && !measuring {
			measuring = true
			t.begin()
		}
		if t.thinkNs > 0 {
			x = work(think[i%thinks], x)
		}
		sampled := i%lockStride == 0
		if sampled {
			t0 = shmsync.Monotonic()
		}
		l.Lock()
		if sampled && measuring {
			record(t.counts, shmsync.Monotonic()-t0)
		}
		v := t.counter
		if last := t.holder - 1; measuring && last < slotFrom {
			from[last]++
		}
		t.holder = me
		if lines > 1 {
			t.checkLines(s, lines, v)
		}
		if cs > 0 {
			x = work(cs, x)
		}
		t.counter = v + 1
		for k := 1; k < lines; k++ {
			s.counts[k*lineWords] = v + 1
		}
		l.Unlock()
		t.slot.total++
		if measuring {
			t.slot.ops++
		}
	}
	t.end()
	t.sink = x
	return nil
}
