//go:build linux

package stopstorm

import (
	"time"
)

// standstill records when each lane last made progress, for all workers except one. A lane is a goroutine or thread
// that repeats one operation.
type standstill struct {
	s      *storm
	victim int
	from   time.Time
	seen   [mostProcs][mostLanes]struct {
		ops, beat uint64
		moved     time.Time
		often     int // how often a sample found that the lane had made progress
		cpu       cpuWait
	}
	gap time.Duration // the longest time in which any lane made no progress
}

// watchOthers begins to watch the progress of all workers except the one with the number victim.
func (s *storm) watchOthers(victim int) *standstill {
	w := &standstill{s: s, victim: victim, from: time.Now()}
	w.each(func(i, k int) {
		x := &w.seen[i][k]
		x.ops, x.beat, x.moved = s.page.proc[i].lane[k].ops.Load(), s.page.proc[i].beat.Load(), w.from
	})
	return w
}

// each calls f for each lane, that is, each operation, of each worker that is watched.
func (w *standstill) each(f func(proc, lane int)) {
	for i := range w.s.procs {
		for k := range w.s.lanes {
			if i != w.victim {
				f(i, k)
			}
		}
	}
}

// sample records which lanes have made progress since the last sample.
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

// stood returns how long lane k of worker i has made no progress. It does not count the time in which the process
// of the worker did not run. If the lane has a thread of its own, it does not count the time in which the thread
// waited for a CPU, either.
func (w *standstill) stood(i, k int, now time.Time) time.Duration {
	x := &w.seen[i][k]
	// The worker counts a heartbeat after little more than a millisecond of CPU time. Two milliseconds for each
	// heartbeat are a safe upper limit.
	beats := 2 * time.Duration(w.s.page.proc[i].beat.Load()-x.beat+1) * time.Millisecond
	return min(now.Sub(x.moved)-max(x.cpu.waited, 0), beats)
}

// moved reports whether at least the given number of samples have found progress, for each watched lane.
func (w *standstill) moved(often int) bool {
	all := true
	w.each(func(i, k int) { all = all && w.seen[i][k].often >= often })
	return all
}

// lately reports whether each watched lane has made progress after the given time.
func (w *standstill) lately(since time.Time) bool {
	all := true
	w.each(func(i, k int) { all = all && w.seen[i][k].moved.After(since) })
	return all
}

// still returns the watched lanes that have made no progress for longer than the bound. A lane is given as the numbers
// of its worker and of its operation.
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
