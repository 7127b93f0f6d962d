package prims

import (
	"slices"
	"sort"
)

// waitableMark remembers where a wait of this process was in the queue. The field at is the offset of the wait's
// node, divided by 64. The field e says what the wait wants.
type waitableMark[E any] struct {
	at uint32
	e  E
}

// waitableMarks is the greatest number of marks that a handle keeps.
const waitableMarks = 256

// begins returns the node at which the search for the place of a new wait for e begins. A walk along a long queue
// takes long. So a handle keeps marks, that is, the places of some waits of this process, in the order in which they
// are served. A mark is only a hint: the search is right wherever it begins. The caller holds x.private.
func (x *Waitable[S, E]) begins(c *recordedChange, e E) uint32 {
	for len(x.marks) > 0 {
		i := sort.Search(len(x.marks), func(i int) bool { return x.rules.Before(e, x.marks[i].e) })
		i = max(i-1, 0) // the last wait that is served before the new one
		m := x.marks[i]
		if n, _, ok := x.queuedAt(m.at); ok && n.Wanted().Load() == x.pack(m.e) {
			return m.at
		}
		x.marks = slices.Delete(x.marks, i, i+1)
	}
	return c.get(x.last)
}

// mark keeps the place of a wait for e of this process, which is about to be queued. If there are too many marks, mark
// first removes every second one.
func (x *Waitable[S, E]) mark(at uint32, e E) {
	if len(x.marks) == waitableMarks {
		for i := range waitableMarks / 2 {
			x.marks[i] = x.marks[2*i]
		}
		x.marks = x.marks[:waitableMarks/2]
	}
	i := sort.Search(len(x.marks), func(i int) bool { return x.rules.Before(e, x.marks[i].e) })
	x.marks = slices.Insert(x.marks, i, waitableMark[E]{at, e})
}
