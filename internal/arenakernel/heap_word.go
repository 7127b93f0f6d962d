package arenakernel

import "strconv"

// chunkWord says what a chunk of the heap is for.
//
//	bits 0..2    kind      below
//	bit  3       reserved  the chunk and its page of block words have memory behind them
//	bits 4..34   number    of a slab: its size class; of a head: chunks of the span; of a tail: its head
//	bits 35..63  name      of a claimed or sweeping chunk: the participant that has claimed it or sweeps it
//
//	kind      reserved  number  name  meaning                                     left by
//	free      0         0       0     never used; all-zero memory                 creator
//	free      1         0       0     used before; its block words are 0          reclaim, sweep, span free
//	claimed   0|1       0       n     n is making a slab or a span of it          claimChunk, claimRun
//	slab      1         class   0     equal blocks                                claimFresh
//	sweeping  1         class   n     n is taking back a slab that looks empty    sweepChunk
//	head      1         chunks  0     first chunk of a span                       claimSpan
//	tail      1         head    0     another chunk of that span                  claimSpan
//
// Block words are read only if the reserved bit is set. Otherwise their page may have no memory.
//
// A chunk that is not a slab may have a claimed block word for a moment. The cause is an allocator
// that read the chunk word while the chunk was still a slab. After its claim, this allocator reads
// the chunk word again, notices the change, and releases the block. This disturbs no other
// participant, because no participant changes a block word from 0 without a CAS.
//
// crash: [core.reclaimBlocks] recovers the chunks of a dead participant. A claimed chunk becomes
// free again. A sweep is undone: blocked words become 0, and the chunk becomes the slab that it
// was. A span of which some tails are missing has a block word in state claimed or freeing, and is freed with
// that block.
type chunkWord uint64

const (
	chunkFree = iota
	chunkClaimed
	chunkSlab
	chunkSweeping
	chunkHead
	chunkTail
	chunkKinds
)

const (
	chunkReserved    chunkWord = 1 << 3
	chunkNumberShift           = 4
	chunkNumberMask            = 1<<31 - 1
	chunkNameShift             = 35
)

func makeChunk(kind int, number uint64, n ParticipantID) chunkWord {
	return chunkWord(kind) | chunkReserved |
		chunkWord(number)<<chunkNumberShift | chunkWord(n)<<chunkNameShift
}

func (w chunkWord) kind() int                  { return int(w & 7) }
func (w chunkWord) reserved() bool             { return w&chunkReserved != 0 }
func (w chunkWord) number() uint64             { return uint64(w>>chunkNumberShift) & chunkNumberMask }
func (w chunkWord) participant() ParticipantID { return ParticipantID(w >> chunkNameShift) }

// freed returns the chunk word w as it is after the chunk has been freed. The chunk keeps its
// memory.
func (w chunkWord) freed() chunkWord { return w & chunkReserved }

// claimedBy returns the chunk word for a chunk that the participant n claims, and whose word is w
// while it is free.
func (w chunkWord) claimedBy(n ParticipantID) chunkWord {
	return w&chunkReserved | chunkClaimed | chunkWord(n)<<chunkNameShift
}

// slabOf reports whether w is the word of a slab of the given class. A slab is a chunk that is
// divided into blocks of one size.
func (w chunkWord) slabOf(class int) bool { return w == makeChunk(chunkSlab, uint64(class), 0) }

// legal reports whether a correct participant may have written w as the word of chunk i of count
// chunks.
func (w chunkWord) legal(i, count uint64) bool {
	n := w.number()
	switch w.kind() {
	case chunkFree:
		return w&^chunkReserved == 0
	case chunkClaimed:
		return n == 0 && w.participant().valid()
	case chunkSlab:
		return w.reserved() && n < classes && w.participant() == 0
	case chunkSweeping:
		return w.reserved() && n < classNode && w.participant().valid()
	case chunkHead:
		return w.reserved() && n > 0 && n <= count-i && w.participant() == 0
	case chunkTail:
		return w.reserved() && n < i && w.participant() == 0
	}
	return false
}

// blockWord says what a block or span is used for. The word is not in the block, but in a page with
// all block words of its chunk. So a stray write into a block cannot harm the allocator.
//
//	bits 0..2   kind  below
//	bits 3..31  name  of a claimed, freeing, blocked or logged block: the participant that has made it so
//
//	kind     name  meaning                                       left by
//	free     0     free; all-zero memory                         creator, unclaim, Free
//	claimed  n     being made by n: no peer knows it             claim
//	raw      0     what Alloc returned; no reap frees it         publish
//	raw      s     the slot record of an object for slot s: a    pushRecord
//	               name of generation 0
//	object   0     an object; its header says in which phase     publish
//	node     0     a wait node in use                            claimNode
//	freeing  n     being taken apart by n                        Free, Delete, freeNode
//	blocked  n     free; n checks whether all blocks are free    sweepChunk
//	logged   n     allocated or freed by a transaction of n that LogBlock
//	               has not ended; an undo log has its offset
//
// crash: [core.reclaimBlocks] recovers the blocks of a dead participant. Claimed blocks become free, or objects
// if the object had been committed. Freeing blocks are freed, and blocked blocks become free. Logged blocks
// stay as they are until the next holder of the lock of the transaction makes them raw or free.
type blockWord uint32

const (
	blockFree = iota
	blockClaimed
	blockRaw
	blockObject
	blockNode
	blockFreeing
	blockBlocked
	blockLogged
	blockKinds
)

func makeBlock(kind int, n ParticipantID) blockWord { return blockWord(kind) | blockWord(n)<<3 }

func (w blockWord) kind() int                  { return int(w & 7) }
func (w blockWord) participant() ParticipantID { return ParticipantID(w >> 3) }

// legal reports whether a correct participant may have written w.
func (w blockWord) legal() bool {
	switch w.kind() {
	case blockFree, blockObject, blockNode:
		return w.participant() == 0
	case blockRaw:
		return w.participant().Generation() == 0
	case blockClaimed, blockFreeing, blockBlocked, blockLogged:
		return w.participant().valid()
	}
	return false
}

// String renders the word for messages.
func (w blockWord) String() string {
	if slot := w.recordSlot(); slot != 0 {
		return "the record of slot " + strconv.Itoa(slot) + " of an object"
	}
	s := [...]string{"free", "claimed", "raw", "object", "node", "freeing", "blocked", "logged"}[w.kind()]
	if n := w.participant(); n != 0 {
		s += " by " + n.String()
	}
	return s
}

// valid reports whether n can be the ID of a participant.
func (n ParticipantID) valid() bool { return n.Slot() != 0 && n.Generation() != 0 }
