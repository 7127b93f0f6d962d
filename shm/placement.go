package shm

import (
	"fmt"
	"maps"
	"slices"
)

// Placement describes a placement that a process requested for a part of a segment, and the result.
type Placement struct {
	Off, Len int64       // the range in bytes, widened to whole pages
	Asked    Policy      // the policy that was requested
	Nodes    map[int]int // how many pages each node has, as far as known
	Absent   int         // pages that were not in memory: no process has written them yet, or they are swapped out
	Err      error       // how the placement differs from the request; nil if no difference is known
	Verified bool        // the node of every page was found out, and Nodes is complete
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

// Place sets the NUMA placement of the n bytes from offset off, widened to whole pages. It sets the
// policy, reserves the pages and faults them in, moves pages that are on other nodes, and finds out
// where all pages are now. Pages that other processes have mapped move only if this process has
// CAP_SYS_NICE. The result reports every failure. The method Placement returns the result again later.
// A page on the wrong node works, and only takes longer to access.
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

// Placement returns the placements that this process has requested for this segment by Options.NUMA,
// Options.Parts and Place, with their results. The oldest is first.
func (s *Segment) Placement() []Placement {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.placements)
}

// Where reports on which NUMA nodes the pages of the n bytes from offset off are, widened to whole
// pages. It reports placements by other processes, too. The result has an element for each
// successive part with a policy of its own. The element contains the policy, and how many pages
// each node has. A part is verified if all of its pages exist. Err of a part says which pages are
// not where the policy of the part wants them.
//
// For a segment with Huge2M or Huge1G, a process knows only its own policies, and the pages that it has
// touched.
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

// HugeBytes returns how many bytes of the segment are mapped into this process by pages larger than the
// base pages of the system. Pages that this process has not touched do not count. It needs /proc.
func (s *Segment) HugeBytes() (int64, error) {
	if err := s.acquire("huge bytes"); err != nil {
		return 0, err
	}
	defer s.release()
	return s.hugeBytes()
}
