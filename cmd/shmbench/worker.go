//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
)

// worker is one process under measurement, as its threads see it.
type worker struct {
	*page
	proc    int
	subject *subject
	segment *os.File // what the subject lives in
	mem     []byte   // the part of it that peers use

	mu    sync.Mutex
	local any // state that the threads of this process share
}

// thread is one measuring goroutine of a worker.
type thread struct {
	*worker
	index  int // in the cell
	slot   *slot
	counts []uint64 // of the main histogram
	others []uint64 // of the second one
	view   any      // the subject, as opened for this thread
	locked bool
	inside bool // the measured span has begun
	usage  unix.Rusage
	perNs  float64
	sink   uint64 // keeps the work loop's result alive
}

// Shared gives the process's own state of the subject, made by the first
// thread that asks.
func (w *worker) Shared(create func() (any, error)) (any, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.local == nil {
		v, err := create()
		if err != nil {
			return nil, err
		}
		w.local = v
	}
	return w.local, nil
}

// File gives inherited descriptor i of the subject.
func (w *worker) File(i int) int { return firstSubjectFD + i }

// Word gives a 32-bit word of the segment, a cache line each.
func (w *worker) Word(line int) *atomic.Uint32 { return wordAt(w.mem, line*64) }

// openWorker joins the cell whose control page is behind descriptor 3.
func openWorker(proc int) (*worker, error) {
	p, err := mapPage(os.NewFile(controlFD, "control"))
	if err != nil {
		return nil, err
	}
	if p.magic != controlMagic {
		return nil, errors.New("descriptor 3 is no control page")
	}
	name, _, _ := bytes.Cut(p.prim[:], []byte{0})
	s, err := findSubject(string(name))
	if err != nil {
		return nil, err
	}
	w := &worker{page: p, proc: proc, subject: s, segment: os.NewFile(segmentFD, "segment")}
	w.mem, err = unix.Mmap(segmentFD, 0, peerBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return w, nil
}

// runWorker is the whole life of a worker process.
func runWorker(proc int) error {
	w, err := openWorker(proc)
	if err != nil {
		return err
	}
	sc := scenarioByID(w.scenario)
	if sc == nil || sc.work == nil {
		return fmt.Errorf("scenario %d is not for this program", w.scenario)
	}
	n := int(w.control.threads)
	first := proc * n
	if sc.name == "crash" {
		first = crashSlot(proc)
	}
	threads := make([]*thread, n)
	for i := range threads {
		t := &thread{worker: w, index: first + i}
		t.slot, t.counts = w.slot(t.index)
		t.others = w.other(t.index)
		threads[i] = t
	}
	if err := w.start(threads, sc); err != nil {
		threads[0].fail(err)
		return err
	}
	return nil
}

// start pins, opens and runs the threads of a process.
func (w *worker) start(threads []*thread, sc *scenario) error {
	cpus := cpusOf(threads)
	single := len(threads) == 1
	if (!single || sc.whole) && len(cpus) > 0 {
		if err := pinProcess(cpus...); err != nil {
			return err
		}
	}
	for w.proc != 0 && w.setup.Load() == 0 {
		if _, err := shmsync.Wait(futexWord(&w.setup), 0, 0); err != nil {
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
				err = sc.work(t)
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
	if w.proc == 0 {
		opened.Wait()
		w.setup.Store(1)
		shmsync.Wake(futexWord(&w.setup), 1<<20)
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
		if c := t.slot.cpu; c >= 0 && !seen[c] {
			seen[c] = true
			cpus = append(cpus, int(c))
		}
	}
	return cpus
}

func (t *thread) open(i int, cpus []int, opening *sync.Mutex) error {
	if t.locked && len(cpus) > 0 {
		if err := pinThread(0, cpus...); err != nil {
			return err
		}
	}
	t.slot.pid = uint32(os.Getpid())
	t.slot.tid = uint32(unix.Gettid())
	opening.Lock()
	defer opening.Unlock()
	t.perNs = calibrate(&t.sink)
	t.slot.itersPerNs = t.perNs
	view, err := t.subject.Open(t.worker, i)
	t.view = view
	return err
}

// await reports the thread ready and returns at the start instant.
func (t *thread) await() {
	t.slot.state.Store(slotReady)
	t.ready.Add(1)
	for t.started.Load() == 0 {
		shmsync.Wait(futexWord(&t.started), 0, 0)
	}
	sleepUntil(t.startNs.Load())
	t.begin()
}

// begin takes the base of what end reports.
func (t *thread) begin() {
	t.slot.startNs = shmsync.Monotonic()
	t.usage = t.rusage()
}

// next looks at the phase before each step: false once the cell stops.
func (t *thread) next() bool {
	phase := t.phase.Load()
	if phase == phaseMeasure && !t.inside {
		t.inside = true
		t.begin()
	}
	return phase != phaseStop
}

// count counts n operations.
func (t *thread) count(n uint64) {
	t.slot.total += n
	if t.inside {
		t.slot.ops += n
	}
}

// sample records a latency of the measured span.
func (t *thread) sample(counts []uint64, ns int64) {
	if t.inside {
		record(counts, ns)
	}
}

// thinkSteps gives the steps of work of each think time of the plan.
func (t *thread) thinkSteps() *[thinks]uint64 {
	table := new([thinks]uint64)
	for i, units := range t.think {
		table[i] = steps(uint64(float64(units)*float64(t.thinkNs)), t.perNs)
	}
	return table
}

// end closes the measured span.
func (t *thread) end() {
	t.slot.endNs = shmsync.Monotonic()
	u := t.rusage()
	if t.locked || t.index%int(t.control.threads) == 0 {
		t.slot.nvcsw = uint64(u.Nvcsw - t.usage.Nvcsw)
		t.slot.nivcsw = uint64(u.Nivcsw - t.usage.Nivcsw)
		t.slot.userNs = uint64(u.Utime.Nano() - t.usage.Utime.Nano())
		t.slot.sysNs = uint64(u.Stime.Nano() - t.usage.Stime.Nano())
	}
	t.slot.state.Store(slotDone)
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
	n := copy(t.slot.message[:messageBytes-1], err.Error())
	t.slot.message[n] = 0
	t.slot.state.Store(slotFailed)
}

// violate counts a broken promise of the subject and keeps the first in words.
func (t *thread) violate(format string, args ...any) {
	if t.slot.violations == 0 {
		n := copy(t.slot.message[:messageBytes-1], fmt.Sprintf(format, args...))
		t.slot.message[n] = 0
	}
	t.slot.violations++
}

// as gives the thread's view of the subject as what the scenario needs.
func as[T any](t *thread) (T, error) {
	v, ok := t.view.(T)
	if !ok {
		return v, fmt.Errorf("%s does not implement %T", t.subject.Name(), (*T)(nil))
	}
	return v, nil
}

// sleepUntil sleeps until an absolute CLOCK_MONOTONIC instant.
func sleepUntil(ns int64) {
	ts := unix.NsecToTimespec(ns)
	for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil) == unix.EINTR {
	}
}

// runHog keeps one CPU busy until the cell stops.
func runHog(cpu int, idle bool) error {
	p, err := mapPage(os.NewFile(controlFD, "control"))
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := pinThread(0, cpu); err != nil {
		return err
	}
	if idle {
		if err := schedIdle(); err != nil {
			return err
		}
	}
	for x := uint64(0); p.phase.Load() != phaseStop; {
		x = work(10_000, x)
	}
	return nil
}
