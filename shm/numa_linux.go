package shm

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// movePagesBatch is how many pages one system call examines or moves.
const movePagesBatch = 1024

// placeNew applies the policies of a new segment. The pages of the segment do not exist yet, and will follow the
// policies when they are created, no matter which process touches them first. placeNew fails in two cases: if a part is
// not within the segment, or if pages have to be faulted in and that is impossible.
func (s *Segment) placeNew(set settings) error {
	pls := make([]Placement, 0, 1+len(set.Parts))
	if set.NUMA.Mode != PolicyDefault {
		pls = append(pls, Placement{Len: s.Size(), Asked: set.NUMA, Err: s.bind(0, s.Size(), set.NUMA, 0)})
	}
	for _, part := range set.Parts {
		if err := s.checkRange("create", part.Off, part.Len); err != nil {
			return err
		}
		if part.Len == 0 || part.Off%s.pageSize != 0 || part.Len%s.pageSize != 0 {
			return &opError{op: "create", name: s.name, err: unix.EINVAL,
				why: fmt.Sprintf("part of %d bytes at %d to be placed: not whole pages of %d bytes", part.Len, part.Off, s.pageSize)}
		}
		pls = append(pls, Placement{Off: part.Off, Len: part.Len, Asked: part.Policy, Err: s.bind(part.Off, part.Len, part.Policy, 0)})
	}
	// The policy of huge pages belongs to this mapping alone. If another process touched the pages first, the kernel
	// would not apply the policy. So allocate the pages now.
	own := s.pageSize > int64(os.Getpagesize())
	if set.Populate || set.Lock || own {
		if err := s.populate(0, s.Size()); err != nil {
			return err
		}
		for i := range pls {
			if !overlaid(pls[i], pls[i+1:]) {
				s.verify(&pls[i])
			}
		}
	}
	for _, pl := range pls {
		s.placements = append(s.placements, pl)
		if pl.Err != nil {
			s.degraded = append(s.degraded, pl.Err)
		}
	}
	return nil
}

// overlaid reports whether a placement in the slice later covers a part of the range of the placement pl.
func overlaid(pl Placement, later []Placement) bool {
	return slices.ContainsFunc(later, func(l Placement) bool { return l.Off < pl.Off+pl.Len && pl.Off < l.Off+l.Len })
}

func (s *Segment) place(off, n int64, p Policy) Placement {
	lo, hi := s.wholePages(off, n)
	pl := Placement{Off: lo, Len: hi - lo, Asked: p}
	if pl.Len == 0 {
		pl.Verified = true
		return pl
	}
	bound := s.bind(lo, pl.Len, p, 0)
	if err := s.populate(lo, pl.Len); err != nil {
		pl.Err = err // this error matters more than an error of the function bind
		s.verify(&pl)
		return pl
	}
	s.verify(&pl)
	if pl.Err != nil && (bound == nil || errors.Is(bound, errOthers)) {
		// mbind moves only pages that are mapped in this process. Some pages existed before, but only the call of
		// populate has mapped them. So call bind again to move these pages.
		if errors.Is(s.bind(lo, pl.Len, p, unix.MPOL_MF_MOVE_ALL), unix.EPERM) { // MPOL_MF_MOVE_ALL needs CAP_SYS_NICE
			s.bind(lo, pl.Len, p, unix.MPOL_MF_MOVE)
		}
		if p.Mode == PolicyInterleave {
			s.spread(lo, pl.Len, p.nodeSet())
		}
		pl.Err = nil
		s.verify(&pl)
	}
	if bound != nil {
		pl.Err = bound
	}
	return pl
}

// spread distributes the pages of a range over the nodes in turn. A call of mbind with an
// interleaving policy is not enough, because mbind does not move a page that is already on one of the
// nodes.
func (s *Segment) spread(off, n int64, nodes []int) {
	memory, known := nodesOf("has_memory")
	nodes = slices.DeleteFunc(nodes, func(node int) bool { return known && !slices.Contains(memory, node) })
	if len(nodes) < 2 {
		return
	}
	first, pages := int(off/s.pageSize), int(n/s.pageSize)
	to, status := make([]int32, movePagesBatch), make([]int32, movePagesBatch)
	for done := 0; done < pages; done += movePagesBatch {
		size := min(movePagesBatch, pages-done)
		for i := range size {
			to[i] = int32(nodes[(first+done+i)%len(nodes)])
		}
		mem := s.mem[off+int64(done)*s.pageSize:]
		if movePages(mem, s.pageSize, to[:size], status[:size], unix.MPOL_MF_MOVE_ALL) == unix.EPERM {
			movePages(mem, s.pageSize, to[:size], status[:size], unix.MPOL_MF_MOVE)
		}
	}
}

// wholePages widens a range to whole pages.
func (s *Segment) wholePages(off, n int64) (lo, hi int64) {
	if n == 0 {
		return off, off
	}
	return off / s.pageSize * s.pageSize, min((off+n+s.pageSize-1)/s.pageSize*s.pageSize, s.Size())
}

// bind sets the policy of a range of whole pages. If some nodes of the policy are unusable, the kernel
// uses the other nodes, and the error Is errOthers. After any other error the policy of the range is
// unchanged.
func (s *Segment) bind(off, n int64, p Policy, flags uintptr) error {
	refused := func(why string, kind, err error) error {
		return &opError{op: "place", name: s.name, why: fmt.Sprintf("%v: %s", p, why), kind: kind, err: err}
	}
	err := error(unix.ENOSYS)
	if !disabled("mbind") {
		err = mbind(s.mem[off:off+n], mpolModes[p.Mode], p.nodeMask(), flags)
	}
	switch {
	case (err == unix.EPERM || err == unix.ENOSYS) && p.Mode.nodeless():
		return nil // no policy can be set, so pages are placed by first touch, which is what p wants
	case err == unix.EPERM:
		return refused("a sandbox (seccomp) forbids mbind; containers allow it with CAP_SYS_NICE; pages go where they are first touched", ErrNotSupported, err)
	case err == unix.ENOSYS:
		return refused("the system has no NUMA placement; pages go where they are first touched", ErrNotSupported, err)
	case err == unix.EINVAL:
		return refused(p.invalid(), nil, err)
	case err != nil:
		return refused("mbind", nil, err)
	case !s.canPlace && !p.Mode.nodeless():
		return refused("the filesystem of this file ignores NUMA placement; only tmpfs, memfd and hugetlbfs heed it", ErrNotSupported, nil)
	}
	if why := p.unusable(); why != "" {
		return refused(why, nil, errOthers)
	}
	return nil
}

// errOthers says that some nodes of a policy are unusable, and that the kernel uses its other nodes.
var errOthers = errors.New("its other nodes are used")

// invalid says why the kernel may have rejected p with EINVAL.
func (p Policy) invalid() string {
	if why := p.unusable(); why != "" {
		return why
	}
	if since, ok := mpolSince[p.Mode]; ok {
		return fmt.Sprintf("this kernel does not know %v, which is since Linux %s", p.Mode, since)
	}
	return "a mode this kernel does not know, or nodes without memory for this process"
}

// nodeMask returns the nodes as a bit mask. It returns nil if there are none.
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

// verify finds out on which nodes the pages of the placement pl are, and compares that with the policy.
func (s *Segment) verify(pl *Placement) {
	if disabled("mbind") {
		return
	}
	mem := s.mem[pl.Off : pl.Off+pl.Len]
	pages := len(mem) / int(s.pageSize)
	nodes, known, err := s.count(mem)
	if err != nil {
		return // move_pages is forbidden or missing, so Verified stays false
	}
	pl.Nodes, pl.Absent, pl.Verified = nodes, pages-known, known == pages
	if why := pl.Asked.mismatch(nodes); why != "" && pl.Err == nil {
		pl.Err = &opError{op: "place", name: s.name, why: fmt.Sprintf("%v: not heeded", pl.Asked),
			err: fmt.Errorf("%s; those that other processes have mapped move only with CAP_SYS_NICE", why)}
	}
}

// count returns how many pages of mem are on each node. It counts only pages that this process has
// mapped.
func (s *Segment) count(mem []byte) (nodes map[int]int, known int, err error) {
	nodes = map[int]int{}
	pages := len(mem) / int(s.pageSize)
	status := make([]int32, movePagesBatch)
	for done := 0; done < pages; done += movePagesBatch {
		batch := status[:min(movePagesBatch, pages-done)]
		if err := pageNodes(mem[done*int(s.pageSize):], s.pageSize, batch); err != nil {
			return nil, 0, err
		}
		for _, node := range batch {
			if node >= 0 { // a negative number is an errno: the page is not mapped
				nodes[int(node)]++
				known++
			}
		}
	}
	return nodes, known, nil
}
