//go:build linux

package prims_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// A signalSite has the objects that one process of a test uses: the waker, and the counts of its queues. The items of a
// queue are consecutive numbers. So a queue is represented by two counts: how many items were pushed, and how many of
// them were executed.

const signalQueues = 16 // eight queues for each of two signals

// signalBoard is the data that the processes share in addition to the waker.
type signalBoard struct {
	Queue [signalQueues]struct {
		Pushed atomic.Uint64
		Done   atomic.Uint64
		Tag    atomic.Uint64 // the tag of the executor
		Runs   atomic.Uint64
		_      [96]byte
	}
}

type signalSite struct {
	a       *arena.Arena
	w       *prims.SignalWaker
	board   *signalBoard
	tag     atomic.Uint64
	stopped atomic.Bool
	lingers bool // executions take long, so that most kills of the process come during one
	wg      sync.WaitGroup
	fail    func(error)
}

func openSignalSite(a *arena.Arena, fail func(error)) (*signalSite, error) {
	s := &signalSite{a: a, fail: fail}
	s.tag.Store(uint64(os.Getpid()) << 32)
	w, err := prims.OpenSignalWaker(a, "w", nil)
	board, e := arena.Value[signalBoard](a, "board")
	s.w, s.board = w, board
	return s, cmp.Or(err, e)
}

func queueAt(k int) int { return k%2*64 + k/2 }

func placeOf(queue int) (k int, ok bool) {
	return queue%64*2 + queue/64, queue%64 < signalQueues/2 && queue < 128
}

// push puts an item into a queue.
func (s *signalSite) push(k int) {
	s.board.Queue[k].Pushed.Add(1)
	s.w.Gate(queueAt(k)).Schedule()
}

// execute executes a queue, and checks that no other goroutine executes it at the same time.
func (s *signalSite) execute(g *prims.Gate) {
	k, ok := placeOf(g.Queue())
	if !ok {
		g.Finish()
		return
	}
	q, tag := &s.board.Queue[k], s.tag.Add(1)
	q.Tag.Store(tag)
	q.Runs.Add(1)
	n := q.Pushed.Load()
	end := time.Now()
	if s.lingers {
		end = end.Add(time.Duration(rand.IntN(5000)) * time.Microsecond)
	}
	for i := rand.IntN(200); i > 0 || time.Now().Before(end); i-- {
		if is := q.Tag.Load(); is != tag {
			s.fail(fmt.Errorf("queue %d is executed by %#x, and by %#x", g.Queue(), tag, is))
			return
		}
	}
	q.Done.Store(max(n, q.Done.Load()))
	if is := q.Tag.Load(); is != tag {
		s.fail(fmt.Errorf("queue %d is executed by %#x, and by %#x", g.Queue(), tag, is))
		return
	}
	if rand.IntN(16) == 0 {
		g.FinishAndSchedule()
	} else {
		g.Finish()
	}
}

// worker executes queues until stop is called.
func (s *signalSite) worker(near int, limit time.Duration) {
	s.w.RegisterWorker()
	defer s.w.UnregisterWorker()
	for !s.stopped.Load() {
		if g, ok := s.w.Next(near); ok {
			s.execute(&g)
			continue
		}
		ctx, cancel := context.Background(), func() {}
		if limit != 0 {
			ctx, cancel = context.WithTimeout(ctx, limit)
		}
		if err := s.w.AcquireContext(ctx); err != nil && (limit == 0 || err != context.DeadlineExceeded) {
			s.fail(err)
		}
		cancel()
	}
}

// work starts workers and a producer. The number of workers that may sleep in the kernel is limited. All further
// workers park, and the poller of the process wakes them.
func (s *signalSite) work(workers int) {
	for i := range workers {
		limit := time.Duration(0)
		if i == 1 {
			limit = 300 * time.Microsecond
		}
		s.wg.Go(func() { s.worker(queueAt(i%signalQueues), limit) })
	}
	s.wg.Go(func() {
		tick := time.NewTicker(300 * time.Microsecond)
		defer tick.Stop()
		for !s.stopped.Load() {
			<-tick.C
			for range 1 + rand.IntN(3) {
				s.push(rand.IntN(signalQueues))
			}
		}
	})
}

// goesOn waits until all items that are in the queues now have been executed. If a producer died between a push
// and the Schedule, nobody knows of its item, and the queue is idle. goesOn schedules such queues itself, after
// all others have been executed.
func (s *signalSite) goesOn() error {
	var end [signalQueues]uint64
	for k := range end {
		end[k] = s.board.Queue[k].Pushed.Load()
	}
	behind := func(k int) bool { return s.board.Queue[k].Done.Load() < end[k] }
	err := waitUntil(timeout(), func() bool {
		for k := range end {
			if st := s.w.Gate(queueAt(k)).State(); behind(k) && (st.Scheduled || st.Executing) {
				return false
			}
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("scheduled queues are not looked after: %w", err)
	}
	for k := range end {
		if behind(k) {
			s.w.Gate(queueAt(k)).Schedule()
		}
	}
	return waitUntil(timeout(), func() bool {
		for k := range end {
			if behind(k) {
				return false
			}
		}
		return true
	})
}

// stop ends the goroutines that work has started.
func (s *signalSite) stop() error {
	s.stopped.Store(true)
	over := make(chan struct{})
	go func() { s.wg.Wait(); close(over) }()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for limit := after(timeout()); ; {
		select {
		case <-over:
			return nil
		case <-tick.C:
			s.w.Release(1)
		case <-limit:
			return errors.New("goroutines do not stop")
		}
	}
}

func (s *signalSite) arena() *arena.Arena { return s.a }

func joinSignalSite(c *proctest.Child, label string) (*signalSite, crashParams) {
	return joinAt(c, label, openSignalSite)
}

func init() {
	// The process signal/partner works until the test tells it to stop, and then drains the queues.
	registerPartner("signal/partner", func(c *proctest.Child) *signalSite {
		s, p := joinSignalSite(c, "partner")
		s.work(p.Round)
		return s
	}, nil)

	// The process signal/mayfly works until it is killed.
	proctest.Register("signal/mayfly", func(c *proctest.Child) {
		s, _ := joinSignalSite(c, "mayfly")
		s.lingers = true
		s.work(4)
		c.Ready()
		c.Await()
	})
}
