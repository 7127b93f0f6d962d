package park

import (
	"time"

	"github.com/shmsync/shmsync/arena"
)

// lookAfter makes the looker look at q from now until nobody waits there.
func (h *host) lookAfter(q *Queue) {
	if q.listed.Load() || q.listed.Swap(true) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.looked = append(h.looked, q)
	if !h.looking && !h.closed.Load() {
		h.looking = true
		h.running.Go(h.lookAround)
	}
}

// lookAround is the looker: it ends when nobody has waited for a while.
func (h *host) lookAround() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-h.end:
			return
		}
		h.mu.Lock()
		queues := h.looked
		h.looked = nil
		h.mu.Unlock()
		h.a.StampAnnounced()
		h.bench.look()
		kept := lookAt(queues)
		h.mu.Lock()
		h.looked = append(h.looked, kept...)
		if len(h.looked) == 0 {
			h.looking = false
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
	}
}

// lookAt looks at those queues where somebody waits, and returns them.
func lookAt(queues []*Queue) (kept []*Queue) {
	kept = queues[:0]
	for _, q := range queues {
		if q.calls.Load() == 0 {
			q.listed.Store(false)
			// A waiter that came before the store believes itself listed.
			if q.calls.Load() == 0 || q.listed.Swap(true) {
				continue
			}
		}
		kept = append(kept, q)
		q.alive(q.config.Look)
		q.recover()
	}
	return kept
}

// recover makes up for what the hub cannot see: a wake that was given to our
// node but is not on the stack, because the releaser died or was stopped in
// between or because it fell off, which only the second look believes; and
// goroutines that found no room for a node, or whose node a peer took away.
func (q *Queue) recover() {
	q.mu.Lock()
	cut := q.first != nil && !q.reachable()
	// A wake that is about to be delivered looks like that as well, for a moment.
	nodeless := cut && (q.node == 0 || q.wasCut)
	q.wasCut = cut
	ready := q.node != 0 && q.Arena.NodeReady(q.node)
	lost := ready && q.wasReady && q.host.takeLoose(q.node)
	q.wasReady = ready && !lost
	q.mu.Unlock()
	if lost || nodeless {
		// Without a node there is nothing but looks, so nobody waits for his turn.
		q.deliver(nodeless)
	}
}

// reachable reports whether a releaser finds our node, and finds that somebody
// waits: a peer that overwrites the list, or the node, can have made it so that none
// does.
func (q *Queue) reachable() (found bool) { // guarded by: mu
	if q.node == 0 {
		return false
	}
	err := q.Arena.EachHubNode(q.Hub, func(off arena.Offset, n *arena.Node) bool {
		if off == q.node {
			s := n.State()
			found = s == arena.NodeWaiting || s == arena.NodeReady
		}
		return off != q.node
	})
	return found && err == nil
}
