package arenakernel

import "math/bits"

// slotTouched is a field of a slot. slotTouched says in which chunks of the heap the participant
// may leave something when it dies: a claimed chunk or block, a block that it is freeing, or an
// object that it has opened and may hold. The reaper examines no other chunk. So the cost of a
// death depends on how much the dead participant touched, and not on how much the arena contains.
//
//	bit k  the participant has touched one of the chunks k, k+touchedBits, k+2*touchedBits, ...
//
//	writers: the owner sets each bit once; the participant that frees the slot clears all
//	readers: the owner's reaper; the owner as it leaves
//	order:   acq_rel: the bit is set before the first word that names the owner in the chunk
//	futex:   none
//	crash:   bits may be set needlessly; they stay until the traces of the slot's participants are
//	         removed, so a joiner that takes the slot of a dead one keeps its bits as well
const slotTouched Offset = 1280

const (
	touchedWords = 64
	touchedBits  = touchedWords * 64
)

func (c *core) touchedWord(slot int, k uint64) Offset {
	return c.slot(slot) + slotTouched + Offset(k*8)
}

// touch records that this participant is about to claim, free, open or hold something in a chunk of
// the heap.
func (c *core) touch(chunk uint64) {
	bit := chunk % touchedBits
	word, mask := c.u64(c.touchedWord(c.self.Slot(), bit/64)), uint64(1)<<(bit%64)
	if word.Load()&mask == 0 {
		// sync(arena.touched): release
		word.Or(mask)
	}
}

// eachTouched calls f for the chunks that the field slotTouched of a slot names.
func (c *core) eachTouched(slot int, f func(chunk uint64)) {
	for k := range uint64(touchedWords) {
		// sync(arena.touched): acquire
		for w := c.u64(c.touchedWord(slot, k)).Load(); w != 0; w &= w - 1 {
			for i := k*64 + uint64(bits.TrailingZeros64(w)); i < c.geo.chunkCount; i += touchedBits {
				f(i)
			}
		}
	}
}

// touchedNothing reports whether the set of chunks that participants of a slot may have changed is
// empty.
func (c *core) touchedNothing(slot int) bool {
	for k := range uint64(touchedWords) {
		if c.u64(c.touchedWord(slot, k)).Load() != 0 {
			return false
		}
	}
	return true
}

// forgetTouched clears the set of chunks in which participants of a slot may have left something.
//
// Preconditions: nothing is left of all participants that were in the slot, and no joiner can take
// the slot.
func (c *core) forgetTouched(slot int) {
	for k := range uint64(touchedWords) {
		if w := c.u64(c.touchedWord(slot, k)); w.Load() != 0 {
			w.Store(0)
		}
	}
}
