package park

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
)

// DirectMax is how many goroutines of a process may sleep in the kernel for one
// arena, each on a thread of its own. It is below the number of announce
// records of a slot.
const DirectMax = 12

// lookEvery is how often a process looks at the words that it waits for.
const lookEvery = 100 * time.Millisecond

// host is what the queues of one arena share in this process.
type host struct {
	a      *arena.Arena
	direct atomic.Int32 // goroutines that sleep in the kernel
	closed atomic.Bool

	mu      sync.Mutex
	queues  map[arena.Offset]*Queue // guarded by: mu; by their hub node
	looked  []*Queue                // guarded by: mu; queues that somebody waits in
	looking bool                    // guarded by: mu; the looker runs
	hubbing bool                    // guarded by: mu; the hub runs

	running sync.WaitGroup // looker and hub
	end     chan struct{}
}

var hosts struct {
	sync.Mutex
	of map[*arena.Arena]*host // guarded by: Mutex
}

func hostOf(a *arena.Arena) *host {
	hosts.Lock()
	defer hosts.Unlock()
	if h := hosts.of[a]; h != nil {
		return h
	}
	h := &host{a: a, queues: map[arena.Offset]*Queue{}, end: make(chan struct{})}
	if hosts.of == nil {
		hosts.of = map[*arena.Arena]*host{}
	}
	hosts.of[a] = h
	a.OnClose(h, h.close)
	return h
}

func (h *host) enterDirect() bool {
	if h.direct.Add(1) <= DirectMax {
		return true
	}
	h.direct.Add(-1)
	return false
}

func (h *host) leaveDirect() { h.direct.Add(-1) }

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
		kept := h.lookAt(queues)
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
func (h *host) lookAt(queues []*Queue) (kept []*Queue) {
	kept = queues[:0]
	for _, q := range queues {
		if q.waiting.Load() == 0 {
			q.listed.Store(false)
			// A waiter that came before the store believes itself listed.
			if q.waiting.Load() == 0 || q.listed.Swap(true) {
				continue
			}
		}
		kept = append(kept, q)
		q.look()
		q.recover()
	}
	return kept
}

// recover delivers a wake that was given to our node but not put on the stack,
// because the releaser died, or was stopped, in between. Only the second look
// believes it.
func (q *Queue) recover() {
	q.mu.Lock()
	ready := q.node != 0 && q.first != nil && q.Arena.NodeReady(q.node)
	lost := ready && q.wasReady && q.Arena.TakeReadyNode(q.node)
	q.wasReady = ready && !lost
	q.mu.Unlock()
	if lost {
		q.deliver(false)
	}
}

// adopt makes the hub deliver for q what becomes ready on node.
func (h *host) adopt(node arena.Offset, q *Queue) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.queues[node] = q
	if !h.hubbing && !h.closed.Load() {
		h.hubbing = true
		h.running.Go(h.hub)
	}
}

func (h *host) disown(node arena.Offset) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.queues, node)
}

// hub sleeps for all parked goroutines of this process.
func (h *host) hub() {
	deaths := h.a.Deaths()
	for !h.closed.Load() {
		bell, rung := h.a.Doorbell()
		delivered := false
		h.a.TakeReady(func(node arena.Offset) {
			h.mu.Lock()
			q := h.queues[node]
			h.mu.Unlock()
			if q != nil {
				q.deliver(false)
				delivered = true
			}
		})
		if now := h.a.Deaths(); now != deaths {
			deaths = now
			h.deliverAll(false)
			continue
		}
		if !delivered {
			shmsync.Wait(bell, rung, 0)
		}
	}
}

// deliverAll gives each queue one wake, or one to each of its waiters.
func (h *host) deliverAll(all bool) {
	h.mu.Lock()
	queues := make([]*Queue, 0, len(h.queues))
	for _, q := range h.queues {
		queues = append(queues, q)
	}
	h.mu.Unlock()
	for _, q := range queues {
		q.deliver(all)
	}
}

// close sends everybody that waits away and returns when they have gone, since
// the memory that they look at is unmapped next.
func (h *host) close() {
	h.closed.Store(true)
	close(h.end)
	h.a.RingSelf()
	h.running.Wait()
	h.mu.Lock()
	looked := h.looked
	h.mu.Unlock()
	h.deliverAll(true)
	for busy := true; busy; {
		busy = false
		for _, q := range looked {
			if q.waiting.Load() > 0 {
				busy = true
				// Wakes sleepers of other processes as well; they look and
				// sleep again.
				q.WakeAll()
			}
		}
		if busy {
			time.Sleep(time.Millisecond)
		}
	}
	hosts.Lock()
	delete(hosts.of, h.a)
	hosts.Unlock()
}
