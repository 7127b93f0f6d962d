package park

import (
	"time"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// CheckEvery returns the time between two periodic checks.
func CheckEvery() time.Duration { return checkEvery }

// checkPeriodically puts q on the list of the periodic checker, the goroutine that looks for lost wakes ten times a
// second. The checker removes q from the list when no goroutine waits in q any more.
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

// runChecks is the periodic checker of a process. It ends when no goroutine has waited for a while, and the pool has
// given back all superfluous wait nodes.
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
		h.nodePool.checkQueues()
		h.nodePool.shrink()
		kept := c.check(queues)
		resting := c.rest()
		h.resting.Store(int32(resting))
		h.mu.Lock()
		h.checked = append(h.checked, kept...)
		if len(h.checked) == 0 && resting == 0 && !h.nodePool.shrinks() {
			h.checking = false
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
	}
}

// recover delivers wakes that the poller cannot see. The poller is the goroutine that waits for all parked
// goroutines of this process. There are two cases.
//
// First, the queue's poller node may be ready although it is not on the ready stack, which the
// poller reads. The releaser that made the node ready may have died or stopped before it pushed the
// node, or the node was lost from the stack. recover acts only if two checks in a row find the node
// ready.
//
// Second, the goroutines may wait without a node, because there was no room for a node or because a
// peer has removed the node from the list. In this case, recover wakes all of them.
//
// recover returns true if there was nothing to do.
func (q *Queue) recover() bool {
	q.mu.Lock()
	cut := q.first != nil && !q.reachable()
	// While the poller delivers a wake, releasers cannot find the node for a moment, although no peer has removed it.
	// So recover acts only if two checks in a row do not find the node.
	nodeless := cut && (q.node == 0 || q.wasCut)
	q.wasCut = cut
	ready := q.node != 0 && q.Arena.NodeReady(q.node)
	lost := ready && q.wasReady && q.lot.takeLoose(q.node)
	q.wasReady = ready && !lost
	q.mu.Unlock()
	if lost || nodeless {
		// Without a node, only the periodic checks wake the goroutines, so each check wakes all of
		// them.
		q.deliver(nodeless)
	}
	return !cut && !ready
}

// reachable reports whether releasers can find the poller node of the queue, and whether the node is waiting or ready.
// Releasers cannot find the node if a peer has overwritten the list or the node.
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
