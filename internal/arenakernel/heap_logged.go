package arenakernel

// The blocks of transactions. A block that a transaction allocates or frees is logged: its block
// word names the process of the transaction, from the record in the undo log until the transaction
// ends. During that time, only the process that holds the lock with the log changes the word. So
// neither a reaper nor an allocator gives the block to another user while a rollback still writes
// into it. See docs/design/0039.

// HasByteLock reports whether this process holds the byte lock of its slot. Without the lock, no
// other process could prove that this process is gone.
func (a *Arena) HasByteLock() bool { return a.slotCaps(a.mySlot)&capOFD != 0 }

// Heap returns where the heap is, the part of the arena that contains the blocks: its offset and
// its length in bytes.
func (a *Arena) Heap() (off Offset, n uint64) {
	return Offset(a.geo.heapOff), a.geo.chunkCount * chunkSize
}

// Backed reports whether n bytes at off, which may come from a peer, are in the heap, in chunks
// that are backed by memory.
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

// Bytes returns n bytes at off, for which Backed is true.
func (a *Arena) Bytes(off Offset, n uint64) []byte { return a.slice(off, n) }

// ClaimAligned claims a block for a transaction as ClaimBlock does, at a multiple of align, a power
// of two up to MaxAlign. The caller calls LogBlock next.
func (a *Arena) ClaimAligned(size, align uint64) (Offset, error) {
	if err := a.BeginCall("arena.alloc"); err != nil {
		return 0, err
	}
	defer a.EndCall()
	return a.claim(size, max(align, 1))
}

// LogBlock turns a block that this process has claimed into a logged block of one of its
// transactions. The log already has the offset of the block.
func (a *Arena) LogBlock(off Offset) error {
	b, ok := a.locate(off)
	if !ok || !b.swap(makeBlock(blockClaimed, a.self), makeBlock(blockLogged, a.self)) {
		return a.meddled(off)
	}
	return nil
}

// CanLogFreed returns why a transaction cannot free the block at off, or "" if it can. logged
// reports that a transaction of this process already has the block.
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

// LogFreed turns a raw block into a block that a transaction of this process frees. The log already
// has the offset of the block. LogFreed returns false if the block is not raw.
func (a *Arena) LogFreed(off Offset) bool {
	b, ok := a.locate(off)
	if !ok {
		return false
	}
	a.touch(b.chunk)
	return b.swap(blockRaw, makeBlock(blockLogged, a.self))
}

// KeepLogged turns a logged block of a transaction of n into a raw one. It returns false if there
// is no such block; then there is nothing to do.
func (a *Arena) KeepLogged(n ParticipantID, off Offset) bool {
	b, ok := a.locate(off)
	// sync(arena.publish): release
	return ok && b.swap(makeBlock(blockLogged, n), makeBlock(blockRaw, 0))
}

// TakeLogged takes over a logged block of a transaction of n, so that this process can free it with
// ReleaseTaken. It returns false if there is no such block; then there is nothing to do.
func (a *Arena) TakeLogged(n ParticipantID, off Offset) bool {
	b, ok := a.locate(off)
	if !ok {
		return false
	}
	a.touch(b.chunk)
	return b.swap(makeBlock(blockLogged, n), makeBlock(blockFreeing, a.self))
}

// ReleaseTaken frees a block that TakeLogged has taken. The caller knows that no other thread of
// this process frees it.
func (a *Arena) ReleaseTaken(off Offset) {
	freeing := makeBlock(blockFreeing, a.self)
	if b, ok := a.locate(off); ok && b.load() == freeing {
		a.release(b, freeing)
	}
}
