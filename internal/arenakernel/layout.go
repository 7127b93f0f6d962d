package arenakernel

// The layout of a segment, version 4. All integers are little-endian, all
// regions are fixed for life when the arena is created:
//
//	header | slots | death records | directory | chunk words | block words | heap
//
// docs/abi.md has the byte tables; a test compares them.
const (
	// LayoutVersion is the version of the layout that this package reads and
	// writes. A change of any byte's meaning bumps it, unless a feature bit
	// covers it.
	LayoutVersion = 4

	magic     = "shmsync\x00"
	orderMark = 0x01020304
	wordBytes = 8 // sizeof(void *) of the processes that may join

	headerSize = 4096

	// MaxSlots is the most participants that an arena can have: an owner word
	// spares 11 bits for the slot, and slot 0 stands for no participant.
	MaxSlots = 1<<slotBits - 1

	slotStride        = 2048
	aliveWords        = 4
	announceCount     = 32
	deathRecordCount  = 256
	deathRecordDeaths = 192 // of those, for deaths; the rest is for orderly leaves
	deathRecordStride = 128
	labelBytes        = 63

	chunkSize     = 64 << 10 // the unit in which the heap is handed out and reserved
	blockMin      = 64       // the smallest block, and the alignment of all
	blockWords    = chunkSize / blockMin
	blockWordSize = 4

	objectHeader = 64 // bytes in front of an object's body

	nodeSize = 64
)

// Feature bits. An arena whose incompatible bits this package does not know is
// refused; one whose read-only-compatible bits it does not know can only be
// looked at; unknown compatible bits are ignored.
const (
	// compatCounted: objects count operations and date their holds. A participant that
	// does not know this bit leaves its own operations out.
	compatCounted = 1

	knownCompat   = compatCounted
	knownROCompat = 0
	knownIncompat = 0
)

// geometry is the validated copy of the immutable part of the header. Nothing
// of it is read from shared memory again.
type geometry struct {
	size           uint64 // of the segment
	slots          int    // participants, from slot 1
	slotsOff       uint64
	deathRecordOff uint64
	dirOff         uint64
	dirCount       uint64 // a power of two
	chunksOff      uint64 // one uint64 a chunk
	blocksOff      uint64 // blockWords uint32 a chunk
	heapOff        uint64 // a multiple of chunkSize
	chunkCount     uint64
	counted        bool // compatCounted
}

func alignUp(v, to uint64) uint64 { return (v + to - 1) &^ (to - 1) }

// plan lays out a segment of size bytes for that many participants. It is
// total: what does not fit has a chunkCount of 0.
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
	g.heapOff = alignUp(g.blocksOff+most*blockWords*blockWordSize, chunkSize)
	if g.heapOff < size {
		g.chunkCount = (size - g.heapOff) / chunkSize
	}
	return g
}

// fixedEnd is where the regions end that are reserved when the arena is
// created; block words and heap are reserved chunk by chunk.
func (g *geometry) fixedEnd() uint64 { return g.blocksOff }
