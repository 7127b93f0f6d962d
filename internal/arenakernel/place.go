package arenakernel

import "github.com/shmsync/shmsync/shm"

// Place puts size bytes of the arena from off, such as a block of Alloc, on NUMA nodes: see
// [shm.Segment.Place]. The range is widened to whole pages. So a block shares its first and last
// page with other blocks, unless its alignment and size are multiples of a page.
//
// The memory of a block exists from its allocation on. Unless the arena or the range has a
// policy, it is on the node of the process that allocates first in its chunk of 64 KiB. So place
// a block before others use it: pages that they have mapped move only if this process has
// CAP_SYS_NICE.
func (a *Arena) Place(off Offset, size uint64, p shm.Policy) shm.Placement {
	return a.seg.Place(int64(off), int64(size), p)
}

// Where reports on which NUMA nodes size bytes of the arena from off are, and which placement a
// process asked for: see [shm.Segment.Where].
func (a *Arena) Where(off Offset, size uint64) ([]shm.Placement, error) {
	return a.seg.Where(int64(off), int64(size))
}
