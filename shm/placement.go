package shm

import (
	"fmt"
	"maps"
	"slices"
)

// Placement describes the placement that a process asked for, for a part of a segment, and the
// result.
type Placement struct {
	Off, Len int64       // the range in bytes, widened to whole pages
	Asked    Policy      // what was asked
	Nodes    map[int]int // how many pages each node has, as far as known
	Absent   int         // pages that were not in memory: no process has written them yet, or they are swapped out
	Err      error       // why the placement is not as asked; nil if no deviation is known
	Verified bool        // the node of every page was looked up, and Nodes is complete
}

// String returns a line such as "bind:0 at 0+65536: 16 pages verified, 16 on
// node 0".
func (p Placement) String() string {
	pages := 0
	for _, n := range p.Nodes {
		pages += n
	}
	s := fmt.Sprintf("%v at %d+%d: ", p.Asked, p.Off, p.Len)
	if p.Verified {
		s += fmt.Sprintf("%d pages verified", pages)
	} else {
		s += "not verified"
	}
	for _, node := range slices.Sorted(maps.Keys(p.Nodes)) {
		s += fmt.Sprintf(", %d on node %d", p.Nodes[node], node)
	}
	if p.Absent > 0 {
		s += fmt.Sprintf(", %d not there yet", p.Absent)
	}
	if p.Err != nil {
		s += "; degraded: " + p.Err.Error()
	}
	return s
}

// Part is the policy of a part of a new segment.
type Part struct {
	Off, Len int64 // in bytes, multiples of the page size
	Policy   Policy
}

// Place sets the NUMA placement of the n bytes from offset off, widened to whole pages: it sets the
// policy, reserves and faults in the pages, moves pages that exist on other nodes, and finds out
// where all pages are now. Pages that other processes have mapped move only if this process has
// CAP_SYS_NICE. The result reports every failure; the method Placement returns it again later. A
// page on the wrong node only costs time.
func (s *Segment) Place(off, n int64, p Policy) Placement {
	pl := Placement{Off: off, Len: n, Asked: p}
	if pl.Err = s.acquire("place"); pl.Err != nil {
		return pl
	}
	defer s.release()
	if pl.Err = s.checkRange("place", off, n); pl.Err != nil {
		return pl
	}
	if err := p.check(); err != nil {
		pl.Err = &opError{op: "place", name: s.name, err: err}
		return pl
	}
	pl = s.place(off, n, p)
	s.mu.Lock()
	s.placements = append(s.placements, pl)
	s.mu.Unlock()
	return pl
}

// Placement returns the placements that this process asked of this segment by Options.NUMA,
// Options.Parts and Place, oldest first, with their results.
func (s *Segment) Placement() []Placement {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.placements)
}

// Where reports on which nodes the pages of the n bytes from offset off are, widened to whole
// pages, whichever process placed them. The result has an element for each successive part with a
// policy of its own: the policy, and how many pages each node has. A part is verified if all of its
// pages exist. Err of a part says which pages are not where the policy of the part wants them.
//
// For a segment with Huge2M or Huge1G a process knows only its own policies, and the pages
// that it has touched.
//
// The call maps existing pages into this process, and allocates no page. If the system does not say
// where pages are, the error matches [ErrNotSupported].
func (s *Segment) Where(off, n int64) ([]Placement, error) {
	if err := s.acquire("where"); err != nil {
		return nil, err
	}
	defer s.release()
	if err := s.checkRange("where", off, n); err != nil {
		return nil, err
	}
	return s.where(off, n)
}

// HugeBytes returns how many bytes of the segment are mapped into this process by pages larger than
// the system's base pages. Pages that this process has not touched do not count. It needs /proc.
func (s *Segment) HugeBytes() (int64, error) {
	if err := s.acquire("huge bytes"); err != nil {
		return 0, err
	}
	defer s.release()
	return s.hugeBytes()
}
