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
