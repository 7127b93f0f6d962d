package arenakernel

// ClaimBlock allocates a zeroed block of at least size bytes that belongs to this participant. The
// block is freed when the participant dies or leaves, unlike a block that Alloc returned. If there
// is not enough room, the error Is [shmsync.ErrNoSpace].
func (a *Arena) ClaimBlock(size uint64) (Offset, error) {
	if err := a.BeginCall("arena.alloc"); err != nil {
		return 0, err
	}
	defer a.EndCall()
	return a.claim(size, 1)
}

// UnclaimBlock frees a block that this participant got from ClaimBlock.
func (a *Arena) UnclaimBlock(off Offset) { a.unclaim(off) }

// ClaimedBlock returns the first size bytes of a block that owner has claimed. It returns nil if
// there is no such block at off, so the offset may come from a peer.
//
// After the death of owner, the bytes may become part of another block. So a caller that reads the
// block of a peer must call [Arena.Current] afterwards. If Current returns true, the bytes that
// were read belonged to owner.
func (a *Arena) ClaimedBlock(off Offset, size uint64, owner ParticipantID) []byte {
	b, ok := a.locate(off)
	if !ok || b.class == classNode || b.load() != makeBlock(blockClaimed, owner) || size > b.size {
		return nil
	}
	return a.slice(off, size)[:size:size]
}
