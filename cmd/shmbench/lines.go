//go:build linux

package main

// A critical section that writes several lines of shared data writes that of the counter
// and the first ones of counts. A word in each is what the counter is, before a hold and
// after it: whoever holds the lock beside others finds one that is not.
const (
	lineWords = 64 / 8
	maxLines  = scratchKeys / lineWords
)

// checkLines sees that the words are v, as the counter.
func (t *thread) checkLines(s *scratch, lines int, v uint64) {
	for k := 1; k < lines; k++ {
		if got := s.counts[k*lineWords]; got != v {
			t.violate("line %d under the lock is %d where the counter is %d", k, got, v)
		}
	}
}

// lines sees that the words are what the counter is in the end.
func (rep *repetition) lines(p *page) {
	for k := 1; k < min(int(p.shape.Lines), maxLines); k++ {
		if got := p.scratch().counts[k*lineWords]; got != p.counter {
			rep.violate("line %d under the lock is %d after %d acquisitions", k, got, p.counter)
		}
	}
}
