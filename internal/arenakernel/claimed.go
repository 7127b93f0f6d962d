package arenakernel

// ClaimBlock gives a block of at least size bytes, zeroed, that is this
// participant's own: unlike one of Alloc it goes back when the participant dies or
// leaves. Without enough room the error Is [shmsync.ErrNoSpace].
func (a *Arena) ClaimBlock(size uint64) (Offset, error) { return a.claim(size, 1) }

// UnclaimBlock gives back what ClaimBlock gave to this participant.
func (a *Arena) UnclaimBlock(off Offset) { a.unclaim(off) }

// ClaimedBlock views the first size bytes of a block that owner has claimed, at an
// offset that came from a peer. It is nil where no such block is.
//
// The bytes may be those of another block from the owner's death on. So a caller that reads
// a peer's block asks [Arena.Current] afterwards: if the answer is yes, the bytes were
// still the owner's.
func (a *Arena) ClaimedBlock(off Offset, size uint64, owner ParticipantID) []byte {
	b, ok := a.locate(off)
	if !ok || b.class == classNode || b.load() != makeBlock(blockClaimed, owner) || size > b.size {
		return nil
	}
	return a.slice(off, size)[:size:size]
}
