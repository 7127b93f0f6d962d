package arenakernel

import (
	"math/bits"
	"slices"
)

// generations is a set of generations, the numbers that distinguish the participants of one slot.
type generations [(maxGeneration + 1) / 64]uint64

func (s *generations) add(g uint32) { s[g/64] |= 1 << (g % 64) }

// longestGap returns the first and the last generation of the longest range of generations that are not in the
// set. If the set contains all generations, the first result is 0.
func (s *generations) longestGap() (first, last uint32) {
	begin, longest := uint32(1), uint32(0)
	end := func(at uint32) { // the gap ends before this generation
		if at > begin && at-begin > longest {
			first, longest = begin, at-begin
		}
		begin = at + 1
	}
	for k, w := range s {
		for ; w != 0; w &= w - 1 {
			if g := uint32(k*64 + bits.TrailingZeros64(w)); g <= generationsMost {
				end(g)
			}
		}
	}
	end(generationsMost + 1)
	return first, first + longest - 1
}

// idSearch searches the words of an arena for IDs of slots. idSearch does not read user data. It
// does not know the kinds of objects, so it may take other bytes for IDs. Such a mistake only makes
// fewer generations available.
type idSearch struct {
	slots []int
	found [MaxSlots + 1]*generations
}

// add includes a slot in the search. The present generation of the slot counts as found.
func (s *idSearch) add(slot int, now uint32) {
	s.slots = append(s.slots, slot)
	s.found[slot] = &generations{}
	s.found[slot].add(now)
}

func (s *idSearch) id(n ParticipantID) {
	if g := s.found[n.Slot()]; g != nil {
		g.add(n.Generation())
	}
}

// word adds the IDs that w may contain, in bits 0..28 or in bits 3..31.
func (s *idSearch) word(w uint32) {
	if w != 0 {
		s.id(ParticipantID(w & ParticipantIDMask))
		s.id(ParticipantID(w >> 3))
	}
}

func (s *idSearch) run(a *Arena) {
	words := func(from, to Offset) {
		for off := from; off < to; off += 4 {
			s.word(a.u32(off).Load())
		}
	}
	for i := 1; i <= a.geo.slots; i++ {
		s.word(a.u32(a.slot(i) + slotReaper).Load())
	}
	s.word(a.u32(hdrDirLowerer).Load())
	// A death record names a participant, and [Arena.Who] finds the record by that ID.
	for k := range uint64(deathRecordCount) {
		s.word(a.u32(Offset(a.geo.deathRecordOff+k*deathRecordStride) + deathRecordID).Load())
	}
	for k := range a.geo.chunkCount {
		w := a.loadChunk(k)
		s.id(w.participant())
		if w.slabOf(classNode) {
			// Search free nodes, too. Their words keep their old values, and a thread may still
			// read them.
			words(a.chunkOff(k), a.chunkOff(k)+chunkSize)
		}
	}
	a.eachBlock(func(off Offset, size uint64, w blockWord) bool {
		s.id(w.participant())
		switch w.kind() {
		case blockRaw, blockLogged:
			if w.recordSlot() == 0 {
				return true
			}
			if b, ok := a.locate(off); ok {
				if n, known := a.recordWords(b); known {
					size = n
				}
			}
		case blockObject:
			if h, err := a.headerAt(off); err == nil {
				words(off, h.Body)
				a.wordsOfBody(h.Object, words)
				words(h.Body+Offset(alignUp(h.Size, 4)), off+Offset(size))
				return true
			}
		}
		words(off, off+Offset(size))
		return true
	})
}

// wordsOfBody calls the function words for the parts of the body of o that are not user data.
func (a *Arena) wordsOfBody(o Object, words func(from, to Offset)) {
	if o.Kind == KindValue || o.Kind == KindBlock {
		return
	}
	type part struct{ from, to uint64 }
	var hidden []part
	if ops, ok := opsOf(o); ok && ops.UserData != nil {
		ops.UserData(a, o, func(from Offset, n uint64) {
			at := min(uint64(from), o.Size)
			hidden = append(hidden, part{at, at + min(n, o.Size-at)})
		})
	}
	slices.SortFunc(hidden, func(x, y part) int { return int(int64(x.from) - int64(y.from)) })
	at := uint64(0) // all bytes before this offset have been searched, or are user data
	for _, h := range append(hidden, part{o.Size, o.Size}) {
		if at < h.from {
			words(o.Body+Offset(at&^3), o.Body+Offset(h.from))
		}
		at = max(at, h.to)
	}
}
