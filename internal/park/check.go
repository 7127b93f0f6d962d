package park

import (
	"time"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// checkPeriodically puts q on the list of the periodic checker. The checker takes q off again
// when nobody waits there.
func (h *lot) checkPeriodically(q *Queue) {
	if q.listed.Load() || q.listed.Swap(true) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checked = append(h.checked, q)
	if !h.checking && !h.closed.Load() {
		h.checking = true
		h.running.Go(h.runChecks)
	}
}

// runChecks is the periodic checker: it ends when nobody has waited for a while.
func (h *lot) runChecks() {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	var c checker
	for {
		select {
		case <-tick.C:
		case <-h.end:
			return
		}
		h.mu.Lock()
		queues := h.checked
		h.checked = nil
		h.mu.Unlock()
		h.a.StampAnnounced()
		h.nodePool.check()
		kept := c.check(queues)
		resting := c.rest()
		h.resting.Store(int32(resting))
		h.mu.Lock()
		h.checked = append(h.checked, kept...)
		if len(h.checked) == 0 && resting == 0 {
			h.checking = false
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
	}
}

// recover finds wakes that the poller cannot see. A releaser may have made our node ready and
// then died or stopped before it pushed the node on the ready stack, or the node fell off the
// stack: recover believes this only if two checks in a row find the node ready. Other goroutines
// found no room for a node, or a peer took their node away: recover wakes all of them. It reports
// whether there was nothing to find.
func (q *Queue) recover() bool {
	q.mu.Lock()
	cut := q.first != nil && !q.reachable()
	// For a moment, a wake that is about to be delivered looks like a cut node, too.
	nodeless := cut && (q.node == 0 || q.wasCut)
	q.wasCut = cut
	ready := q.node != 0 && q.Arena.NodeReady(q.node)
	lost := ready && q.wasReady && q.lot.takeLoose(q.node)
	q.wasReady = ready && !lost
	q.mu.Unlock()
	if lost || nodeless {
		// Without a node only the periodic checks wake the goroutines, so one check wakes all of
		// them.
		q.deliver(nodeless)
	}
	return !cut && !ready
}

// reachable reports whether a releaser finds our node, and finds it waiting or ready. A peer that
// overwrote the list or the node can have hidden it.
func (q *Queue) reachable() (found bool) { // guarded by: mu
	if q.node == 0 {
		return false
	}
	err := q.Arena.EachPollerNode(q.Poller, func(off arenakernel.Offset, n *arenakernel.Node) bool {
		if off == q.node {
			s := n.State()
			found = s == arenakernel.NodeWaiting || s == arenakernel.NodeReady
		}
		return off != q.node
	})
	return found && err == nil
}
