//go:build linux

package main

import "github.com/shmsync/shmsync"

// uncontendedBatch is how many pairs one sample spans: reading the clock costs
// as much as a pair.
const uncontendedBatch = 1000

// workUncontended times batches of lock and unlock by one thread.
func workUncontended(t *thread) error {
	p, err := as[pairer](t)
	if err != nil {
		return err
	}
	t.await()
	n := t.batch
	measuring := false
	for {
		phase := t.phase.Load()
		if phase == phaseStop {
			break
		}
		if phase == phaseMeasure && !measuring {
			measuring = true
			t.begin()
		}
		t0 := shmsync.Monotonic()
		p.Pairs(int(n), &t.counter)
		t1 := shmsync.Monotonic()
		t.slot.total += n
		if measuring {
			t.slot.ops += n
			record(t.counts, t1-t0)
		}
	}
	t.end()
	return nil
}
