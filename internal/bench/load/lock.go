//go:build linux

package load

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/asm"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// lockStride is the number of acquisitions from one timed acquisition to the next. Not all are timed, because reading
// the clock twice costs more than a short critical section.
const lockStride = 61

// Threads check from time to time on which CPU they run. The slot of a thread has two metrics about these checks: how
// many checks there were, and how many of them found another CPU than the plan has. These are the indices of the
// metrics.
const (
	metricWhere = iota
	metricAway
)

// inPlace returns the share of the checks, over all threads, that found a thread on the CPU of the plan. The result ok
// is false if no thread made a check. Threads in C make none.
func inPlace(p *control.Page) (share float64, ok bool) {
	var looked, away float64
	for i := range p.Slots() {
		s, _ := p.Slot(i)
		looked += s.Metrics[metricWhere]
		away += s.Metrics[metricAway]
	}
	return 1 - away/looked, looked > 0
}

// workLock contends for one lock. Each thread thinks, locks, counts, works and unlocks, again and again. It reads the
// counter before the work of the critical section and writes it afterwards, so that two simultaneous owners lose
// counts. The cache line of the counter also names the last holder.
func workLock(t *thread) error {
	l, err := as[bench.Locker](t)
	if err != nil {
		return err
	}
	cs := control.Steps(t.CSNs, t.perNs)
	var think [control.Thinks]uint64
	for i, units := range t.Think {
		think[i] = control.Steps(uint64(float64(units)*float64(t.ThinkNs)), t.perNs)
	}
	s, lines := t.Scratch(), min(int(t.Shape.Lines), control.MaxLines)
	from, me := &t.slot.From, uint64(t.index)+1
	var looked, away float64
	t.await()
	measuring := false
	x, t0 := uint64(t.index), int64(0)
	for i := uint64(t.index) * lockStride; ; i++ {
		phase := t.Phase.Load()
		if phase == control.PhaseStop {
			break
		}
		if phase == control.PhaseMeasure && !measuring {
			measuring = true
			t.begin()
		}
		if t.ThinkNs > 0 {
			x = control.Work(think[i%control.Thinks], x)
		}
		sampled := i%lockStride == 0
		if sampled {
			t0 = shmsync.Monotonic()
		}
		l.Lock()
		if sampled && measuring {
			stats.Record(t.counts, shmsync.Monotonic()-t0)
		}
		v := t.Counter
		if last := t.Holder - 1; measuring && last < control.SlotFrom {
			from[last]++
		}
		t.Holder = me
		if lines > 1 {
			t.checkLines(s, lines, v)
		}
		if cs > 0 {
			x = control.Work(cs, x)
		}
		t.Counter = v + 1
		for k := 1; k < lines; k++ {
			s.Counts[k*lineWords] = v + 1
		}
		l.Unlock()
		t.slot.Total++
		if measuring {
			t.slot.Ops++
		}
		if sampled && measuring && t.slot.CPU >= 0 {
			if cpu, _, ok := asm.CPU(); ok {
				looked++
				if int32(cpu) != t.slot.CPU {
					away++
				}
			}
		}
	}
	t.end()
	t.slot.Metrics[metricWhere], t.slot.Metrics[metricAway] = looked, away
	t.sink = x
	return nil
}
