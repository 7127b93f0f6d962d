//go:build linux

package load

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/internal/bench/place"
	"github.com/shmsync/shmsync/internal/bench/stats"
	"github.com/shmsync/shmsync/internal/bench/subjects"
)

// thread is one measuring goroutine of a worker.
type thread struct {
	*bench.Worker
	index  int // in the cell
	slot   *control.Slot
	counts []uint64 // of the main histogram
	others []uint64 // of the second one
	view   any      // the subject, as opened for this thread
	locked bool
	inside bool // the measured span has begun
	usage  unix.Rusage
	perNs  float64
	sink   uint64 // keeps the work loop's result alive
}

// openWorker joins the cell whose control page is behind descriptor 3.
func openWorker(proc int) (*bench.Worker, error) {
	p, err := control.MapPage(os.NewFile(control.ControlFD, "control"))
	if err != nil {
		return nil, err
	}
	if p.Magic != control.Magic {
		return nil, errors.New("descriptor 3 is no control page")
	}
	name, _, _ := bytes.Cut(p.Prim[:], []byte{0})
	s, err := subjects.Find(string(name))
	if err != nil {
		return nil, err
	}
	w := &bench.Worker{Page: p, Proc: proc, Subject: s, Segment: os.NewFile(control.SegmentFD, "segment")}
	w.Mem, err = unix.Mmap(control.SegmentFD, 0, control.PeerBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return w, nil
}

// RunWorker is the whole life of a worker process.
func RunWorker(proc int) error {
	w, err := openWorker(proc)
	if err != nil {
		return err
	}
	sc := bench.ScenarioByID(w.Scenario)
	if sc == nil || works[sc.Name] == nil {
		return fmt.Errorf("scenario %d is not for this program", w.Scenario)
	}
	n := int(w.Control.Threads)
	first := proc * n
	if sc.Name == "crash" {
		first = crashSlot(proc)
	}
	threads := make([]*thread, n)
	for i := range threads {
		t := &thread{Worker: w, index: first + i}
		t.slot, t.counts = w.Slot(t.index)
		t.others = w.Other(t.index)
		threads[i] = t
	}
	if err := runThreads(w, threads, sc); err != nil {
		threads[0].fail(err)
		return err
	}
	return nil
}

// runThreads pins, opens and runs the threads of a process.
func runThreads(w *bench.Worker, threads []*thread, sc *bench.Scenario) error {
	cpus := cpusOf(threads)
	single := len(threads) == 1
	if (!single || sc.Whole) && len(cpus) > 0 {
		if err := place.PinProcess(cpus...); err != nil {
			return err
		}
	}
	for w.Proc != 0 && w.Setup.Load() == 0 {
		if _, err := shmsync.Wait(control.FutexWord(&w.Setup), 0, 0); err != nil {
			return err
		}
	}
	errs := make(chan error, len(threads))
	var opened sync.WaitGroup
	opened.Add(len(threads))
	var opening sync.Mutex
	for i, t := range threads {
		go func() {
			if single {
				runtime.LockOSThread()
				t.locked = true
			}
			err := t.open(i, cpus, &opening)
			opened.Done()
			if err == nil {
				err = works[sc.Name](t)
			}
			if err != nil {
				t.fail(err)
			}
			errs <- err
			if single {
				select {} // a locked goroutine that returns takes its thread along
			}
		}()
	}
	if w.Proc == 0 {
		opened.Wait()
		w.Setup.Store(1)
		shmsync.Wake(control.FutexWord(&w.Setup), 1<<20)
	}
	var all error
	for range threads {
		all = errors.Join(all, <-errs)
	}
	return all
}

// cpusOf lists the distinct CPUs that the plan names for threads; none where
// they are not pinned.
func cpusOf(threads []*thread) []int {
	var cpus []int
	seen := map[int32]bool{}
	for _, t := range threads {
		if c := t.slot.CPU; c >= 0 && !seen[c] {
			seen[c] = true
			cpus = append(cpus, int(c))
		}
	}
	return cpus
}

func (t *thread) open(i int, cpus []int, opening *sync.Mutex) error {
	if t.locked && len(cpus) > 0 {
		if err := place.PinThread(0, cpus...); err != nil {
			return err
		}
	}
	t.slot.PID = uint32(os.Getpid())
	t.slot.TID = uint32(unix.Gettid())
	opening.Lock()
	defer opening.Unlock()
	t.perNs = control.Calibrate(&t.sink)
	t.slot.ItersPerNs = t.perNs
	view, err := t.Subject.Open(t.Worker, i)
	t.view = view
	return err
}

// await reports the thread ready and returns at the start instant.
func (t *thread) await() {
	t.slot.State.Store(control.SlotReady)
	t.Ready.Add(1)
	for t.Started.Load() == 0 {
		shmsync.Wait(control.FutexWord(&t.Started), 0, 0)
	}
	control.SleepUntil(t.StartNs.Load())
	t.begin()
}

// begin takes the base of what end reports.
func (t *thread) begin() {
	t.slot.StartNs = shmsync.Monotonic()
	t.usage = t.rusage()
}

// next looks at the phase before each step: false once the cell stops.
func (t *thread) next() bool {
	phase := t.Phase.Load()
	if phase == control.PhaseMeasure && !t.inside {
		t.inside = true
		t.begin()
	}
	return phase != control.PhaseStop
}

// count counts n operations.
func (t *thread) count(n uint64) {
	t.slot.Total += n
	if t.inside {
		t.slot.Ops += n
	}
}

// sample records a latency of the measured span.
func (t *thread) sample(counts []uint64, ns int64) {
	if t.inside {
		stats.Record(counts, ns)
	}
}

// thinkSteps gives the steps of work of each think time of the plan.
func (t *thread) thinkSteps() *[control.Thinks]uint64 {
	table := new([control.Thinks]uint64)
	for i, units := range t.Think {
		table[i] = control.Steps(uint64(float64(units)*float64(t.ThinkNs)), t.perNs)
	}
	return table
}

// end closes the measured span.
func (t *thread) end() {
	t.slot.EndNs = shmsync.Monotonic()
	u := t.rusage()
	if t.locked || t.index%int(t.Control.Threads) == 0 {
		t.slot.Nvcsw = uint64(u.Nvcsw - t.usage.Nvcsw)
		t.slot.Nivcsw = uint64(u.Nivcsw - t.usage.Nivcsw)
		t.slot.UserNs = uint64(u.Utime.Nano() - t.usage.Utime.Nano())
		t.slot.SysNs = uint64(u.Stime.Nano() - t.usage.Stime.Nano())
	}
	t.slot.State.Store(control.SlotDone)
}

// rusage is the thread's own where the goroutine keeps its thread, else the
// process's, which the first thread reports for all.
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

// violate counts a broken promise of the subject and keeps the first in words.
func (t *thread) violate(format string, args ...any) {
	if t.slot.Violations == 0 {
		n := copy(t.slot.Message[:control.MessageBytes-1], fmt.Sprintf(format, args...))
		t.slot.Message[n] = 0
	}
	t.slot.Violations++
}

// as gives the thread's view of the subject as what the scenario needs.
func as[T any](t *thread) (T, error) {
	v, ok := t.view.(T)
	if !ok {
		return v, fmt.Errorf("%s does not implement %T", t.Subject.Name(), (*T)(nil))
	}
	return v, nil
}

// RunHog keeps one CPU busy until the cell stops.
func RunHog(cpu int, idle bool) error {
	p, err := control.MapPage(os.NewFile(control.ControlFD, "control"))
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := place.PinThread(0, cpu); err != nil {
		return err
	}
	if idle {
		if err := schedIdle(); err != nil {
			return err
		}
	}
	for x := uint64(0); p.Phase.Load() != control.PhaseStop; {
		x = control.Work(10_000, x)
	}
	return nil
}
