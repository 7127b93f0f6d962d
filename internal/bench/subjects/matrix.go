//go:build linux

package subjects

import (
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
)

// matrixWaitLimit is how often one end of a trip reads a word before it checks whether the measurement has stopped. If
// other programs use these CPUs, a batch of trips may take far longer than the planned time of the measurement.
const matrixWaitLimit = 1 << 16

// matrixSubjects are ways in which two CPUs pass a cache line back and forth.
var matrixSubjects = []*bench.Subject{
	{By: "go", Prim: "one-line", Scenarios: []string{"matrix", "home"}, Open: openOneLine},
	{By: "go", Prim: "two-lines", Scenarios: []string{"matrix", "home"}, Open: openTwoLines, Brief: []string{}},
	{By: "test", Prim: "miscount", Scenarios: []string{"matrix", "home"}, Hidden: true, Open: openMiscount},
}

// oneLine passes one word back and forth. One end waits for an even value and increments it. The other end waits for an
// odd value and increments it.
type oneLine struct{ turn, phase *atomic.Uint32 }

func openOneLine(w *bench.Worker, _ int) (any, error) {
	return oneLine{w.Word(matrixFirst), &w.Phase}, nil
}

// These are the indices of two cache lines in the segment. The lines are so far apart that no prefetcher fetches them
// together.
const (
	matrixFirst  = 0
	matrixSecond = 8
)

// On returns a copy of the subject that uses the word in the parameter first. That word lies in another cache line.
func (l oneLine) On(first, _ *atomic.Uint32) any { return oneLine{first, l.phase} }

func (l oneLine) Trips(from, n uint32) uint32 {
	for made := range n {
		v := 2 * (from + made)
		for spins := 1; !l.turn.CompareAndSwap(v, v+1); spins++ {
			if spins%matrixWaitLimit == 0 && l.phase.Load() == control.PhaseStop {
				return made
			}
		}
	}
	return n
}

func (l oneLine) Finish(number uint32) {
	for !l.turn.CompareAndSwap(2*number, bench.LastToken) {
	}
}

func (l oneLine) Answer() uint32 {
	for n := uint32(0); ; n++ {
		for !l.turn.CompareAndSwap(2*n+1, 2*n+2) {
			if l.turn.Load() == bench.LastToken {
				return n
			}
		}
	}
}

// twoLines has two words, one for each direction. Each end writes one word and waits for a change of the other
// word.
type twoLines struct{ to, fro, phase *atomic.Uint32 }

func openTwoLines(w *bench.Worker, _ int) (any, error) {
	return twoLines{w.Word(matrixFirst), w.Word(matrixSecond), &w.Phase}, nil
}

// On returns a copy of the subject that uses the given words, which lie in other cache lines.
func (l twoLines) On(first, second *atomic.Uint32) any { return twoLines{first, second, l.phase} }

// Trips makes n trips and returns n. If the measurement stops before, it returns how many trips it has begun. The other
// end may not have answered the last of them. Finish waits for this answer.
func (l twoLines) Trips(from, n uint32) uint32 {
	for made := range n {
		v := from + made + 1
		l.to.Store(v)
		for spins := 1; l.fro.Load() != v; spins++ {
			if spins%matrixWaitLimit == 0 && l.phase.Load() == control.PhaseStop {
				return made + 1
			}
		}
	}
	return n
}

func (l twoLines) Finish(number uint32) {
	for l.fro.Load() != number {
	}
	l.to.Store(bench.LastToken)
}

func (l twoLines) Answer() uint32 {
	for n := uint32(0); ; {
		v := l.to.Load()
		switch v {
		case n:
			continue
		case bench.LastToken:
			return n
		}
		n = v
		l.fro.Store(v)
	}
}

// miscount is wrong on purpose: it answers correctly, but returns a wrong number of trips.
type miscount struct{ twoLines }

func openMiscount(w *bench.Worker, thread int) (any, error) {
	l, err := openTwoLines(w, thread)
	return miscount{l.(twoLines)}, err
}

func (l miscount) On(first, second *atomic.Uint32) any {
	return miscount{twoLines{first, second, l.phase}}
}

func (l miscount) Answer() uint32 { return l.twoLines.Answer() + 1 }
