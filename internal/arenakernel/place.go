package arenakernel

import "github.com/shmsync/shmsync/shm"

// Place puts size bytes of the arena from off on NUMA nodes, for example a block that Alloc
// returned; see [shm.Segment.Place]. It widens the range to whole pages. A block shares its first
// and last page with other blocks, unless both its alignment and its size are multiples of a page.
//
// A block has memory from its allocation on. Unless the arena or the range has a policy, the memory
// is on the node of the process that first allocated in the chunk of 64 KiB. So place a block
// before other processes use it: pages that they have mapped move only if this process has
// CAP_SYS_NICE.
func (a *Arena) Place(off Offset, size uint64, p shm.Policy) shm.Placement {
	return a.seg.Place(int64(off), int64(size), p)
}

// Where reports on which NUMA nodes size bytes of the arena from off are, and which placement a
// process asked for: see [shm.Segment.Where].
func (a *Arena) Where(off Offset, size uint64) ([]shm.Placement, error) {
	return a.seg.Where(int64(off), int64(size))
}
