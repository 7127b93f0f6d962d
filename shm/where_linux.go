package shm

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mpolFlags are the bits that the kernel adds to a mode: MPOL_MODE_FLAGS in
// include/uapi/linux/mempolicy.h.
const mpolFlags = 1<<15 | 1<<14 | 1<<13

func (s *Segment) where(off, n int64) ([]Placement, error) {
	lo, hi := s.wholePages(off, n)
	if lo == hi {
		return nil, nil
	}
	denied := func(call string, err error) error {
		e := &opError{op: "where", name: s.name, why: call, err: err}
		if err == unix.EPERM || err == unix.ENOSYS {
			e.why, e.kind = call+" is forbidden or missing here", ErrNotSupported
		}
		return e
	}
	if disabled("mbind") {
		return nil, denied("get_mempolicy", unix.ENOSYS)
	}
	if err := s.mapExisting(lo, hi); err != nil {
		return nil, denied("mapping what is there", err)
	}
	var parts []Placement
	for at := lo; at < hi; at += s.pageSize {
		p, err := s.policyAt(at)
		if err != nil {
			return nil, denied("get_mempolicy", err)
		}
		if last := len(parts) - 1; last >= 0 && parts[last].Asked.String() == p.String() {
			parts[last].Len += s.pageSize
			continue
		}
		parts = append(parts, Placement{Off: at, Len: s.pageSize, Asked: p})
	}
	for i := range parts {
		part := &parts[i]
		mem := s.mem[part.Off : part.Off+part.Len]
		nodes, known, err := s.count(mem)
		if err != nil {
			return nil, denied("move_pages", err)
		}
		part.Nodes, part.Absent = nodes, int(part.Len/s.pageSize)-known
		part.Verified = part.Absent == 0
		if why := part.Asked.mismatch(nodes); why != "" {
			part.Err = &opError{op: "where", name: s.name, why: part.Asked.String(), err: fmt.Errorf("%s", why)}
		}
	}
	return parts, nil
}

// policyAt returns the policy that the kernel applies to the page at off.
func (s *Segment) policyAt(off int64) (Policy, error) {
	if !s.canPlace {
		return Policy{}, nil // the kernel ignores policies of this file, so the default applies
	}
	mode, mask, err := policyAt(&s.mem[off])
	if err != nil {
		return Policy{}, err
	}
	for m, is := range mpolModes {
		if is != mode&^mpolFlags {
			continue
		}
		p := Policy{Mode: PolicyMode(m)}
		for node := range policyMask * 64 {
			if mask[node/64]&(1<<(node%64)) != 0 {
				p.Nodes = append(p.Nodes, node)
			}
		}
		return p, nil
	}
	return Policy{}, fmt.Errorf("policy of mode %d is of a later kernel", mode)
}

// mapExisting maps those pages of a range that exist, by faulting them in for reading. The kernel reports the NUMA node
// of a page only if the page is mapped.
func (s *Segment) mapExisting(lo, hi int64) error {
	base := int64(os.Getpagesize())
	whole := s.allThere()
	vec := make([]byte, movePagesBatch)
	for at := lo; at < hi; {
		end := min(at+movePagesBatch*base, hi)
		if !whole {
			if err := resident(s.mem[at:end], vec[:(end-at)/base]); err != nil {
				return err
			}
		}
		for i := at; i < end; {
			run := i
			for run < end && (whole || vec[(run-at)/base]&1 != 0) {
				run += base
			}
			if run > i {
				if err := s.populateRead(i, run-i); err != nil {
					return err
				}
			}
			i = run + base
		}
		at = end
	}
	return nil
}

// allThere reports whether every page of the segment is backed by memory.
func (s *Segment) allThere() bool {
	var st unix.Stat_t
	return unix.Fstat(int(s.file.Fd()), &st) == nil && st.Blocks*512 >= s.Size()
}

// populateRead faults in pages for reading. The pages must exist already.
func (s *Segment) populateRead(off, n int64) error {
	mem := s.mem[off : off+n]
	err := retry(func() error { return unix.Madvise(mem, unix.MADV_POPULATE_READ) })
	if err == unix.EINVAL || err == unix.ENOSYS { // before Linux 5.14
		peek(mem, int64(os.Getpagesize()))
		return nil
	}
	return err
}
