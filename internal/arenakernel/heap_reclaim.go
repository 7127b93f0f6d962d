package arenakernel

// reclaimBlocks completes or undoes the changes of the heap that a dead participant had begun. It frees the blocks,
// chunks and names that this participant had claimed and that no other process knows of, and the blocks that the
// participant was freeing. It makes a slab usable again if the participant died while it was taking the slab back.
// Two kinds of blocks stay: those that Alloc returned to the participant, because other processes may know their
// offsets, and objects that the participant had committed. Blocks that transactions of the participant have allocated
// or freed stay as they are until the transactions are undone.
//
// Preconditions: no thread of the dead participant stores to the arena any more. A participant that leaves may
// call reclaimBlocks with its own ID, if it does nothing else in the arena any more. This process is the reaper
// of the participant's slot, so no other process calls reclaimBlocks for the same participant at the same time.
// If this process dies during the call, another process may repeat the call.
func (c *core) reclaimBlocks(dead ParticipantID) {
	c.handles.Lock()
	defer c.handles.Unlock()
	c.releaseDeferred()
	c.resolveEntries(dead)
	c.eachTouched(dead.Slot(), func(i uint64) {
		w := c.loadChunk(i)
		if w.reserved() {
			c.reclaimChunk(i, w, dead)
		}
		// Free the chunk itself only now, after reclaimChunk has examined its block words. Load its
		// word again, because reclaimChunk may have changed the word.
		if w = c.loadChunk(i); w.kind() == chunkClaimed && w.participant() == dead {
			c.swapChunk(i, w, w.freed())
		}
	})
}

// reclaimChunk does for the block words of one chunk what the method reclaimBlocks does. It
// examines all of these words, whatever the chunk is used for. A word may be claimed although the
// chunk has no block for it; see chunkWord.
func (c *core) reclaimChunk(i uint64, w chunkWord, dead ParticipantID) {
	if w.kind() == chunkSweeping && w.participant() == dead {
		c.unblock(i, dead)
		c.swapChunk(i, w, makeChunk(chunkSlab, w.number(), 0))
	}
	c.work.Add(blockWords)
	for k := range uint64(blockWords) {
		word := c.blockWordOf(i, k)
		switch w := blockWord(word.Load()); {
		case w.kind() == blockObject:
			if b, ok := c.blockOfWord(i, k); ok {
				c.resolveDelete(b, dead)
			}
		case w.participant() == dead && w != 0 && w.kind() != blockLogged:
			c.reclaimBlock(i, k, w)
		}
	}
}

// blockOfWord returns the block that word k of chunk i describes. It returns false if there is no
// such block.
func (c *core) blockOfWord(i, k uint64) (block, bool) {
	w := c.loadChunk(i)
	if !w.legal(i, c.geo.chunkCount) {
		return block{}, false
	}
	switch w.kind() {
	case chunkHead:
		if k == 0 {
			return block{c.chunkOff(i), w.number() * chunkSize, i, 0, -1, c.blockWordOf(i, 0)}, true
		}
	case chunkSlab, chunkSweeping:
		if class := int(w.number()); k < blocksOf(class) {
			return c.blockIn(i, k, class), true
		}
	}
	return block{}, false
}

// reclaimBlock frees a block whose word w names a dead participant.
func (c *core) reclaimBlock(i, k uint64, w blockWord) {
	b, ok := c.blockOfWord(i, k)
	if !ok {
		c.blockWordOf(i, k).CompareAndSwap(uint32(w), blockFree)
		return
	}
	if b.class == classNode {
		c.resetNode(b.off)
		c.release(b, w)
		return
	}
	// The block may be a slot record, which must stay. If another participant is deleting the object of the record,
	// that participant publishes the record, and may then free it. So free the block only if its word is still w.
	if w.kind() == blockClaimed && (c.keepRecord(b, w) || b.load() != w) {
		return
	}
	c.releaseUnseen(b, w)
}

// eachBlock calls f for every block and span that is not free, until f returns false. It may miss a
// block that is claimed or freed at the same time. It may also call f for a block that was freed a
// moment ago. So f must check a block again before it uses the block.
func (c *core) eachBlock(f func(off Offset, size uint64, w blockWord) bool) {
	for i := c.chunkFrom(0); i < c.geo.chunkCount; i = c.chunkFrom(i + 1) {
		if !c.eachBlockOf(i, f) {
			return
		}
	}
}

// eachBlockOf calls f, as the method eachBlock does, for the blocks of one chunk. It returns false
// if f returned false.
func (c *core) eachBlockOf(i uint64, f func(off Offset, size uint64, w blockWord) bool) bool {
	w := c.loadChunk(i)
	if !w.legal(i, c.geo.chunkCount) {
		return true
	}
	n, size := uint64(0), uint64(0)
	switch w.kind() {
	case chunkHead:
		n, size = 1, w.number()*chunkSize
	case chunkSlab, chunkSweeping:
		n, size = blocksOf(int(w.number())), uint64(classSizes[w.number()])
	}
	c.work.Add(n)
	for k := range n {
		w := blockWord(c.blockWordOf(i, k).Load())
		if w != blockFree && !f(c.chunkOff(i)+Offset(k*size), size, w) {
			return false
		}
	}
	return true
}

// AllocStats counts the blocks in the heap of an arena.
type AllocStats struct {
	Chunks       uint64 // how many chunks the heap has, of 64 KiB each
	FreeChunks   uint64 // chunks that are not in use
	Headroom     uint64 // chunks of the headroom, which only slot records and wait nodes can use
	FreeHeadroom uint64 // chunks of the headroom that are not in use
	Reserved     uint64 // chunks that are backed by memory
	Raw          uint64 // blocks that Alloc returned and no process has freed
	Objects      uint64
	SlotRecords  uint64 // blocks in which an object keeps data for one slot
	Nodes        uint64 // all wait nodes, including PollerNodes
	PollerNodes  uint64 // wait nodes on the node list of an object; they are freed with the object
	Claimed      uint64 // blocks that are being made or freed
	BytesUsed    uint64 // the size of all these blocks, each rounded up to its class or span
	Bytes        uint64 // size of the heap
}

// Stats counts the blocks in the heap. If other processes use the arena at the same time, the
// numbers may be from different moments.
func (a *Arena) Stats() AllocStats {
	a.mustBeginCall("arena.stats") // Close does not take the memory away while the heap is read
	defer a.EndCall()
	s := AllocStats{Chunks: a.geo.chunkCount, Headroom: a.geo.chunkCount - a.geo.common(), Bytes: a.geo.chunkCount * chunkSize}
	s.FreeChunks, s.FreeHeadroom = s.Chunks, s.Headroom
	for i := a.chunkFrom(0); i < a.geo.chunkCount; i = a.chunkFrom(i + 1) {
		w := a.loadChunk(i)
		if w.kind() != chunkFree {
			s.FreeChunks--
			if a.geo.roomOf(i) != roomOfAll {
				s.FreeHeadroom--
			}
		}
		if w.reserved() {
			s.Reserved++
		}
	}
	a.eachBlock(func(off Offset, size uint64, w blockWord) bool {
		switch w.kind() {
		case blockRaw:
			if w.recordSlot() != 0 {
				s.SlotRecords++
			} else {
				s.Raw++
			}
		case blockObject:
			s.Objects++
		case blockNode:
			s.Nodes++
			if a.node(off).list.Load() != 0 {
				s.PollerNodes++
			}
		default:
			s.Claimed++
		}
		s.BytesUsed += size
		return true
	})
	return s
}
