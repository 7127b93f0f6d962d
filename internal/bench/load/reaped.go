//go:build linux

package load

import (
	"fmt"
	"time"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/subjects"
)

// leavings has the numbers of objects, raw blocks and wait nodes that dead processes have left in an arena. It does not
// count the poller nodes, which are on the wait list of an object, because the object reuses them.
type leavings struct{ objects, raw, nodes uint64 }

// reaped checks an arena of the library after processes were killed. The arena must be valid. All dead processes
// together must have left no more objects, blocks and wait nodes in it than the first dead process did.
type reaped struct {
	t         *thread
	waitLimit time.Duration
	first     leavings
}

// look checks the arena after the given number of deaths. It repeats the check until all dead participants have been
// reaped and the arena is in order. If this takes longer than waitLimit, look reports a violation.
func (b *reaped) look(deaths uint64) {
	t := b.t
	if t.Subject.By != bench.Library || deaths == 0 {
		return
	}
	a, err := subjects.JoinArena(t.Worker)
	if err != nil {
		t.violate("%v", err)
		return
	}
	var wrong error
	for end := time.Now().Add(b.waitLimit); ; time.Sleep(time.Millisecond) {
		there := 0
		for range a.Participants() {
			there++
		}
		// The counter Deaths says how many dead participants have been reaped.
		if wrong = a.Check(); wrong == nil && (uint64((*arenakernel.Arena)(a).Deaths()) < deaths || there > 1) {
			wrong = fmt.Errorf("%d reaps of %d dead, and %d participants instead of 1", (*arenakernel.Arena)(a).Deaths(), deaths, there)
		}
		if wrong == nil {
			wrong = b.excess(deaths, a.Stats())
		}
		if wrong == nil {
			return
		}
		if time.Now().After(end) {
			t.violate("%v after round %d: %v", b.waitLimit, deaths, wrong)
			return
		}
	}
}

// excess returns an error if the arena has more objects, raw blocks or wait nodes than after the first death, or if it
// has a claimed block. If deaths is 1, excess stores the numbers for later calls.
func (b *reaped) excess(deaths uint64, s arena.AllocStats) error {
	left := leavings{s.Objects, s.Raw, s.Nodes - s.PollerNodes}
	switch {
	case s.Claimed > 0:
		return fmt.Errorf("%d blocks are neither made nor taken apart", s.Claimed)
	case deaths == 1:
		b.first = left
	case left.objects > b.first.objects || left.raw > b.first.raw || left.nodes > b.first.nodes:
		return fmt.Errorf("%d deaths left %+v, where the first left %+v", deaths, left, b.first)
	}
	return nil
}
