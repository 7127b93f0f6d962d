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
	"github.com/shmsync/shmsync/internal/bench/subjects"
)

// openWorker maps the control page of the measurement, which is open as descriptor 3.
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

// RunWorker runs the worker process with the number proc from its start to its end.
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

// runThreads pins the threads of a process, opens the subject in each, and runs them.
func runThreads(w *bench.Worker, threads []*thread, sc *bench.Scenario) error {
	cpus := cpusOf(threads)
	own := len(threads) == 1 || len(cpus) == len(threads) // each thread has a CPU of its own
	if (len(threads) > 1 || sc.Whole) && len(cpus) > 0 {
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
			if own {
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
			if own {
				select {} // a goroutine that is locked to its thread must not return: the thread would end
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

// cpusOf returns the distinct CPUs of the threads in the plan, or none if the threads are not pinned.
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
		if err := place.PinThread(0, int(t.slot.CPU)); err != nil {
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

// RunHog keeps one CPU busy until the measurement stops.
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
