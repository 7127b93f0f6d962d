//go:build linux

package load

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// workUncontended times batches of lock and unlock by one thread. After each batch it times one single pair of lock and
// unlock, because the mean of a batch hides a slow pair.
func workUncontended(t *thread) error {
	p, err := as[bench.Pairer](t)
	if err != nil {
		return err
	}
	t.await()
	n := t.Batch
	measuring := false
	for {
		phase := t.Phase.Load()
		if phase == control.PhaseStop {
			break
		}
		if phase == control.PhaseMeasure && !measuring {
			measuring = true
			t.begin()
		}
		t0 := shmsync.Monotonic()
		p.Pairs(int(n), &t.Counter)
		t1 := shmsync.Monotonic()
		t.slot.Total += n
		if measuring {
			t.slot.Ops += n
			stats.Record(t.counts, t1-t0)
			t0 = shmsync.Monotonic()
			p.Pairs(1, &t.Counter)
			stats.Record(t.others, shmsync.Monotonic()-t0)
			t.slot.Total++
			t.slot.Ops++
		}
	}
	t.end()
	return nil
}
