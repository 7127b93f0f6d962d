package arenakernel

// The layout of a segment. All integers are little-endian. All regions are fixed when the arena is
// created:
//
//	header | slots | death records | directory | chunk words | block words | heap
//
// docs/abi.md has the byte tables; a test compares them with these constants.
const (
	// LayoutVersion is the version of the layout that this package reads and writes. It is
	// incremented when the meaning of any byte changes, unless a feature bit covers the change.
	LayoutVersion = 10

	magic     = "shmsync\x00"
	orderMark = 0x01020304
	wordBytes = 8 // sizeof(void *) of the processes that may join

	headerSize = 4096

	// MaxSlots is the maximum number of participants of an arena. An owner word has 11 bits for the
	// slot, and slot 0 means no participant.
	MaxSlots = 1<<slotBits - 1

	slotStride        = 2048
	aliveWords        = 4
	announceCount     = 32
	deathRecordCount  = 256
	deathRecordDeaths = 192 // records for deaths; the others are for orderly leaves
	deathRecordStride = 128
	labelBytes        = 63

	chunkSize     = 64 << 10 // the size of a chunk of the heap; the heap gets memory chunk by chunk
	blockMin      = 64       // the smallest block, and the alignment of all blocks
	blockWords    = chunkSize / blockMin
	blockWordSize = 4
	// chunkWordsSize is the size in bytes of the block words of one chunk.
	chunkWordsSize = blockWords * blockWordSize

	objectHeader = 64 // bytes in front of an object's body

	nodeSize = 64
)

// Feature bits. A process refuses an arena with an unknown incompatible bit. It can only inspect an
// arena with an unknown read-only-compatible bit. It ignores unknown compatible bits.
const (
	// compatCounted means that objects count their operations, and record since when a participant
	// holds them. The operations of a participant that does not know this bit are not counted.
	compatCounted = 1

	knownCompat   = compatCounted
	knownROCompat = 0
	knownIncompat = 0
)

// geometry is a validated copy of the immutable part of the arena's header. After the validation,
// no code reads this part from shared memory again.
type geometry struct {
	size           uint64 // size of the segment
	slots          int    // participants, from slot 1
	slotsOff       uint64
	deathRecordOff uint64
	dirOff         uint64
	dirCount       uint64 // a power of two
	chunksOff      uint64 // one uint64 for each chunk
	blocksOff      uint64 // blockWords uint32s for each chunk
	heapOff        uint64 // a multiple of chunkSize
	chunkCount     uint64
	linked         uint64   // how many chunks are within reach of a link of 32 bits
	headroom       headroom // which chunks are the headroom; the size of the segment determines it
	counted        bool     // the bit compatCounted
}

func alignUp(v, to uint64) uint64 { return (v + to - 1) &^ (to - 1) }

// plan returns the layout of a segment of size bytes for the given number of participants. If size
// has no room for so many participants, chunkCount is 0.
func plan(size uint64, slots int) geometry {
	g := geometry{size: size, slots: slots, slotsOff: headerSize}
	g.deathRecordOff = g.slotsOff + uint64(slots)*slotStride
	g.dirOff = alignUp(g.deathRecordOff+deathRecordCount*deathRecordStride, 4096)
	g.dirCount = 64
	for g.dirCount*512 < size {
		g.dirCount *= 2
	}
	g.chunksOff = g.dirOff + g.dirCount*8
	most := size / chunkSize
	g.blocksOff = alignUp(g.chunksOff+most*8, 4096)
	g.heapOff = alignUp(g.blocksOff+most*chunkWordsSize, chunkSize)
	if g.heapOff < size {
		g.chunkCount = (size - g.heapOff) / chunkSize
	}
	g.linked = linkedChunks(g.heapOff, g.chunkCount)
	g.headroom = planHeadroom(g.heapOff, g.chunkCount)
	return g
}

// fixedEnd returns the end of the regions that get memory when the arena is created. The other
// regions, block words and heap, get memory chunk by chunk.
func (g *geometry) fixedEnd() uint64 { return g.blocksOff }
