//go:build linux

package load

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
)

// permitter is the interface that sem measurements need of their subject: a counting semaphore with the permits of the
// plan.
type permitter interface {
	Acquire()
	Release()
}

// workSem contends for the permits of a semaphore. Each thread thinks, acquires a permit, checks that there are no more
// holders than permits, works, and releases the permit.
func workSem(t *thread) error {
	p, err := as[permitter](t)
	if err != nil {
		return err
	}
	s := t.Scratch()
	cs, think := control.Steps(t.CSNs, t.perNs), t.thinkSteps()
	permits := int64(t.Shape.Permits)
	most := int64(0)
	x, t0 := uint64(t.index), int64(0)
	t.await()
	for i := uint64(t.index) * lockStride; t.next(); i++ {
		if t.ThinkNs > 0 {
			x = control.Work(think[i%control.Thinks], x)
		}
		sampled := i%lockStride == 0
		if sampled {
			t0 = shmsync.Monotonic()
		}
		p.Acquire()
		if sampled {
			t.sample(t.counts, shmsync.Monotonic()-t0)
		}
		if n := s.Holders.Add(1); n > most {
			if most = n; n > permits {
				t.violate("%d hold a permit of %d", n, permits)
			}
		}
		if cs > 0 {
			x = control.Work(cs, x)
		}
		s.Holders.Add(-1)
		p.Release()
		t.count(1)
	}
	t.end()
	t.slot.Metrics[metricMost] = float64(most)
	t.sink = x
	return nil
}

// metricMost is the index of a metric in the slot: the highest number of permit holders that the thread saw.
const metricMost = 0

func collectSem(rep *bench.Repetition, a *bench.Account) {
	if n := a.Scratch().Holders.Load(); n != 0 {
		rep.Violate("%d hold a permit after everybody has left", n)
	}
	rep.Throughput(a)
	for i := range a.Slots() {
		s, _ := a.Slot(i)
		rep.Metrics["held-max"] = max(rep.Metrics["held-max"], s.Metrics[metricMost])
	}
}
