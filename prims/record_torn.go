package prims

import (
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/park"
)

// A peer may overwrite the links of a queue while processes wait in it. No grant then reaches some of the waits. So the
// periodic check examines the links beside each wait of this process, and ends the wait if they are damaged.
//
// A check of one wait reads the same few words however long the queue is. So it does not see damage further away. The
// waits beside that damage end, and their nodes stay in the queue in the state NodeLeft. When the check of a later wait
// finds such a node in front of that wait, the check goes back over the node and finds the damage.

const (
	tornTries   = 4  // how often isTorn begins again if other processes change the object meanwhile
	tornForgone = 64 // how many nodes in the state NodeLeft tornAt visits at most
)

// isTorn reports whether the queue is so damaged that the wait of s may never end. If other processes change the object
// all the time, it may return false for a damaged queue; the next periodic check examines the queue again.
//
// The function choose selects the queue of the wait for the change that begins; see lockHooks.focusOn. The function
// serve ends the waits of that queue that can end.
func (q *recordQueue) isTorn(s *park.WaitNode, choose func(x *recordedChange, wanted uint64) (bool, error), serve func(x *recordedChange, b *wakes) error) bool {
	b := takeWakes()
	defer q.wake(b)
	q.private.Lock()
	defer q.private.Unlock()
	return q.findTorn(b, s, choose, serve)
}

// findTorn does what isTorn does, for a caller that holds q.private and wakes all owners in b.
func (q *recordQueue) findTorn(b *wakes, s *park.WaitNode, choose func(x *recordedChange, wanted uint64) (bool, error), serve func(x *recordedChange, b *wakes) error) bool {
	x, w := &q.scratch, wait{s.Off, s.Node}
	begin := func() (ok bool, err error) {
		if err := q.begin(x, b); err != nil {
			return false, err
		}
		return choose(x, w.Wanted().Load())
	}
	for range tornTries {
		if ok, err := begin(); err != nil {
			return true
		} else if !ok {
			continue
		}
		if serve(x, b) != nil {
			return true
		}
		if ok, err := begin(); err != nil {
			return true
		} else if !ok {
			continue
		}
		if torn := q.tornAt(w); q.load() == x.c {
			return torn
		}
	}
	return false
}

// oneQueue is the function choose of isTorn for an object that has one queue.
func oneQueue(*recordedChange, uint64) (bool, error) { return true, nil }

// tornAt reports whether the node of a wait of this process, or a link beside this node, is damaged. The record of the
// commit word is complete. If the commit word changes meanwhile, the result is meaningless.
func (q *recordQueue) tornAt(w wait) bool {
	next := valueIn(w.Next())
	switch {
	case arenakernel.RecordedEnds(next):
		return queued(w.Load()) // the record that ended the wait is complete, so the node must be resolved
	case !queuedValue(next) || w.Object() != q.object.Offset:
		return true
	case next == arenakernel.RecordedLast && valueIn(q.last) != w.index():
		return true
	case next != arenakernel.RecordedLast:
		if n, ok := q.linked(next); !ok || valueIn(n.Extra()) != w.index() {
			return true
		}
	}
	for range tornForgone {
		prev := valueIn(w.Extra())
		if prev == 0 {
			return valueIn(q.first) != w.index()
		}
		n, ok := q.linked(prev)
		if !ok || valueIn(n.Next()) != w.index() {
			return true
		}
		if n.State() != arenakernel.NodeLeft {
			return false
		}
		w = wait{arenakernel.Offset(prev) * linkUnit, n}
	}
	return false
}

// linked returns the node at v, an offset divided by 64, if it has a wait in a queue of the object.
func (q *recordQueue) linked(v uint32) (n *arenakernel.Node, ok bool) {
	n, err := q.a.NodeAt(arenakernel.Offset(v) * linkUnit)
	if err != nil || n.Object() != q.object.Offset || !queuedValue(valueIn(n.Next())) {
		return nil, false
	}
	return n, true
}

// tornQueue is the detail of the error of a wait that ends because its queue is damaged.
const tornQueue = "its queue of waits"
