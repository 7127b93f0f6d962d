//go:build linux

package main

import "github.com/shmsync/shmsync"

// meeting is what barrier cells need: Meet returns when every thread of the
// cell has called it as often as the caller.
type meeting interface{ Meet() }

// workBarrier meets again and again. After each phase every party must have
// come to it, and nobody further than the next one.
func workBarrier(t *thread) error {
	b, err := as[meeting](t)
	if err != nil {
		return err
	}
	s := t.scratch()
	parties := s.phases[:t.procs*t.control.threads]
	cs := steps(t.csNs, t.perNs)
	x := uint64(t.index)
	t.await()
	t0 := shmsync.Monotonic()
	for phase := uint64(1); ; phase++ {
		// The first thread says which phase is the last before it comes to it.
		if more := t.next(); t.index == 0 && !more {
			s.round.Store(phase)
		}
		if cs > 0 {
			x = work(cs, x)
		}
		parties[t.index].at.Store(phase)
		b.Meet()
		for i := range parties {
			if at := parties[i].at.Load(); at != phase && at != phase+1 {
				t.violate("after phase %d party %d is in %d", phase, i, at)
			}
		}
		t1 := shmsync.Monotonic()
		if t.index == 0 {
			t.sample(t.counts, t1-t0)
		}
		t0 = t1
		t.count(1)
		if s.round.Load() == phase {
			break
		}
	}
	t.end()
	t.sink = x
	return nil
}

func collectBarrier(rep *repetition, a *account) {
	s0, _ := a.slot(0)
	for i := range a.slots() {
		if s, _ := a.slot(i); s.total != s0.total {
			rep.violate("party %d went through %d phases, party 0 through %d", i, s.total, s0.total)
		}
	}
	a.ops /= uint64(a.slots())
	rep.throughput(a)
}
