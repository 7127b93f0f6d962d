package prims

import (
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// links is a word of a node in a doubly linked list. It has the next and the previous node. Each is the offset of
// that node divided by the size of a node, or 0 for none.
//
//	bits 0..31   the next node
//	bits 32..63  the previous node
type links uint64

const linkUnit = 64

func makeLinks(next, prev arenakernel.Offset) links {
	return links(uint64(prev/linkUnit)<<32 | uint64(next/linkUnit))
}

func (l links) next() arenakernel.Offset { return arenakernel.Offset(l&(1<<32-1)) * linkUnit }
func (l links) prev() arenakernel.Offset { return arenakernel.Offset(l>>32) * linkUnit }

// fifo is a queue in the order of arrival. A primitive with a single queue embeds fifo, which then provides the
// methods of the interface rules that concern the queue.
type fifo struct {
	m     *monitor
	words *listWords
}

func (q *fifo) empty() bool { return q.words.first.Load() == 0 }

// head returns the first wait. ok is false if the queue is empty.
func (q *fifo) head() (w wait, ok bool) { return q.m.node(arenakernel.Offset(q.words.first.Load())) }

// after returns the wait behind w.
func (q *fifo) after(w wait) (wait, bool) { return q.m.node(links(w.Next().Load()).next()) }

// node returns the wait whose node is at off. The caller has read off from a link. If off is not the node of a
// queued wait of this object, the link is wrong. Then node sets ok to false and marks the queues as broken, so that
// they are rebuilt.
func (m *monitor) node(off arenakernel.Offset) (w wait, ok bool) {
	if off == 0 {
		return wait{}, false
	}
	n, err := m.a.NodeAt(off)
	if err != nil || n.Object() != m.object.Offset || n.Stamp().Load() == 0 {
		m.broken.Store(true)
		return wait{}, false
	}
	return wait{off, n}, true
}

// requeue puts w at the end of the queue.
func (q *fifo) requeue(w wait) {
	last, ok := q.m.node(arenakernel.Offset(q.words.last.Load()))
	storeWord(w.Next(), uint64(makeLinks(0, last.off)))
	if ok {
		storeWord(last.Next(), uint64(makeLinks(w.off, links(last.Next().Load()).prev())))
	} else {
		storeWord(&q.words.first, uint64(w.off))
	}
	storeWord(&q.words.last, uint64(w.off))
}

// detach takes w off the queue.
func (q *fifo) detach(w wait) {
	l := links(w.Next().Load())
	prev, havePrev := q.m.node(l.prev())
	next, haveNext := q.m.node(l.next())
	if havePrev {
		storeWord(prev.Next(), uint64(makeLinks(l.next(), links(prev.Next().Load()).prev())))
	} else {
		storeWord(&q.words.first, uint64(l.next()))
	}
	if haveNext {
		storeWord(next.Next(), uint64(makeLinks(links(next.Next().Load()).next(), l.prev())))
	} else {
		storeWord(&q.words.last, uint64(l.prev()))
	}
}

func (q *fifo) clear() {
	storeWord(&q.words.first, 0)
	storeWord(&q.words.last, 0)
}

// each calls f for the waits in order. The stamps of the waits, which number their arrivals, must increase. If they
// do not, the list may have a cycle; then the queues are rebuilt.
func (q *fifo) each(f func(w wait) bool) {
	before := uint64(0)
	for w, ok := q.head(); ok; {
		if s := w.Stamp().Load(); s <= before {
			q.m.broken.Store(true)
			return
		} else {
			before = s
		}
		next, more := q.after(w)
		if !f(w) {
			return
		}
		w, ok = next, more
	}
}

// endAll ends every wait of a queue with the same result.
func (m *monitor) endAll(b *wakes, q *fifo, result, aux uint32) {
	for w, ok := q.head(); ok; w, ok = q.head() {
		// Each iteration takes a wait off the queue.
		if !m.waiting(w) {
			q.detach(w)
			m.releaseNode(w)
			continue
		}
		if m.end(b, w, result, aux) {
			m.account(w, nil)
		}
	}
}
