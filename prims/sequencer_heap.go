package prims

import (
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// heapLinks are the links of a node in a heap to its children: each is the offset of a node
// divided by its size, 0 for none.
//
//	bits 0..31   left
//	bits 32..63  right
//
// The link to the parent is in bits 32..63 of the node's extra word, and the ranks of the
// children are in bits 16..31, where an outcome has the class.
type heapLinks uint64

func makeHeapLinks(left, right arenakernel.Offset) heapLinks {
	return heapLinks(uint64(right/linkUnit)<<32 | uint64(left/linkUnit))
}

func (l heapLinks) left() arenakernel.Offset  { return arenakernel.Offset(l&(1<<32-1)) * linkUnit }
func (l heapLinks) right() arenakernel.Offset { return arenakernel.Offset(l>>32) * linkUnit }

// tokenHeap is a queue in the order of tokens, and in the order of arrival for the same token.
//
// It is a leftist heap after Crane and Knuth. The rank of a node is the number of nodes on the
// path that always goes right from it, and the rank of a left child is at least that of the right
// one. So no right path is longer than the logarithm of the number of nodes. insert, the removal
// of the first and the removal of any node follow right paths only. The nodes contain all three
// links and the ranks of both children, so only nodes on the path are read.
type tokenHeap struct {
	m    *monitor
	root *atomic.Uint64
}

// heapDeep bounds the paths through a heap: two of 32 nodes, because there are at most 2^32
// nodes.
const heapDeep = 64

func heapUp(w wait) arenakernel.Offset { return arenakernel.Offset(w.Extra().Load()>>32) * linkUnit }

func setHeapUp(w wait, up arenakernel.Offset) {
	storeWord(w.Extra(), w.Extra().Load()&(1<<32-1)|uint64(up/linkUnit)<<32)
}

// heapRanks are the ranks of both children of a node.
//
//	bits 0..7   right; the node's own rank is one more
//	bits 8..15  left
type heapRanks uint16

func (r heapRanks) left() uint8  { return uint8(r >> 8) }
func (r heapRanks) right() uint8 { return uint8(r) }
func (r heapRanks) own() uint8   { return uint8(r) + 1 }

func heapRanksOf(w wait) heapRanks { return heapRanks(w.class()) }

// rankOf is the rank of w, 0 if w is no node.
func rankOf(w wait) uint8 {
	if w.Node == nil {
		return 0
	}
	return heapRanksOf(w).own()
}

func heapLinksOf(w wait) heapLinks { return heapLinks(w.Next().Load()) }

// before reports whether the wait x has to end before y.
func before(x, y wait) bool {
	if a, b := x.Wanted().Load(), y.Wanted().Load(); a != b {
		return a < b
	}
	return x.Stamp().Load() < y.Stamp().Load()
}

// first is the wait that has to end first. ok is false if the heap is empty.
func (h tokenHeap) first() (w wait, ok bool) { return h.m.node(arenakernel.Offset(h.root.Load())) }

// insert adds w to the heap.
func (h tokenHeap) insert(w wait) {
	storeWord(w.Next(), 0)
	storeWord(w.Extra(), 0)
	first, _ := h.first()
	h.setRoot(h.meld(first, w))
}

func (h tokenHeap) setRoot(w wait) {
	storeWord(h.root, uint64(w.off))
	if w.Node != nil {
		setHeapUp(w, 0)
	}
}

// join moves all waits of another heap into this one.
func (h tokenHeap) join(other tokenHeap) {
	theirs, ok := other.first()
	if !ok {
		return
	}
	storeWord(other.root, 0)
	ours, _ := h.first()
	h.setRoot(h.meld(ours, theirs))
}

// meld makes one heap of two. Either may be empty: a wait without a node. The caller sets the
// link to the parent of the result.
func (h tokenHeap) meld(x, y wait) wait {
	var path [heapDeep]wait
	n := 0
	for x.Node != nil && y.Node != nil {
		if n == heapDeep {
			h.m.broken.Store(true) // the rebuild finds the nodes on the path by their stamps
			return x
		}
		if before(y, x) {
			x, y = y, x
		}
		path[n] = x
		n++
		x, _ = h.m.node(heapLinksOf(x).right())
	}
	below := x
	if x.Node == nil {
		below = y
	}
	for n--; n >= 0; n-- {
		w := path[n]
		setHeapUp(below, w.off)
		lean(w, heapLinksOf(w).left(), below.off, heapRanksOf(w).left(), rankOf(below))
		below = w
	}
	return below
}

// lean makes two heaps with those ranks the children of w. The one with the greater rank becomes
// the left child.
func lean(w wait, left, right arenakernel.Offset, leftRank, rightRank uint8) {
	if leftRank < rightRank {
		left, right, leftRank, rightRank = right, left, rightRank, leftRank
	}
	storeWord(w.Next(), uint64(makeHeapLinks(left, right)))
	storeWord(w.Extra(), w.Extra().Load()&^(0xffff<<16)|uint64(leftRank)<<24|uint64(rightRank)<<16)
}

// detach removes w from the heap.
func (h tokenHeap) detach(w wait) {
	l, up := heapLinksOf(w), heapUp(w)
	left, _ := h.m.node(l.left())
	right, _ := h.m.node(l.right())
	below := h.meld(left, right)
	if up == 0 {
		if arenakernel.Offset(h.root.Load()) != w.off {
			h.m.broken.Store(true)
			return
		}
		h.setRoot(below)
		return
	}
	if below.Node != nil {
		setHeapUp(below, up)
	}
	// The ranks of the ancestors shrink. A rank is at most logarithmic, so the loop soon meets an
	// ancestor whose rank does not change.
	from, rank := w.off, rankOf(below)
	for n := 0; up != 0; n++ {
		above, ok := h.m.node(up)
		if !ok {
			return // the whole heap is rebuilt
		}
		l, r := heapLinksOf(above), heapRanksOf(above)
		switch {
		case n == heapDeep:
			h.m.broken.Store(true)
			return
		case from == l.left():
			lean(above, below.off, l.right(), rank, r.right())
		case from == l.right():
			lean(above, l.left(), below.off, r.left(), rank)
		default:
			h.m.broken.Store(true)
			return
		}
		if rank = rankOf(above); rank == r.own() {
			return
		}
		from, below, up = above.off, above, heapUp(above)
	}
}

// each calls f for the waits, in no particular order, until f returns false. f may remove the
// wait.
func (h tokenHeap) each(f func(w wait) bool) {
	type seen struct {
		off   arenakernel.Offset
		stamp uint64
	}
	var all []seen
	most := h.m.a.Segment().Size() / linkUnit
	w, ok := h.first()
	for ok {
		all = append(all, seen{w.off, w.Stamp().Load()})
		if int64(len(all)) > most {
			h.m.broken.Store(true)
			return
		}
		w, ok = h.following(w)
	}
	for _, s := range all {
		if w, ok := h.m.node(s.off); ok && w.Stamp().Load() == s.stamp && !f(w) {
			return
		}
	}
}

// following is the node after w in preorder: node, left, right.
func (h tokenHeap) following(w wait) (wait, bool) {
	l := heapLinksOf(w)
	for _, off := range []arenakernel.Offset{l.left(), l.right()} {
		if off == 0 {
			continue
		}
		below, ok := h.m.node(off)
		if !ok || heapUp(below) != w.off {
			h.m.broken.Store(true)
			return wait{}, false
		}
		return below, true
	}
	most := h.m.a.Segment().Size() / linkUnit
	for range most {
		up := heapUp(w)
		if up == 0 {
			return wait{}, false
		}
		above, ok := h.m.node(up)
		if !ok {
			return wait{}, false
		}
		if l := heapLinksOf(above); l.left() == w.off && l.right() != 0 && l.right() != w.off {
			return h.m.node(l.right())
		}
		w = above
	}
	h.m.broken.Store(true)
	return wait{}, false
}
