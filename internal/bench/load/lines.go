//go:build linux

package load

import (
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
)

// A critical section that writes several lines of shared data writes that of the counter
// and the first ones of counts. A word in each equals the counter, before a hold and after
// it: a second holder finds one that differs.
const lineWords = 64 / 8

// checkLines sees that the words are v, as the counter.
func (t *thread) checkLines(s *control.Scratch, lines int, v uint64) {
	for k := 1; k < lines; k++ {
		if got := s.Counts[k*lineWords]; got != v {
			t.violate("line %d under the lock is %d where the counter is %d", k, got, v)
		}
	}
}

// checkLinesInTheEnd sees that the words are what the counter is in the end.
func checkLinesInTheEnd(rep *bench.Repetition, p *control.Page) {
	for k := 1; k < min(int(p.Shape.Lines), control.MaxLines); k++ {
		if got := p.Scratch().Counts[k*lineWords]; got != p.Counter {
			rep.Violate("line %d under the lock is %d after %d acquisitions", k, got, p.Counter)
		}
	}
}
