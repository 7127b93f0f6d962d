package prims

import (
	"context"

	"github.com/shmsync/shmsync/internal/park"
)

// This file has what WaitGroup, Latch, Barrier and Once share: all their waiters are released
// together.

// Values of the outcome of such a wait.
const (
	outcomeOpen = iota // what was waited for has come
	outcomeDead        // it cannot come: aux is the ID of the participant whose death prevents it
)

// enqueue queues a wait, unless over reports under the queue lock that there is nothing to wait
// for. The caller holds the queue lock, and enqueue releases it. A nil wait node without an error
// means that over was true; otherwise the caller awaits the wait node.
//
// Before it queues the wait, it takes into account the deaths that are known.
func (m *monitor) enqueue(ctx context.Context, class uint16, wanted uint64, over func() bool) (*park.WaitNode, error) {
	var waitNode *park.WaitNode
	for {
		// The loop ends: it is repeated once for the wait node, and once for each reap.
		if over() {
			m.leave(nil)
			if waitNode != nil {
				waitNode.Return()
			}
			return nil, nil
		}
		if m.deaths.Load() != m.a.Deaths() {
			if err := m.reapAndEnter(ctx); err != nil {
				if waitNode != nil {
					waitNode.Return()
				}
				return nil, err
			}
			continue
		}
		var again bool
		var err error
		if waitNode, again, err = m.waitNode(ctx, waitNode); err != nil {
			return nil, err
		}
		if !again {
			break
		}
	}
	m.join(waitNode, class, wanted)
	m.leave(nil)
	return waitNode, nil
}

// reapAndEnter reaps under the queue lock, wakes the waiters that this releases, and takes the
// queue lock again.
func (m *monitor) reapAndEnter(ctx context.Context) error {
	b := takeWakes()
	m.sweep(b)
	m.leave(b)
	return m.enter(ctx)
}

// resolveAndLeave ends a call that may have ended waits.
func (m *monitor) resolveAndLeave() {
	b := takeWakes()
	m.rules.resolve(b)
	m.leave(b)
}

// endAll ends every wait of a queue with one result.
func (m *monitor) endAll(b *wakes, q *fifo, result, aux uint32) {
	for w, ok := q.head(); ok; w, ok = q.head() {
		// The loop ends: each turn takes one wait off the queue.
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
