//go:build linux

package load

import (
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
)

// A critical section that writes several lines of shared data writes the line of the counter and
// the first lines of counts. A word in each line equals the counter, before a hold and after it:
// a second holder at the same time finds a word that differs.
const lineWords = 64 / 8

// checkLines checks that the words are v, like the counter.
func (t *thread) checkLines(s *control.Scratch, lines int, v uint64) {
	for k := 1; k < lines; k++ {
		if got := s.Counts[k*lineWords]; got != v {
			t.violate("line %d under the lock is %d where the counter is %d", k, got, v)
		}
	}
}

// checkLinesInTheEnd checks that the words equal the final counter.
func checkLinesInTheEnd(rep *bench.Repetition, p *control.Page) {
	for k := 1; k < min(int(p.Shape.Lines), control.MaxLines); k++ {
		if got := p.Scratch().Counts[k*lineWords]; got != p.Counter {
			rep.Violate("line %d under the lock is %d after %d acquisitions", k, got, p.Counter)
		}
	}
}
