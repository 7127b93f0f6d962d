//go:build linux

package stopstorm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/shm"
)

// worker is a process of a storm, as it sees itself. A storm stops some workers and watches the other workers.
type worker struct {
	page *page
	self *procPage
	a    *arena.Arena
}

// RunWorker is the main function of the worker with the given number. It returns when the parent ends the storm.
func RunWorker(number int) error {
	p, err := mapPage(os.NewFile(control.ControlFD, "page"))
	if err != nil {
		return err
	}
	if p.magic != pageMagic || number < 0 || number >= mostProcs || int(p.prim) >= len(workloads) {
		return errors.New("descriptor 3 is no page of a stop storm")
	}
	if err := work(p, number); err != nil {
		p.fault("worker %d: %v", number, err)
		return err
	}
	return nil
}

func work(p *page, number int) error {
	seg, err := shm.FromFile(os.NewFile(control.SegmentFD, "arena"), nil)
	if err != nil {
		return err
	}
	a, err := arena.FromSegment(seg, &arena.Options{Label: fmt.Sprint("worker ", number)})
	if err != nil {
		return err
	}
	w := &worker{page: p, self: &p.proc[number], a: a}
	lanes, err := workloads[p.prim].open(w)
	if err != nil {
		return err
	}
	w.self.self.Store(uint32(a.Self()))
	go w.beat()
	if step := w.self.step.Load(); step != 0 {
		return w.stepped(lanes[step-1], &w.self.lane[step-1])
	}
	errs := make([]error, len(lanes))
	var wg sync.WaitGroup
	for i, l := range lanes {
		wg.Go(func() { errs[i] = w.run(l, &w.self.lane[i], uint64(number*mostLanes+i)) })
	}
	w.self.ready.Store(1)
	// A goroutine may sleep for ever when the other goroutines have ended, so Wait may never return. This does no
	// harm, because the parent kills this process.
	wg.Wait()
	return errors.Join(errs...)
}

// beat increments a counter after each millisecond in which the goroutines of this process had CPU time. It yields
// twice before each increment, so that other runnable goroutines have run.
func (w *worker) beat() {
	for {
		time.Sleep(time.Millisecond)
		runtime.Gosched()
		runtime.Gosched()
		w.self.beat.Add(1)
	}
}

// run repeats the operation of a lane, which is one goroutine, until the storm is over.
func (w *worker) run(l lane, at *lanePage, seed uint64) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%s: panic: %v\n%s", l.name, v, debug.Stack())
		}
		if err != nil {
			w.page.fault("%s: %v", workloads[w.page.prim].name, err)
		}
	}()
	for w.page.phase.Load() == phaseBegin {
		time.Sleep(100 * time.Microsecond)
	}
	r := rand.New(rand.NewPCG(seed, 1))
	for n := 0; w.page.phase.Load() == phaseRun; n++ {
		if err := l.op(at, r); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		at.at.Store(atOutside)
		at.ops.Add(1)
		spin(r.IntN(1000))
		if n%16 == 0 {
			runtime.Gosched()
		}
	}
	return nil
}

// stepped runs the operation of one lane. It executes the operation once each time the parent increments the word gate,
// so that the parent can single-step the thread.
func (w *worker) stepped(l lane, at *lanePage) error {
	debug.SetGCPercent(-1)
	done := make(chan error)
	onOtherThread(func() {
		r := rand.New(rand.NewPCG(7, 7))
		for range 3 { // the first operations allocate tables and wait nodes
			if err := l.op(at, r); err != nil {
				done <- err
				return
			}
		}
		at.at.Store(atOutside)
		w.self.tid.Store(uint32(unix.Gettid()))
		w.self.ready.Store(1)
		for n := uint32(1); ; n++ {
			for w.self.gate.Load() < n {
			}
			w.self.began.Store(n)
			if err := l.op(at, r); err != nil {
				done <- err
				return
			}
			at.at.Store(atOutside)
			w.self.ended.Store(n)
		}
	})
	return <-done
}

// onOtherThread runs f in a goroutine on a thread that is not the first thread of the process. The parent cannot step
// the first thread, because the parent waits for the end of this thread when it waits for its child process.
func onOtherThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			onOtherThread(f)
			select {}
		}
		f()
	}()
}
