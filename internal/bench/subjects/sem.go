//go:build linux

package subjects

import (
	"context"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/prims"
)

// semSubjects has the semaphore of the library in three roles: a semaphore whose number of permits is a parameter of
// the cell, a lock, and a token that two threads pass to each other. The token uses a semaphore for each direction.
var semSubjects = []*bench.Subject{
	{By: bench.Library, Prim: "semaphore", Segment: newArena, Open: openSemaphore,
		Brief:     []string{"uncontended", "sem", "handoff"},
		Scenarios: []string{"uncontended", "lock", "sem", "handoff", "wake", "idle"}},
	{By: bench.Library, Prim: "semaphore-moves", Segment: newArena, Open: openSemaphore, Brief: []string{},
		Scenarios: []string{"uncontended", "sem"}},
}

// semaphore gives a prims.Semaphore the methods that the scenarios call.
type semaphore struct{ *prims.Semaphore }

func openSemaphore(w *bench.Worker, thread int) (any, error) {
	a, err := JoinArena(w)
	if err != nil {
		return nil, err
	}
	switch bench.ScenarioByID(w.Scenario).Name {
	case "herd":
		s, err := prims.OpenSemaphore(a, "herd", herdPermits, &prims.SemaphoreOptions{Mode: prims.SemaphoreTransferable, Initial: -1})
		return semaphore{s}, err
	case "handoff", "wake", "idle":
		e := bench.End(w, thread)
		opts := &prims.SemaphoreOptions{Mode: prims.SemaphoreTransferable, Initial: -1}
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
	if w.Subject.Prim == "semaphore-moves" {
		opts = &prims.SemaphoreOptions{Mode: prims.SemaphoreTransferable}
	}
	s, err := prims.OpenSemaphore(a, "semaphore", int64(max(w.Shape.Permits, 1)), opts)
	return semaphore{s}, err
}

// herdPermits is the largest number of permits that the semaphore of a herd cell can have. No measurement reaches it.
const herdPermits = 1 << 20

func (s semaphore) Acquire() {
	if err := s.Semaphore.AcquireContext(context.Background(), 1); err != nil {
		panic(err)
	}
}

func (s semaphore) Release() { s.Semaphore.Release(1) }
func (s semaphore) Lock()    { s.Acquire() }
func (s semaphore) Unlock()  { s.Release() }

func (s semaphore) Pairs(n int, counter *uint64) {
	ctx := context.Background()
	for range n {
		if err := s.Semaphore.AcquireContext(ctx, 1); err != nil {
			panic(err)
		}
		*counter++
		s.Semaphore.Release(1)
	}
}

// Rouse releases n permits, for n calls of Rest, each of which takes one.
func (s semaphore) Rouse(n int) { s.Semaphore.Release(int64(n)) }
func (s semaphore) Rest()       { s.Acquire() }
