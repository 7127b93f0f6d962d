package model

import "hash/maphash"

// table is a set of states. It numbers them in the order of their insertion.
type table[S comparable] struct {
	chunks [][]S    // each of chunkLen states
	slots  []uint64 // 0 if the slot is empty; the length is a power of two
	n      int
	seed   maphash.Seed
}

// A slot has the number of a state plus 1 in its low half, and hashBits of the hash of the state in its high half. So a
// search reads a state only if the hash is equal, and a table that grows reads no state at all. Without the
// hash in the slot, an exploration of millions of states would spend most of its time waiting for memory.
const (
	numberBits = 32
	hashBits   = 32
)

const chunkLen = 1 << 13

func newTable[S comparable]() *table[S] {
	return &table[S]{slots: make([]uint64, 1<<12), seed: maphash.MakeSeed()}
}

func (t *table[S]) len() int { return t.n }

func (t *table[S]) at(i uint32) *S { return &t.chunks[i/chunkLen][i%chunkLen] }

// insert returns the number of s, and whether s is new.
func (t *table[S]) insert(s *S) (i uint32, fresh bool) {
	hash := maphash.Comparable(t.seed, *s) >> (64 - hashBits)
	mask := len(t.slots) - 1
	k := int(hash) & mask
	for ; t.slots[k] != 0; k = (k + 1) & mask {
		if at := uint32(t.slots[k]) - 1; t.slots[k]>>numberBits == hash && *t.at(at) == *s {
			return at, false
		}
	}
	i = uint32(t.n)
	if t.n%chunkLen == 0 {
		t.chunks = append(t.chunks, make([]S, chunkLen))
	}
	t.n++
	*t.at(i) = *s
	t.slots[k] = hash<<numberBits | uint64(i+1)
	if t.n*2 > len(t.slots) {
		t.grow()
	}
	return i, true
}

func (t *table[S]) grow() {
	old := t.slots
	t.slots = make([]uint64, 2*len(old))
	mask := len(t.slots) - 1
	for _, slot := range old {
		if slot == 0 {
			continue
		}
		k := int(slot>>numberBits) & mask
		for t.slots[k] != 0 {
			k = (k + 1) & mask
		}
		t.slots[k] = slot
	}
}
