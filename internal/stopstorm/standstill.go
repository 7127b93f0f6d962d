//go:build linux

package stopstorm

import (
	"time"
)

// standstill watches the lanes of all workers but one.
type standstill struct {
	s      *storm
	victim int
	from   time.Time
	seen   [mostProcs][mostLanes]struct {
		ops, beat uint64
		moved     time.Time
		often     int // number of times that the lane was seen to have progressed
		cpu       cpuWait
	}
	gap time.Duration // the longest time without progress
}

// watchOthers begins to watch the lanes of all workers but victim.
func (s *storm) watchOthers(victim int) *standstill {
	w := &standstill{s: s, victim: victim, from: time.Now()}
	w.each(func(i, k int) {
		x := &w.seen[i][k]
		x.ops, x.beat, x.moved = s.page.proc[i].lane[k].ops.Load(), s.page.proc[i].beat.Load(), w.from
	})
	return w
}

// each calls f for each lane of each other worker.
func (w *standstill) each(f func(proc, lane int)) {
	for i := range w.s.procs {
		for k := range w.s.lanes {
			if i != w.victim {
				f(i, k)
			}
		}
	}
}

// sample records which lanes have made progress. Time without a heartbeat does not count.
func (w *standstill) sample() {
	now := time.Now()
	w.each(func(i, k int) {
		x, p := &w.seen[i][k], &w.s.page.proc[i]
		if ops := p.lane[k].ops.Load(); ops != x.ops {
			w.gap = max(w.gap, w.stood(i, k, now))
			x.ops, x.beat, x.moved = ops, p.beat.Load(), now
			x.often++
			x.cpu = cpuWait{}
		} else if tid := p.lane[k].tid.Load(); tid != 0 && now.Sub(x.moved) > laneIsSlow {
			x.cpu.sample(w.s.procs[i].pid(), tid, now)
		}
	})
}

// stood returns how long a lane has stood still. Time in which its process had no CPU time does not count, nor does
// time in which its thread, if it has one, waited for a CPU.
func (w *standstill) stood(i, k int, now time.Time) time.Duration {
	x := &w.seen[i][k]
	// A heartbeat takes a little more than a millisecond. This allows twice that.
	beats := 2 * time.Duration(w.s.page.proc[i].beat.Load()-x.beat+1) * time.Millisecond
	return min(now.Sub(x.moved)-max(x.cpu.waited, 0), beats)
}

// moved reports whether each lane was seen to progress at least often times.
func (w *standstill) moved(often int) bool {
	all := true
	w.each(func(i, k int) { all = all && w.seen[i][k].often >= often })
	return all
}

// lately reports whether each lane has made progress after the time since.
func (w *standstill) lately(since time.Time) bool {
	all := true
	w.each(func(i, k int) { all = all && w.seen[i][k].moved.After(since) })
	return all
}

// still returns the lanes that have made no progress for longer than the bound.
func (w *standstill) still(bound time.Duration) (lanes [][2]int) {
	now := time.Now()
	w.each(func(i, k int) {
		if d := w.stood(i, k, now); d > bound {
			lanes = append(lanes, [2]int{i, k})
			w.gap = max(w.gap, d)
		}
	})
	return lanes
}
