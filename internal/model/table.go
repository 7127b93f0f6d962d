package model

import "hash/maphash"

// table is a set of states. It numbers them in the order of their insertion.
type table[S comparable] struct {
	chunks [][]S    // each of chunkLen states
	slots  []uint32 // number + 1 by hash, 0 if the slot is empty; the length is a power of two
	n      int
	seed   maphash.Seed
}

const chunkLen = 1 << 13

func newTable[S comparable]() *table[S] {
	return &table[S]{slots: make([]uint32, 1<<12), seed: maphash.MakeSeed()}
}

func (t *table[S]) len() int { return t.n }

func (t *table[S]) at(i uint32) *S { return &t.chunks[i/chunkLen][i%chunkLen] }

// insert returns the number of s, and whether s is new.
func (t *table[S]) insert(s *S) (i uint32, fresh bool) {
	k := t.find(s)
	if t.slots[k] != 0 {
		return t.slots[k] - 1, false
	}
	i = uint32(t.n)
	if t.n%chunkLen == 0 {
		t.chunks = append(t.chunks, make([]S, chunkLen))
	}
	t.n++
	*t.at(i) = *s
	t.slots[k] = i + 1
	if t.n*2 > len(t.slots) {
		t.grow()
	}
	return i, true
}

// find returns the index of the slot that contains s, or of the slot where insert would put s.
func (t *table[S]) find(s *S) int {
	mask := len(t.slots) - 1
	k := int(maphash.Comparable(t.seed, *s)) & mask
	for t.slots[k] != 0 && *t.at(t.slots[k] - 1) != *s {
		k = (k + 1) & mask
	}
	return k
}

func (t *table[S]) grow() {
	t.slots = make([]uint32, 2*len(t.slots))
	for i := range uint32(t.n) {
		t.slots[t.find(t.at(i))] = i + 1
	}
}
