package arenakernel

// Allocation in transactions. A block that a transaction allocates or frees is called logged. After the undo
// log has recorded the block, and until the end of the transaction, the block word names the process of the
// transaction. During that time, only the process that holds the lock of the transaction changes the word. So
// neither a reaper nor an allocator gives the block to another user while a rollback may still write into it.
// See docs/design/0039.

// HasByteLock reports whether this process holds the byte lock of its slot, a file lock that the
// kernel drops when the process has ended. Without this lock, no other process can prove that this
// process is gone.
func (a *Arena) HasByteLock() bool { return a.slotCaps(a.mySlot)&capOFD != 0 }

// Heap returns the offset and the length in bytes of the heap, the part of the arena that contains
// the blocks.
func (a *Arena) Heap() (off Offset, n uint64) {
	return Offset(a.geo.heapOff), a.geo.chunkCount * chunkSize
}

// Backed reports whether the n bytes at off are in chunks of the heap that have memory. The
// arguments may come from a peer.
func (a *Arena) Backed(off Offset, n uint64) bool {
	first, size := a.Heap()
	if off < first || uint64(off-first) >= size || n > size-uint64(off-first) {
		return false
	}
	if n == 0 {
		return true
	}
	last := (uint64(off-first) + n - 1) / chunkSize
	for i := uint64(off-first) / chunkSize; i <= last; i++ {
		if !a.loadChunk(i).reserved() {
			return false
		}
	}
	return true
}

// Bytes returns the n bytes at off. Backed must be true for them.
func (a *Arena) Bytes(off Offset, n uint64) []byte { return a.slice(off, n) }

// ClaimAligned claims a block for a transaction. It is like ClaimBlock, but the offset is a
// multiple of align, a power of two up to MaxAlign. The caller must call LogBlock next.
func (a *Arena) ClaimAligned(size, align uint64) (Offset, error) {
	if err := a.BeginCall("arena.alloc"); err != nil {
		return 0, err
	}
	defer a.EndCall()
	return a.claim(size, max(align, 1))
}

// LogBlock makes a block that this process has claimed belong to one of its transactions. The undo
// log already contains the offset of the block.
func (a *Arena) LogBlock(off Offset) error {
	b, ok := a.locate(off)
	if !ok || !b.swap(makeBlock(blockClaimed, a.self), makeBlock(blockLogged, a.self)) {
		return a.meddled(off)
	}
	return nil
}

// CanLogFreed returns "" if a transaction can free the block at off. Otherwise it returns the reason as a text.
// The second result reports whether the block already belongs to a transaction of this process.
func (a *Arena) CanLogFreed(off Offset) (why string, logged bool) {
	b, ok := a.locate(off)
	if !ok {
		return "no block begins there", false
	}
	switch w := b.load(); {
	case w == makeBlock(blockLogged, a.self):
		return "", true
	case w != blockRaw:
		return "the block there is " + w.String(), false
	}
	return "", false
}

// LogFreed turns a block of Alloc into a logged block, which a transaction of this process frees.
// The undo log already contains the offset of the block. LogFreed returns false if there is no raw
// block at off.
func (a *Arena) LogFreed(off Offset) bool {
	b, ok := a.locate(off)
	if !ok {
		return false
	}
	a.touch(b.chunk)
	return b.swap(blockRaw, makeBlock(blockLogged, a.self))
}

// KeepLogged turns a logged block, which a transaction of the participant n has allocated or freed,
// into a raw block as Alloc returns it. It returns false if there is no such block, in which case
// there is nothing to do.
func (a *Arena) KeepLogged(n ParticipantID, off Offset) bool {
	b, ok := a.locate(off)
	// sync(arena.publish): release
	return ok && b.swap(makeBlock(blockLogged, n), makeBlock(blockRaw, 0))
}

// TakeLogged takes over a logged block from a transaction of the participant n, so that this
// process can free the block with ReleaseTaken. It returns false if there is no such block, in
// which case there is nothing to do.
func (a *Arena) TakeLogged(n ParticipantID, off Offset) bool {
	b, ok := a.locate(off)
	if !ok {
		return false
	}
	a.touch(b.chunk)
	return b.swap(makeBlock(blockLogged, n), makeBlock(blockFreeing, a.self))
}

// ReleaseTaken frees a block that TakeLogged has taken over. The caller guarantees that no other
// thread of this process frees the block.
func (a *Arena) ReleaseTaken(off Offset) {
	freeing := makeBlock(blockFreeing, a.self)
	if b, ok := a.locate(off); ok && b.load() == freeing {
		a.release(b, freeing)
	}
}
