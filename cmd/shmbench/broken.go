//go:build linux

package main

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/shmsync/shmsync"
)

// brokenPeers are wrong on purpose: the tests of this program prove with them
// that wrong answers, hangs and crashes are seen.
var brokenPeers = []*subject{
	{By: "test", Prim: "open", Hidden: true, Scenarios: []string{"lock"},
		Open: func(*worker, int) (any, error) { return openLock{}, nil }},
	{By: "test", Prim: "stuck", Hidden: true, Scenarios: []string{"lock"},
		Open: func(w *worker, _ int) (any, error) { return stuckLock{w}, nil }},
	{By: "test", Prim: "stall", Hidden: true, InProcess: true, Open: openStall},
	{By: "test", Prim: "stampede", Hidden: true, Scenarios: []string{"herd"},
		Open: func(w *worker, thread int) (any, error) {
			f, err := openFutexEnd(w, thread)
			if err != nil {
				return nil, err
			}
			return stampede{f.(*futexEnd)}, nil
		}},
	{By: "test", Prim: "crash", Hidden: true, Scenarios: []string{"lock"},
		Open: func(w *worker, _ int) (any, error) { return crashLock{}, nil }},
	{By: "test", Prim: "early", Hidden: true, Scenarios: []string{"lock"}, Segment: newArena, Open: openEarly},
	{By: "test", Prim: "twice", Hidden: true, Scenarios: []string{"handoff"}, Segment: newArena, Open: openTwice},
	{By: "test", Prim: "panicky", Hidden: true, Scenarios: []string{"waiters"},
		Open: func(*worker, int) (any, error) { return &panicky{open: make(chan struct{})}, nil }},
}

// early is the library's mutex given back before the critical section.
type early struct{ mutex }

func openEarly(w *worker, thread int) (any, error) {
	m, err := openMutex(w, thread)
	if err != nil {
		return nil, err
	}
	return early{m.(mutex)}, nil
}

func (l early) Lock() { l.mutex.Lock(); l.mutex.Unlock() }
func (early) Unlock() {}

// twice is the library's futex posted to once too often, now and then.
type twice struct {
	*ping
	passed int
}

func openTwice(w *worker, thread int) (any, error) {
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

// panicky is a crowd in which everybody leaves with the first who is cancelled.
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

// stall is held for long once, soon after the cell begins to measure.
type stall struct {
	sync.Mutex
	w *worker
	n int
}

const stallTime = 400 * time.Millisecond

func openStall(w *worker, _ int) (any, error) {
	return w.Shared(func() (any, error) { return &stall{w: w}, nil })
}

func (s *stall) Lock() {
	s.Mutex.Lock()
	if s.w.phase.Load() == phaseMeasure {
		if s.n++; s.n == 50 {
			time.Sleep(stallTime)
		}
	}
}

// stampede is a herd that all come from when one is called.
type stampede struct{ *futexEnd }

func (s stampede) Rouse(int) { s.futexEnd.Rouse(3) }

// openLock excludes nobody.
type openLock struct{}

func (openLock) Lock()   {}
func (openLock) Unlock() {}

// stuckLock is never free.
type stuckLock struct{ w *worker }

func (l stuckLock) Lock() {
	for {
		shmsync.Wait(futexWord(l.w.Word(0)), 0, 0)
	}
}

func (stuckLock) Unlock() {}

// crashLock ends the process that takes it.
type crashLock struct{}

func (crashLock) Lock()   { os.Exit(7) }
func (crashLock) Unlock() {}
