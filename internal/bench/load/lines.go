//go:build linux

package load

import (
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
)

// A critical section that writes several cache lines writes the line of the counter and the first lines of the array
// Counts. The first word of each line equals the counter, except while a thread writes the lines under the lock. If two
// threads hold the lock at the same time, one of them can find a word that differs from the counter.
const lineWords = 64 / 8

// checkLines checks that the first word of each cache line that the critical section writes equals v, the counter.
func (t *thread) checkLines(s *control.Scratch, lines int, v uint64) {
	for k := 1; k < lines; k++ {
		if got := s.Counts[k*lineWords]; got != v {
			t.violate("line %d under the lock is %d where the counter is %d", k, got, v)
		}
	}
}

// checkLinesInTheEnd checks that the first word of each cache line that critical sections wrote equals the final
// counter.
func checkLinesInTheEnd(rep *bench.Repetition, p *control.Page) {
	for k := 1; k < min(int(p.Shape.Lines), control.MaxLines); k++ {
		if got := p.Scratch().Counts[k*lineWords]; got != p.Counter {
			rep.Violate("line %d under the lock is %d after %d acquisitions", k, got, p.Counter)
		}
	}
}
