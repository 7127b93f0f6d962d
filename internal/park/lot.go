package park

import (
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// DirectMax is how many goroutines of a process may sleep in the kernel for one arena, each on its
// own thread. It is less than the number of announce records of a slot.
const DirectMax = 12

// lot is what the queues of one arena share in this process.
type lot struct {
	a      *arenakernel.Arena
	procs  int32       // how many goroutines run at a time
	closed atomic.Bool // set under mu

	mu       sync.Mutex
	all      map[*Queue]struct{}           // guarded by: mu
	queues   map[arenakernel.Offset]*Queue // guarded by: mu; the queue of each poller node
	loose    map[arenakernel.Offset]uint64 // guarded by: mu; loose nodes, which may be pushed though not ready
	loosed   uint64                        // guarded by: mu; how many nodes have ever become loose
	checked  []*Queue                      // guarded by: mu; queues that have waiters
	checking bool                          // guarded by: mu; the periodic checker is running
	polling  bool                          // guarded by: mu; the poller is running

	resting atomic.Int32 // how many queues rest

	running sync.WaitGroup // the periodic checker and the poller
	end     chan struct{}

	nodePool nodePool

	// took, if a test sets it before the poller starts, is called when the poller has taken a node
	// and has not delivered its wake yet.
	took func()
}

var lots struct {
	sync.Mutex
	of map[any]*lot // guarded by: Mutex; the lot of each membership, by the segment of its arena
}

func lotOf(a *arenakernel.Arena) *lot {
	lots.Lock()
	defer lots.Unlock()
	if h := lots.of[a.Segment()]; h != nil {
		return h
	}
	h := &lot{a: a, procs: int32(runtime.GOMAXPROCS(0)), all: map[*Queue]struct{}{}, queues: map[arenakernel.Offset]*Queue{}, loose: map[arenakernel.Offset]uint64{}, end: make(chan struct{})}
	h.nodePool.lot = h
	if lots.of == nil {
		lots.of = map[any]*lot{}
	}
	lots.of[a.Segment()] = h
	a.OnClose(h, h.close)
	return h
}

func (h *lot) add(q *Queue) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all[q] = struct{}{}
}

func (h *lot) remove(q *Queue) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, q)
}

// adopt gets a poller node for q, and makes the poller deliver to q when the node becomes ready.
// Each queue has its own node.
func (h *lot) adopt(q *Queue) (arenakernel.Offset, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	node, err := h.a.PollerNode(q.config.Object, q.Poller, func(node arenakernel.Offset) bool { return h.queues[node] == nil })
	if err != nil {
		return 0, err
	}
	h.queues[node] = q
	h.startPoller()
	return node, nil
}

// release gives up the poller node of a queue that is closed. If the closed queue kept its node, it
// would receive wakes that are meant for the next queue of the object.
func (h *lot) release(node arenakernel.Offset) {
	h.mu.Lock()
	delete(h.queues, node)
	h.mu.Unlock()
	if h.mayRelease(node) {
		h.a.ReleasePollerNode(node)
	}
}

// mayRelease reports whether from now on other queues may use a node of this process.
func (h *lot) mayRelease(node arenakernel.Offset) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, loose := h.loose[node]
	return !loose
}

// startPoller starts the poller if it is not running, before anybody waits for it.
func (h *lot) startPoller() { // guarded by: mu
	if !h.polling && !h.closed.Load() {
		h.polling = true
		// The count is read before anybody waits, so that the poller misses no death.
		deaths := h.a.Deaths()
		h.running.Go(func() { h.poller(deaths) })
	}
}

// takeLoose makes a ready node of this process idle although the node did not come off the ready
// stack. It reports whether the node was ready. From then on the node is loose: its releaser may
// still push it.
func (h *lot) takeLoose(node arenakernel.Offset) bool {
	if !h.a.TakeReadyNode(node) {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.loosed++
	h.loose[node] = h.loosed
	return true
}

// orphanCheck is how long, in nanoseconds, the poller waits before it searches for nodes that fell
// off its stack. It searches twice after it has found something on the stack that is not ready. A
// releaser that is about to push such a node does so meanwhile.
const orphanCheck = 1e6

// poller sleeps for all parked goroutines of this process. deaths is the number of deaths that it
// has handled.
func (h *lot) poller(deaths uint32) {
	var lost []untold // wait nodes whose wait is over, and which may never come off the stack
	for checks := 0; ; {
		doorbell, rung := h.a.Doorbell()
		// The doorbell is read first, because close sets closed before it rings.
		if h.closed.Load() {
			return
		}
		delivered := false
		loose := h.looseBefore()
		told := (len(lost) > 0 || loose > 0) && h.a.AllTold()
		orphans := h.a.TakeReady(func(node arenakernel.Offset) {
			if h.took != nil {
				h.took()
			}
			h.mu.Lock()
			q := h.queues[node]
			h.mu.Unlock()
			if q != nil {
				q.deliver(false)
			} else if notify := h.nodePool.popped(node); notify != nil {
				notify()
			}
			delivered = true
		})
		if orphans {
			checks = 2
		}
		if told {
			h.nodePool.forgive(lost)
			h.fasten(loose)
			lost = nil
		}
		if now := h.a.Deaths(); now != deaths {
			// The dead process may not have made a wake for a goroutine of this process.
			deaths = now
			for _, q := range h.adopted() {
				q.afterDeath()
			}
			h.nodePool.check()
			h.checkNow()
			lost, checks = h.nodePool.untold(), 2
			continue
		}
		if delivered {
			// The woken goroutines are in the run queue of this P. The system call below would keep
			// the P until sysmon takes the P away.
			runtime.Gosched()
			continue
		}
		if checks == 0 {
			shmsync.Wait(doorbell, rung, 0)
			continue
		}
		checks--
		shmsync.Wait(doorbell, rung, shmsync.Monotonic()+orphanCheck)
		if h.closed.Load() {
			return
		}
		for _, q := range h.adopted() {
			q.recover()
		}
		h.nodePool.check()
		lost = h.nodePool.untold()
	}
}

// looseBefore returns how many nodes have ever become loose, or 0 if none is loose now.
func (h *lot) looseBefore() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.loose) == 0 {
		return 0
	}
	return h.loosed
}

// fasten ends the loose state of the nodes that were among the first before loose ones. The caller
// has seen that every releaser has pushed all of these nodes since then, and has emptied the stack
// after that. So no releaser pushes one of these nodes again without making it ready first.
func (h *lot) fasten(before uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.loose, func(_ arenakernel.Offset, when uint64) bool { return when <= before })
}

// checkNow checks every object that has waiters here.
func (h *lot) checkNow() {
	h.mu.Lock()
	queues := slices.Collect(maps.Keys(h.all))
	h.mu.Unlock()
	for _, q := range queues {
		if q.Waiting() > 0 {
			q.alive(q.config.Check)
		}
	}
}

func (h *lot) adopted() []*Queue {
	h.mu.Lock()
	defer h.mu.Unlock()
	queues := make([]*Queue, 0, len(h.queues))
	for _, q := range h.queues {
		queues = append(queues, q)
	}
	return queues
}

// close wakes all waiters, whose waits end, and returns when they have left: the memory that they
// read is unmapped next.
func (h *lot) close() {
	h.mu.Lock()
	h.closed.Store(true)
	h.mu.Unlock()
	close(h.end)
	h.a.RingSelf()
	h.running.Wait()
	for h.sendAway() {
		time.Sleep(time.Millisecond)
	}
	lots.Lock()
	delete(lots.of, h.a.Segment())
	lots.Unlock()
}

// sendAway wakes all waiters of this process, and reports whether there are any.
func (h *lot) sendAway() (busy bool) {
	h.mu.Lock()
	queues := slices.Collect(maps.Keys(h.all))
	h.mu.Unlock()
	for _, q := range queues {
		if q.Waiting() > 0 {
			busy = true
			q.sendAway()
		}
	}
	h.nodePool.sendAway(nil)
	return busy
}
