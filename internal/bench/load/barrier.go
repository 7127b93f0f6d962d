//go:build linux

package load

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
)

// meeting is the interface that the barrier scenario needs of its subject. Meet returns when every thread of the
// measurement has called Meet as often as the caller has.
type meeting interface{ Meet() }

// workBarrier calls Meet repeatedly. After each phase it checks that every thread has reached this phase, and that no
// thread is beyond the next phase.
func workBarrier(t *thread) error {
	b, err := as[meeting](t)
	if err != nil {
		return err
	}
	s := t.Scratch()
	parties := s.Phases[:t.Procs*t.Control.Threads]
	cs := control.Steps(t.CSNs, t.perNs)
	x := uint64(t.index)
	t.await()
	t0 := shmsync.Monotonic()
	for phase := uint64(1); ; phase++ {
		// Thread 0 announces the last phase before it arrives for this phase. So all threads see the announcement when
		// the phase is complete, and stop.
		if more := t.next(); t.index == 0 && !more {
			s.Round.Store(phase)
		}
		if cs > 0 {
			x = control.Work(cs, x)
		}
		parties[t.index].At.Store(phase)
		b.Meet()
		for i := range parties {
			if at := parties[i].At.Load(); at != phase && at != phase+1 {
				t.violate("after phase %d party %d is in %d", phase, i, at)
			}
		}
		t1 := shmsync.Monotonic()
		if t.index == 0 {
			t.sample(t.counts, t1-t0)
		}
		t0 = t1
		t.count(1)
		if s.Round.Load() == phase {
			break
		}
	}
	t.end()
	t.sink = x
	return nil
}

func collectBarrier(rep *bench.Repetition, a *bench.Account) {
	s0, _ := a.Slot(0)
	for i := range a.Slots() {
		if s, _ := a.Slot(i); s.Total != s0.Total {
			rep.Violate("party %d went through %d phases, party 0 through %d", i, s.Total, s0.Total)
		}
	}
	a.Ops /= uint64(a.Slots())
	rep.Throughput(a)
}
