package arenakernel

import (
	"math/bits"
	"sync/atomic"
)

// slotSet is a set of slots.
type slotSet [MaxSlots/32 + 1]uint32

func (s *slotSet) has(i int) bool { return s[i/32]&(1<<(i%32)) != 0 }

// each calls f for each slot of the set.
func (s *slotSet) each(f func(slot int)) {
	for k, w := range s {
		for ; w != 0; w &= w - 1 {
			f(32*k + bits.TrailingZeros32(w))
		}
	}
}

// sharedSlotSet is a set of slots that several goroutines add to.
type sharedSlotSet [MaxSlots/32 + 1]atomic.Uint32

// add adds slot i to the set. It reports whether the slot was not in the set before.
func (s *sharedSlotSet) add(i int) (first bool) {
	bit := uint32(1) << (i % 32)
	return s[i/32].Or(bit)&bit == 0
}

func (s *sharedSlotSet) has(i int) bool { return s[i/32].Load()&(1<<(i%32)) != 0 }

// takeAll empties the set, and returns its previous contents.
func (s *sharedSlotSet) takeAll() (all slotSet) {
	for k := range s {
		all[k] = s[k].Swap(0)
	}
	return all
}
