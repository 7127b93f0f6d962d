//go:build linux

package load

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// thread is one measuring goroutine of a worker.
type thread struct {
	*bench.Worker
	index  int // index of the thread in the cell
	slot   *control.Slot
	counts []uint64 // counters of the main histogram
	others []uint64 // counters of the second histogram
	view   any      // the subject, as opened for this thread
	locked bool
	inside bool // the warm-up is over, see the method next
	usage  unix.Rusage
	perNs  float64
	sink   uint64 // results of the work loop; because they are stored, the compiler keeps the loop
}

// await reports that the thread is ready, and returns at the instant at which all threads start.
func (t *thread) await() {
	t.slot.State.Store(control.SlotReady)
	t.Ready.Add(1)
	for t.Started.Load() == 0 {
		shmsync.Wait(control.FutexWord(&t.Started), 0, 0)
	}
	control.SleepUntil(t.StartNs.Load())
	t.begin()
}

// begin reads the clock and the resource usage. The method end subtracts these values from its own readings.
func (t *thread) begin() {
	t.slot.StartNs = shmsync.Monotonic()
	t.usage = t.rusage()
}

// next is called before each step of a loop. It begins the measured span when the parent has ended the warm-up. It
// returns false when the parent has stopped the measurement.
func (t *thread) next() bool {
	phase := t.Phase.Load()
	if phase == control.PhaseMeasure && !t.inside {
		t.inside = true
		t.begin()
	}
	return phase != control.PhaseStop
}

// count adds n to the number of operations.
func (t *thread) count(n uint64) {
	t.slot.Total += n
	if t.inside {
		t.slot.Ops += n
	}
}

// sample records a latency in the counters of a histogram. It does nothing before the warm-up is over.
func (t *thread) sample(counts []uint64, ns int64) {
	if t.inside {
		stats.Record(counts, ns)
	}
}

// thinkSteps converts each think time of the plan, a pause between two operations, to a number of steps of work.
func (t *thread) thinkSteps() *[control.Thinks]uint64 {
	table := new([control.Thinks]uint64)
	for i, units := range t.Think {
		table[i] = control.Steps(uint64(float64(units)*float64(t.ThinkNs)), t.perNs)
	}
	return table
}

// end ends the measured span and writes the results of the thread into its slot of the control page.
func (t *thread) end() {
	t.slot.EndNs = shmsync.Monotonic()
	u := t.rusage()
	if t.locked || t.index%int(t.Control.Threads) == 0 {
		// The counts that the kernel reports for a process may decrease a little. Therefore the difference is at least
		// 0.
		t.slot.Nvcsw = uint64(max(u.Nvcsw-t.usage.Nvcsw, 0))
		t.slot.Nivcsw = uint64(max(u.Nivcsw-t.usage.Nivcsw, 0))
		t.slot.UserNs = uint64(max(u.Utime.Nano()-t.usage.Utime.Nano(), 0))
		t.slot.SysNs = uint64(max(u.Stime.Nano()-t.usage.Stime.Nano(), 0))
	}
	t.slot.State.Store(control.SlotDone)
}

// rusage returns the resource usage of the OS thread if the goroutine is locked to it. Otherwise rusage returns the
// usage of the whole process, and only the first measuring goroutine of the process reports it.
func (t *thread) rusage() unix.Rusage {
	var u unix.Rusage
	who := unix.RUSAGE_SELF
	if t.locked {
		who = unix.RUSAGE_THREAD
	}
	if err := unix.Getrusage(who, &u); err != nil {
		return unix.Rusage{}
	}
	return u
}

func (t *thread) fail(err error) {
	n := copy(t.slot.Message[:control.MessageBytes-1], err.Error())
	t.slot.Message[n] = 0
	t.slot.State.Store(control.SlotFailed)
}

// unplaced stores in the slot the reason why the kernel does not report where the pages of this thread are. The slot
// has room for one text only. If it already has the text of a violation, unplaced does nothing.
func (t *thread) unplaced(err error) {
	if t.slot.Violations == 0 {
		copy(t.slot.Message[:control.MessageBytes-1], err.Error())
	}
}

// violate counts a broken promise of the subject. It keeps the text of the first broken promise.
func (t *thread) violate(format string, args ...any) {
	if t.slot.Violations == 0 {
		n := copy(t.slot.Message[:control.MessageBytes-1], fmt.Sprintf(format, args...))
		t.slot.Message[n] = 0
	}
	t.slot.Violations++
}

// The function as returns the subject, as opened for this thread, converted to the interface T that the scenario needs.
func as[T any](t *thread) (T, error) {
	v, ok := t.view.(T)
	if !ok {
		return v, fmt.Errorf("%s does not implement %T", t.Subject.Name(), (*T)(nil))
	}
	return v, nil
}
