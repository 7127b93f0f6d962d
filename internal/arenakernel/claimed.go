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

// ClaimHeadroom is like ClaimBlock, but the block may lie in the headroom, as a slot record may. Tests
// call it to fill an arena to the last block.
func (a *Arena) ClaimHeadroom(size uint64) (Offset, error) {
	if err := a.BeginCall("arena.alloc"); err != nil {
		return 0, err
	}
	defer a.EndCall()
	return a.claimListed(size, true)
}

// UnclaimBlock frees a block that this participant got from ClaimBlock or ClaimHeadroom.
func (a *Arena) UnclaimBlock(off Offset) { a.unclaim(off) }
