package arenakernel

// The sizes of the blocks in slabs, that is, in chunks that are divided into equal blocks. Each
// size is a multiple of 64, so that every block is aligned to a cache line. A request with a
// greater alignment takes a class whose size is a multiple of that alignment. A request that does
// not fit into any class takes a span, which consists of whole chunks.
var classSizes = [classes]uint32{
	64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 32768,
	nodeSize,
}

const (
	// classNode is the class of wait nodes. Its chunks are never used for anything else. So a
	// participant that reads a node after it was freed still reads a node, possibly a newer one.
	classNode = 17
	classes   = 18

	// MaxAlign is the greatest alignment that Alloc supports.
	MaxAlign = 4096
)

// classFor returns the smallest class for size bytes with the given alignment, a power of two up to
// MaxAlign. It returns false if the request needs a span.
func classFor(size, align uint64) (class int, ok bool) {
	for class, s := range classSizes[:classNode] {
		if size <= uint64(s) && uint64(s)&(align-1) == 0 {
			return class, true
		}
	}
	return 0, false
}

// blocksOf returns the number of blocks in a slab of the class.
func blocksOf(class int) uint64 { return uint64(chunkSize / classSizes[class]) }
