//go:build linux

package subjects

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/internal/bench/peers"
)

// brokenPeers are subjects that are wrong on purpose. With them, tests show that this program detects wrong answers,
// hangs and crashes.
var brokenPeers = []*bench.Subject{
	{By: "test", Prim: "open", Hidden: true, Scenarios: []string{"lock", "home", "intruder"},
		Open: func(*bench.Worker, int) (any, error) { return openLock{}, nil }},
	{By: "test", Prim: "stuck", Hidden: true, Scenarios: []string{"lock"},
		Open: func(w *bench.Worker, _ int) (any, error) { return stuckLock{w}, nil }},
	{By: "test", Prim: "stall", Hidden: true, InProcess: true, Open: openStall},
	{By: "test", Prim: "stampede", Hidden: true, Scenarios: []string{"herd"},
		Open: func(w *bench.Worker, thread int) (any, error) {
			f, err := peers.OpenFutexEnd(w, thread)
			if err != nil {
				return nil, err
			}
			return stampede{f.(*peers.FutexEnd)}, nil
		}},
	{By: "test", Prim: "crash", Hidden: true, Scenarios: []string{"lock"},
		Open: func(w *bench.Worker, _ int) (any, error) { return crashLock{}, nil }},
	{By: "test", Prim: "early", Hidden: true, Scenarios: []string{"lock"}, Segment: newArena, Open: openEarly},
	{By: "test", Prim: "twice", Hidden: true, Scenarios: []string{"handoff"}, Segment: newArena, Open: openTwice},
	{By: "test", Prim: "panicky", Hidden: true, Scenarios: []string{"waiters"},
		Open: func(*bench.Worker, int) (any, error) { return &panicky{open: make(chan struct{})}, nil }},
}

// early is a lock that is wrong on purpose: Lock locks a mutex of the library and unlocks it before it returns. So the
// critical section is not guarded.
type early struct{ mutex }

func openEarly(w *bench.Worker, thread int) (any, error) {
	m, err := openMutex(w, thread)
	if err != nil {
		return nil, err
	}
	return early{m.(mutex)}, nil
}

//lint:ignore SA2001 this lock is broken on purpose
func (l early) Lock() { l.mutex.Lock(); l.mutex.Unlock() }
func (early) Unlock() {}

// twice is one of two ends that pass a token to each other. It is wrong on purpose: every hundredth Pass wakes the
// other end twice.
type twice struct {
	*ping
	passed int
}

func openTwice(w *bench.Worker, thread int) (any, error) {
	p, err := openFutex(w, thread)
	if err != nil {
		return nil, err
	}
	return &twice{ping: p.(*ping)}, nil
}

func (t *twice) Pass(v uint32) {
	if t.passed++; t.passed%100 == 0 {
		t.ping.Pass(v)
	}
	t.ping.Pass(v)
}

// panicky lets many goroutines wait. It is wrong on purpose: if the context of one goroutine is cancelled, the waits of
// all goroutines end.
type panicky struct {
	open chan struct{}
	once sync.Once
}

func (p *panicky) Block(int) { <-p.open }
func (p *panicky) Release()  { p.once.Do(func() { close(p.open) }) }

func (p *panicky) BlockContext(ctx context.Context, _ int) error {
	select {
	case <-p.open:
		return nil
	case <-ctx.Done():
		p.Release()
		return ctx.Err()
	}
}

// stall is a lock that is held for StallTime once, soon after the measurement has begun.
type stall struct {
	sync.Mutex
	w *bench.Worker
	n int
}

// StallTime is how long one holder keeps the lock of the subject test:stall.
const StallTime = 400 * time.Millisecond

func openStall(w *bench.Worker, _ int) (any, error) {
	return w.Shared(func() (any, error) { return &stall{w: w}, nil })
}

func (s *stall) Lock() {
	s.Mutex.Lock()
	if s.w.Phase.Load() == control.PhaseMeasure {
		if s.n++; s.n == 50 {
			time.Sleep(StallTime)
		}
	}
}

// stampede is wrong on purpose: each call of Rouse wakes three threads, whatever its argument is.
type stampede struct{ *peers.FutexEnd }

func (s stampede) Rouse(int) { s.FutexEnd.Rouse(3) }

// openLock is a lock that is wrong on purpose: it excludes nobody.
type openLock struct{}

func (openLock) Lock()   {}
func (openLock) Unlock() {}

// stuckLock is a lock that is wrong on purpose: it is never free.
type stuckLock struct{ w *bench.Worker }

func (l stuckLock) Lock() {
	for {
		shmsync.Wait(control.FutexWord(l.w.Word(0)), 0, 0)
	}
}

func (stuckLock) Unlock() {}

// crashLock is a lock that is wrong on purpose: it ends the process that takes it.
type crashLock struct{}

func (crashLock) Lock()   { os.Exit(7) }
func (crashLock) Unlock() {}
