package arenakernel

import "github.com/shmsync/shmsync/shm"

// Place puts a part of the arena on NUMA nodes, for example a block that Alloc returned; see
// [shm.Segment.Place]. The part has size bytes and begins at the offset off. Place widens it to whole
// pages. A block shares its first and last page with other blocks, unless both its alignment and its
// size are multiples of a page.
//
// A block has memory as soon as it is allocated. If neither the arena nor the part has a policy,
// this memory is on the NUMA node of the process that was the first to allocate in the same chunk
// of 64 KiB. Pages that other processes have mapped move only if this process has CAP_SYS_NICE. So
// place a block before other processes use it.
func (a *Arena) Place(off Offset, size uint64, p shm.Policy) shm.Placement {
	return a.seg.Place(int64(off), int64(size), p)
}

// Where reports on which NUMA nodes a part of the arena is. The part has size bytes and begins at the
// offset off. Where also reports which placement a process requested; see [shm.Segment.Where].
func (a *Arena) Where(off Offset, size uint64) ([]shm.Placement, error) {
	return a.seg.Where(int64(off), int64(size))
}
