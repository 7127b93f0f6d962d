package arenakernel

import "time"

// The headroom is a part of the heap that blocks of Alloc and new objects cannot use. When users have
// filled the rest, participants can still use objects that exist: the headroom has room for their slot
// records and wait nodes. So a full arena prevents no recovery. See docs/design/0061.
//
// The headroom consists of certain chunks, which depend on the size of the arena alone. So no counter
// is needed: an allocation that may not use the headroom never looks at these chunks. A program of a
// version without headroom uses these chunks like all others. The words of the heap mean the same in
// both versions. So each version finds, frees and recovers a block of the headroom like any other
// block.
type headroom struct {
	first   uint64 // the first chunk
	records uint64 // the number of chunks for slot records of up to 256 bytes
	large   uint64 // the number of chunks for slot records of any size, which follow
	nodes   uint64 // the number of chunks for wait nodes, which follow
}

const (
	// headroomShare determines the size of the headroom: one chunk in headroomShare chunks, rounded
	// up.
	headroomShare = 16
	// headroomMost is the greatest number of chunks of the headroom, 16 MiB.
	headroomMost = 256
	// headroomLeast is the least number of chunks of a heap with headroom.
	headroomLeast = 4
	// headroomNodes is the number of chunks for wait nodes in a headroom of at least two chunks. A
	// chunk has 1,024 wait nodes. A chunk that was used for wait nodes is never used for anything
	// else.
	headroomNodes = 1
	// headroomPause is how long an allocation in the headroom pauses before each of its last tries. The
	// headroom may have only one suitable chunk. If another participant is making a slab of this chunk, and has
	// lost its CPU or died, the pause gives that participant or its reaper time to finish.
	headroomPause = 2 * time.Millisecond
	// classHeadroom is the size class of the smallest blocks in the headroom. Such a block has room for the slot
	// record of any object except a Waitable whose state has more than 8 bytes. So one chunk of headroom serves all
	// objects except these Waitables.
	//
	// The slot record of a Waitable contains the state twice, and the user decides how large the state is. The slot
	// record of a Waitable with a larger state can lie only in the chunks for records of any size. So the other
	// chunks remain for the recovery of locks.
	classHeadroom = 3
)

// linkedChunks returns how many chunks of a heap are within reach of a link of 32 bits. Such a link contains
// an offset divided by linkUnit. Examples are the word objRecords, and the words of a queue that name a wait
// node.
func linkedChunks(heapOff, chunks uint64) uint64 {
	const end = linkUnit << 32 // 256 GiB
	return min(chunks, (max(end, heapOff)-heapOff)/chunkSize)
}

// planHeadroom returns the headroom of a heap. It consists of the last chunks within reach of a link. If
// there are too few of them, the heap has no headroom.
func planHeadroom(heapOff, chunks uint64) headroom {
	n, end := min((chunks+headroomShare-1)/headroomShare, headroomMost), linkedChunks(heapOff, chunks)
	if chunks < headroomLeast || end < n {
		return headroom{}
	}
	h := headroom{first: end - n, records: n}
	if n > headroomNodes {
		h.nodes, h.records = headroomNodes, n-headroomNodes
	}
	h.large = h.records / 2
	h.records -= h.large
	return h
}

// chunks returns the number of chunks of the headroom.
func (h *headroom) chunks() uint64 { return h.records + h.large + h.nodes }

// A room is a set of chunks of the heap. Each chunk is in one room only, except that roomOfLinked is a part of
// roomOfAll.
type room int

const (
	roomOfAll     room = iota // for every allocation
	roomOfLinked              // the part of roomOfAll within reach of a link; for wait nodes, and for blocks on lists
	roomOfRecords             // headroom for slot records of up to 256 bytes
	roomOfLarge               // headroom for slot records of any size
	roomOfNodes               // headroom for wait nodes
)

// inHeadroom reports whether the room is a part of the headroom.
func (in room) inHeadroom() bool { return in > roomOfLinked }

// common returns the number of chunks outside the headroom.
func (g *geometry) common() uint64 { return g.chunkCount - g.headroom.chunks() }

// serves reports whether an allocation in the given room may use a chunk.
func (g *geometry) serves(in room, chunk uint64) bool {
	if in == roomOfLinked {
		return chunk < g.linked && g.roomOf(chunk) == roomOfAll
	}
	return g.roomOf(chunk) == in
}

// roomOf returns the room of a chunk. The result is never roomOfLinked.
func (g *geometry) roomOf(chunk uint64) room {
	switch h := &g.headroom; {
	case chunk < h.first || chunk >= h.first+h.chunks():
		return roomOfAll
	case chunk < h.first+h.records:
		return roomOfRecords
	case chunk < h.first+h.records+h.large:
		return roomOfLarge
	}
	return roomOfNodes
}

// claimListed claims a block of at least size bytes that the caller will push on the list of an object, so the block
// lies within reach of a link. The block may lie in the headroom only if the parameter exists is true, that is, if
// the list already has a slot record.
//
// The creator of an object makes its first slot record. This record never lies in the headroom. So a participant
// cannot use up the headroom by creating objects.
func (c *core) claimListed(size uint64, exists bool) (Offset, error) {
	off, err := c.claimOutside(size, 1, roomOfLinked)
	if err == nil || !exists || !isNoSpace(err) || c.geo.headroom.records == 0 {
		return off, err
	}
	class, ok := classFor(size, 1)
	if !ok {
		return 0, c.noSpace(size, roomOfLarge)
	}
	if class <= classHeadroom {
		class = classHeadroom
		if off, err = c.claimZeroed(class, roomOfRecords); err == nil || !isNoSpace(err) || c.geo.headroom.large == 0 {
			return off, err
		}
	}
	return c.claimZeroed(class, roomOfLarge)
}
