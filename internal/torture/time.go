//go:build linux

package torture

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// lapse is a period, from one time to another, in nanoseconds.
type lapse struct{ from, to int64 }

// covered returns the total length of the periods in the lists. Time that several periods have in common counts once.
func covered(lists ...[]lapse) (sum int64) {
	all := slices.Concat(lists...)
	slices.SortFunc(all, func(x, y lapse) int { return cmp.Compare(x.from, y.from) })
	end := int64(0)
	for _, x := range all {
		if x.to > end {
			sum += x.to - max(x.from, end)
			end = x.to
		}
	}
	return sum
}

// measure records how long an operation took, and reports a broken promise if that was too long. j is the index of the
// job, and g is the number of the goroutine.
func (p *party) measure(j, g int, from, to int64) {
	s := p.worker
	s.counts[tortureTurns][stats.HistIndex(to-from)].Add(1)
	for worst := &s.worst[j]; ; {
		if is := worst.Load(); is >= to-from || worst.CompareAndSwap(is, to-from) {
			break
		}
	}
	first := to
	p.page.deaths.each(from, to, func(at, _ int64) { first = min(first, at) })
	if first != to {
		s.counts[tortureInherited][stats.HistIndex(to-first)].Add(1)
	}
	if to-from <= p.page.bound {
		return
	}
	s.long.Add(1)
	var stopped, waited []lapse
	for range 10 { // several tries, because a wait for a CPU is recorded only when it has ended
		stopped, waited = p.page.excuses(from, to)
		if to-from-covered(stopped, waited) <= p.page.bound {
			return
		}
		time.Sleep(5 * controlPeriod)
	}
	s.beyond.Add(1)
	if p.page.busy.Load() > busyMost {
		s.others.Add(1)
		return
	}
	p.page.fault("%s: goroutine %d was at %s for %v, of which %v passed after the first death, %v with somebody stopped, %v with a thread kept waiting for a CPU",
		p.label, g, jobs[j].name, time.Duration(to-from), time.Duration(to-first), time.Duration(covered(stopped)), time.Duration(covered(waited)))
}

// excuses returns the periods between two times for which the library is not to blame. The first list has the periods
// in which a process was stopped, and the second list has the periods in which a thread waited for a CPU.
func (p *torturePage) excuses(from, to int64) (stopped, waited []lapse) {
	add := func(list *[]lapse) func(from, to int64) {
		return func(from, to int64) { *list = append(*list, lapse{from, to}) }
	}
	control := func(noise *spans, until *atomic.Int64) {
		noise.each(from, to, add(&waited))
		if late := until.Load(); late != 0 && late < to {
			waited = append(waited, lapse{max(from, late), to})
		}
	}
	p.stops.each(from, to, add(&stopped))
	for s := range p.workers {
		control(&p.worker[s].noise, &p.worker[s].until)
	}
	for l := range p.lane {
		control(&p.lane[l].noise, &p.lane[l].until)
	}
	return stopped, waited
}

const (
	controlPeriod = 2 * time.Millisecond
	controlWork   = 200 * time.Microsecond // CPU time that a control thread takes in each period
	controlNoise  = 500 * time.Microsecond // shortest delay that is recorded
)

// controlThread measures how long a thread of this process waits for a CPU. On a thread of its own, it repeatedly
// sleeps, computes for a short time, and records how late it is. It has to compute, because a thread that only sleeps
// gets a CPU at once, even if many other threads want one. In a resident, controlThread also records how long each
// other thread of the process has waited.
func (p *party) controlThread(noise *spans, until *atomic.Int64, counts *[stats.HistBuckets]atomic.Uint64) {
	runtime.LockOSThread()
	threads := map[string]*threadDelay{}
	for n := 0; ; n++ {
		target := shmsync.Monotonic() + int64(controlPeriod)
		until.Store(target)
		control.SleepUntil(target)
		for end := threadCPU() + int64(controlWork); threadCPU() < end; {
		}
		now := shmsync.Monotonic() - int64(controlWork)
		until.Store(now + int64(time.Second)) // this thread has a second for the work below before it counts as late
		if now-target > int64(controlNoise) {
			noise.end(noise.begin(target), now)
		}
		if counts == nil {
			continue
		}
		counts[stats.HistIndex(now-target)].Add(1)
		if n%32 == 0 {
			findThreads(os.Getpid(), threads)
		}
		p.noteDelays(threads, now)
	}
}

// noteDelays records how long the threads of a resident have waited for a CPU since the last call.
func (p *party) noteDelays(threads map[string]*threadDelay, now int64) {
	noise := &p.worker.noise
	for _, t := range threads {
		if d := t.more(); d > int64(controlNoise) {
			noise.end(noise.begin(now-d), now)
		}
	}
}

// threadDelay reads how long a thread has waited for a CPU, as the kernel counts it in schedstat.
type threadDelay struct {
	file *os.File
	last int64
}

// findThreads adds those threads of a process that are not in the map yet.
func findThreads(pid int, threads map[string]*threadDelay) {
	dir := fmt.Sprintf("/proc/%d/task/", pid)
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, task := range tasks {
		if threads[task.Name()] != nil {
			continue
		}
		if f, err := os.Open(dir + task.Name() + "/schedstat"); err == nil {
			t := &threadDelay{file: f}
			t.more()
			threads[task.Name()] = t
		}
	}
}

func closeThreads(threads map[string]*threadDelay) {
	for _, t := range threads {
		t.file.Close()
	}
}

// more returns for how long the thread has waited for a CPU since the last call.
func (t *threadDelay) more() (d int64) {
	var b [64]byte
	n, err := t.file.ReadAt(b[:], 0)
	if n == 0 && err != nil {
		return 0 // the thread is gone, or the kernel does not count
	}
	fields := strings.Fields(string(b[:n]))
	if len(fields) < 2 {
		return 0
	}
	now, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	d, t.last = now-t.last, now
	return d
}

// threadCPU returns the CPU time that the calling thread has used, in nanoseconds.
func threadCPU() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0
	}
	return ts.Nano()
}

// controlGoroutine measures how late a goroutine wakes from a sleep. The result appears only in the report.
func (p *party) controlGoroutine() {
	for {
		target := shmsync.Monotonic() + int64(controlPeriod)
		time.Sleep(controlPeriod)
		p.worker.counts[tortureGoroutine][stats.HistIndex(since(target))].Add(1)
	}
}
