package shm

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// movePagesBatch is how many pages one call looks up.
const movePagesBatch = 1024

// placeNew applies the policy of a new segment, whose pages do not exist yet:
// they will obey it, whoever touches them. It fails only if the pages are to
// be faulted in and cannot be.
func (s *Segment) placeNew(set settings) error {
	pl := Placement{Len: s.Size(), Asked: set.NUMA}
	pl.Err = s.bind(0, s.Size(), set.NUMA, 0)
	if set.Populate || set.Lock {
		if err := s.populate(0, s.Size()); err != nil {
			return err
		}
		s.verify(&pl)
	}
	s.placements = append(s.placements, pl)
	if pl.Err != nil {
		s.degraded = append(s.degraded, pl.Err)
	}
	return nil
}

func (s *Segment) place(off, n int64, p Policy) Placement {
	lo := off / s.pageSize * s.pageSize
	hi := min((off+n+s.pageSize-1)/s.pageSize*s.pageSize, s.Size())
	pl := Placement{Off: lo, Len: hi - lo, Asked: p}
	if pl.Len == 0 {
		pl.Verified = true
		return pl
	}
	pl.Err = s.bind(lo, pl.Len, p, unix.MPOL_MF_MOVE)
	bound := pl.Err == nil
	if err := s.populate(lo, pl.Len); err != nil {
		pl.Err, bound = err, false // the graver of the two
	}
	s.verify(&pl)
	if bound && pl.Err != nil {
		// The kernel moves what this mapping has. Pages that were reserved, or that
		// others had touched, have come into it only now.
		pl.Err = s.bind(lo, pl.Len, p, unix.MPOL_MF_MOVE)
		s.verify(&pl)
	}
	return pl
}

// bind sets the policy of a range of whole pages.
func (s *Segment) bind(off, n int64, p Policy, flags uintptr) error {
	refused := func(why string, kind, err error) error {
		return &opError{op: "place", name: s.name, why: fmt.Sprintf("%v: %s", p, why), kind: kind, err: err}
	}
	err := error(unix.ENOSYS)
	if !disabled("mbind") {
		err = mbind(s.mem[off:off+n], mpolModes[p.Mode], p.nodeMask(), flags)
	}
	switch {
	case (err == unix.EPERM || err == unix.ENOSYS) && p.Mode == PolicyDefault:
		return nil // first touch is what there is where no policy can be set
	case err == unix.EPERM || err == unix.ENOSYS:
		return refused("the system permits no NUMA placement", ErrNotSupported, err)
	case err == unix.EINVAL:
		return refused("a mode this kernel does not know, or nodes without memory for this process", nil, err)
	case err != nil:
		return refused("mbind", nil, err)
	case !s.canPlace && p.Mode != PolicyDefault:
		return refused("the filesystem ignores NUMA placement; only tmpfs and memfd heed it", ErrNotSupported, nil)
	}
	return nil
}

// nodeMask returns the nodes as a bit mask, nil if there are none.
func (p Policy) nodeMask() []uint64 {
	var mask []uint64
	for _, node := range p.nodeSet() {
		for len(mask) <= node/64 {
			mask = append(mask, 0)
		}
		mask[node/64] |= 1 << (node % 64)
	}
	return mask
}

// verify looks where the pages of pl are, and compares that with the policy.
func (s *Segment) verify(pl *Placement) {
	if disabled("mbind") {
		return
	}
	mem := s.mem[pl.Off : pl.Off+pl.Len]
	nodes := map[int]int{}
	pages := len(mem) / int(s.pageSize)
	known := 0
	status := make([]int32, movePagesBatch)
	for done := 0; done < pages; done += movePagesBatch {
		batch := status[:min(movePagesBatch, pages-done)]
		if pageNodes(mem[done*int(s.pageSize):], s.pageSize, batch) != nil {
			return // forbidden or missing: Verified stays false
		}
		for _, node := range batch {
			if node >= 0 { // else an errno: the page is not there
				nodes[int(node)]++
				known++
			}
		}
	}
	pl.Nodes, pl.Verified = nodes, known == pages
	if why := pl.Asked.mismatch(nodes); why != "" && pl.Err == nil {
		pl.Err = &opError{op: "place", name: s.name, why: fmt.Sprintf("%v: not heeded", pl.Asked), err: fmt.Errorf("%s", why)}
	}
}
