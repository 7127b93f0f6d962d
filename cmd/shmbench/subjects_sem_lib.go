//go:build linux

package main

import (
	"context"

	"github.com/shmsync/shmsync/prims"
)

// semSubjects are the library's semaphore: as one of the plan's permits, as a
// lock, and as a token in each direction.
var semSubjects = []*subject{
	{By: libBy, Prim: "semaphore", Segment: newArena, Open: openSemaphore,
		Brief:     []string{"uncontended", "sem", "handoff"},
		Scenarios: []string{"uncontended", "lock", "sem", "handoff", "wake", "idle"}},
	{By: libBy, Prim: "semaphore-moves", Segment: newArena, Open: openSemaphore, Brief: []string{},
		Scenarios: []string{"uncontended", "sem"}},
}

// semaphore is a prims.Semaphore as the cells use it.
type semaphore struct{ *prims.Semaphore }

func openSemaphore(w *worker, thread int) (any, error) {
	a, err := joinArena(w)
	if err != nil {
		return nil, err
	}
	switch scenarioByID(w.scenario).name {
	case "herd":
		s, err := prims.OpenSemaphore(a, "herd", herdPermits, &prims.SemaphoreOptions{Transferable: true, Initial: -1})
		return semaphore{s}, err
	case "handoff", "wake", "idle":
		e := end(w, thread)
		opts := &prims.SemaphoreOptions{Transferable: true, Initial: -1}
		out, err := prims.OpenSemaphore(a, tokenNames[e], 2, opts)
		if err != nil {
			return nil, err
		}
		in, err := prims.OpenSemaphore(a, tokenNames[1-e], 2, opts)
		if err != nil {
			return nil, err
		}
		return newWordToken(w, e, func() { out.Release(1) }, func() { semaphore{in}.Acquire() }), nil
	}
	var opts *prims.SemaphoreOptions
	if w.subject.Prim == "semaphore-moves" {
		opts = &prims.SemaphoreOptions{Transferable: true}
	}
	s, err := prims.OpenSemaphore(a, "semaphore", int64(max(w.shape.Permits, 1)), opts)
	return semaphore{s}, err
}

// herdPermits is more than there are at any time.
const herdPermits = 1 << 20

func (s semaphore) Acquire() {
	if err := s.Semaphore.Acquire(context.Background(), 1); err != nil {
		panic(err)
	}
}

func (s semaphore) Release() { s.Semaphore.Release(1) }
func (s semaphore) Lock()    { s.Acquire() }
func (s semaphore) Unlock()  { s.Release() }

func (s semaphore) Pairs(n int, counter *uint64) {
	ctx := context.Background()
	for range n {
		if err := s.Semaphore.Acquire(ctx, 1); err != nil {
			panic(err)
		}
		*counter++
		s.Semaphore.Release(1)
	}
}

// wordToken is one end of a token whose value travels in a plain word, guarded
// by a post and a wait for each direction.
type wordToken struct {
	out, in    *uint64
	post, wait func()
}

func newWordToken(w *worker, end int, post, wait func()) token {
	ways := [2]*uint64{&w.scratch().first, &w.scratch().second}
	return wordToken{ways[end], ways[1-end], post, wait}
}

func (t wordToken) Pass(v uint32) {
	*t.out = uint64(v)
	t.post()
}

func (t wordToken) Await() uint32 {
	t.wait()
	return uint32(*t.in)
}
