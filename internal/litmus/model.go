package litmus

import "slices"

// relation is a set of pairs of events.
type relation [][]bool

func newRelation(n int) relation {
	r := make(relation, n)
	for i := range r {
		r[i] = make([]bool, n)
	}
	return r
}

// cyclic reports whether a chain of pairs leads from an event back to itself.
func (r relation) cyclic() bool {
	const (
		open = 1 + iota
		done
	)
	state := make([]int, len(r))
	var visit func(i int) bool
	visit = func(i int) bool {
		state[i] = open
		for j, related := range r[i] {
			if related && (state[j] == open || state[j] == 0 && visit(j)) {
				return true
			}
		}
		state[i] = done
		return false
	}
	for i := range r {
		if state[i] == 0 && visit(i) {
			return true
		}
	}
	return false
}

// consistent reports whether the model allows the execution.
func (x *execution) consistent() bool {
	n := len(x.events)
	internal, external := newRelation(n), newRelation(n)
	// communicates records that a comes before b, because of the value that a load has read, or because of the order
	// of the stores to a word.
	communicates := func(a, b int) {
		internal[a][b] = true
		if x.events[a].thread != x.events[b].thread {
			external[a][b] = true
		}
	}
	for i, e := range x.events {
		if e.fence {
			continue
		}
		order := x.order[e.from.word]
		at := slices.Index(order, i)
		if !e.store {
			if at = slices.Index(order, x.reads[i]); at >= 0 {
				communicates(x.reads[i], i)
			}
		}
		for _, later := range order[at+1:] {
			communicates(i, later)
		}
		if e.pair != -1 && !e.store && at+1 < len(order) && order[at+1] != e.pair {
			return false // another store comes between the load and the store of a read-modify-write
		}
	}
	for a := range n {
		for b := range n {
			if x.before(a, b) {
				internal[a][b] = internal[a][b] || x.events[a].from.word == x.events[b].from.word
				external[a][b] = external[a][b] || x.ordered(a, b)
			}
		}
	}
	return !internal.cyclic() && !external.cyclic()
}

// before reports whether a is an access that comes before the access b in the program of their thread.
func (x *execution) before(a, b int) bool {
	i, j := x.events[a], x.events[b]
	return i.thread == j.thread && i.at < j.at && !i.fence && !j.fence
}

// ordered reports whether the instructions of a thread make other CPUs see its access a before its access b. In the
// program of the thread, a comes before b.
func (x *execution) ordered(a, b int) bool {
	i, j := x.events[a], x.events[b]
	switch {
	case !i.store && i.flags&(acquire|acquirePC) != 0:
		return true
	case j.store && j.flags&release != 0:
		return true
	case i.store && i.flags&release != 0 && !j.store && j.flags&acquire != 0:
		return true
	case i.store && i.flags&single != 0:
		// a is the store of one LSE instruction that is both an acquire and a release. Such a store stays before all later
		// accesses of its thread. The Linux kernel relies on this, too: it uses such an instruction, without a fence,
		// where an atomic operation must be a full fence.
		return true
	case i.pair == b:
		return true // the load and the store of a read-modify-write
	case i.store && i.pair != -1 && !j.store && x.reads[b] == a && j.flags&(acquire|acquirePC) != 0:
		return true // an acquire load that reads the store of a read-modify-write of its own thread
	}
	for k := a + 1; k < b; k++ {
		e := x.events[k]
		switch {
		case e.flags&fullFence != 0,
			e.flags&loadFence != 0 && !i.store,
			e.flags&storeFence != 0 && i.store && j.store:
			return true
		}
	}
	return false
}
