package shm

import (
	"fmt"
	"io/fs"
	"slices"
	"syscall"
)

// Options adjusts how a segment is created, opened and mapped. A nil *Options
// means the zero value.
type Options struct {
	// Mode is the permission of a new segment. Only the bits 0666 may be set. The umask does not apply.
	// Zero means 0600. Mode is ignored when a segment is opened.
	Mode fs.FileMode
	// TrustUIDs are users whose segments this process may open, besides the segments of its
	// effective user and of root. In a user namespace, the overflow uid (65534) stands for all users
	// that the namespace does not map.
	TrustUIDs []uint32
	// HugePages selects the size of the pages behind the segment.
	HugePages HugePages
	// Populate reserves the whole segment and faults in all of its pages when
	// this process maps it, so that no later access takes a page fault.
	Populate bool
	// Lock keeps the whole segment in memory for this process (mlock). It implies Populate. The segment
	// counts against RLIMIT_MEMLOCK. If it exceeds the limit, the call fails.
	Lock bool
	// NUMA is the placement of the pages of a new segment. A segment in tmpfs stores the placement,
	// so it applies to every process. With Huge2M and Huge1G the segment does not store the
	// placement, so NUMA implies Populate. If the system refuses a placement, the segment is still
	// created, and Placement reports the error. NUMA is ignored when a segment is opened; use Place
	// to change a placement.
	NUMA Policy
	// Parts are placements of parts of a new segment. A part takes precedence over NUMA and over
	// earlier parts in the list. If a part is not within the segment, or does not begin and end at a
	// page boundary, creation fails.
	Parts []Part
}

// HugePages selects the size of the pages behind a segment.
type HugePages int

const (
	// HugeNone uses the base page size of the system.
	HugeNone HugePages = iota
	// HugeTransparent asks the kernel for transparent huge pages (MADV_HUGEPAGE). The kernel decides
	// whether it provides them. In /dev/shm it does so only if /dev/shm is mounted with huge=advise,
	// within_size or always. For a memfd, it does so only if
	// /sys/kernel/mm/transparent_hugepage/shmem_enabled allows it. Otherwise Degraded says why.
	//
	// Use HugeTransparent with Populate. If memory is reserved before it is touched, as in an arena, it
	// gets small pages, and the kernel joins them some time later.
	HugeTransparent
	// Huge2M and Huge1G use pages of 2 MiB and 1 GiB from the pool of huge pages. They are only for
	// CreateMemfd, which then rounds the size up to a multiple of the page size.
	Huge2M
	Huge1G
)

// String returns "none", "transparent", "2M" or "1G".
func (h HugePages) String() string {
	switch h {
	case HugeNone:
		return "none"
	case HugeTransparent:
		return "transparent"
	case Huge2M:
		return "2M"
	case Huge1G:
		return "1G"
	}
	return fmt.Sprintf("HugePages(%d)", int(h))
}

// settings is a copy of an Options that has been checked, with the defaults filled in.
type settings struct {
	Options
	pageSize int64 // page size of the pool that HugePages names; 0 for base pages
}

func (o *Options) settings() (settings, error) {
	var s settings
	if o != nil {
		s.Options = *o
	}
	if s.Mode == 0 {
		s.Mode = 0o600
	}
	if s.Mode&^0o666 != 0 {
		return s, fmt.Errorf("mode %#o has bits other than 0666: %w", uint32(s.Mode), syscall.EINVAL)
	}
	switch s.HugePages {
	case HugeNone, HugeTransparent:
	case Huge2M:
		s.pageSize = 2 << 20
	case Huge1G:
		s.pageSize = 1 << 30
	default:
		return s, fmt.Errorf("unknown %v: %w", s.HugePages, syscall.EINVAL)
	}
	if err := s.NUMA.check(); err != nil {
		return s, err
	}
	s.Parts = slices.Clone(s.Parts)
	for _, part := range s.Parts {
		if err := part.Policy.check(); err != nil {
			return s, err
		}
	}
	return s, nil
}

// placed reports whether the options contain a placement for a new segment.
func (s *settings) placed() bool { return s.NUMA.Mode != PolicyDefault || len(s.Parts) > 0 }

// roundSize rounds size, in bytes, up to a multiple of page.
func roundSize(size, page int64) (int64, error) {
	if size <= 0 {
		return 0, fmt.Errorf("size %d is not positive: %w", size, syscall.EINVAL)
	}
	rounded := (size + page - 1) / page * page
	if rounded < size || int64(int(rounded)) != rounded {
		return 0, fmt.Errorf("size %d is too large: %w", size, eFBIG)
	}
	return rounded, nil
}
