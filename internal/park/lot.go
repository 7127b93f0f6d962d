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

// DirectMax is the maximum number of goroutines of a process that sleep in the kernel for one arena, each on its
// own thread. It is less than the number of records in which the threads of a participant announce what they wait
// for.
const DirectMax = 12

// A lot is the state that all queues of one arena share in this process.
type lot struct {
	a      *arenakernel.Arena
	procs  int32       // how many goroutines can run at the same time
	closed atomic.Bool // set under mu

	mu       sync.Mutex
	all      map[*Queue]struct{}           // guarded by: mu
	queues   map[arenakernel.Offset]*Queue // guarded by: mu; the queue to which each poller node belongs
	loose    map[arenakernel.Offset]uint64 // guarded by: mu; nodes that may be pushed while not ready; see takeLoose
	loosed   uint64                        // guarded by: mu; how many times a node has become loose
	checked  []*Queue                      // guarded by: mu; queues that have waiters
	checking bool                          // guarded by: mu; the periodic checker is running

	polling atomic.Bool  // the poller is running; changes under mu
	resting atomic.Int32 // how many queues need no check at present; see resting

	running sync.WaitGroup // the periodic checker and the poller
	end     chan struct{}

	nodePool nodePool

	// took, if not nil, is a function of a test. The poller calls it between taking a node from the ready stack and
	// delivering the wake. The test sets it before the poller starts.
	took func()
}

var lots struct {
	sync.Mutex
	of map[any]*lot // guarded by: Mutex; the lot of each arena that this process has joined, by segment
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

// adopt gets a poller node for q, that is, the record in the arena through which other processes wake parked
// goroutines of q. It registers q so that the poller delivers to q when the node becomes ready. Each queue has its
// own node.
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

// release gives up the poller node of a queue that was closed. If the closed queue kept the node, it would receive
// wakes that are meant for the next queue of the object.
func (h *lot) release(node arenakernel.Offset) {
	h.mu.Lock()
	delete(h.queues, node)
	h.mu.Unlock()
	if h.mayRelease(node) {
		h.a.ReleasePollerNode(node)
	}
}

// mayRelease reports whether other queues may use a poller node of this process from now on. It returns false if a
// releaser may still push the node on the ready stack.
func (h *lot) mayRelease(node arenakernel.Offset) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, loose := h.loose[node]
	return !loose
}

// startPoller starts the poller if it is not running. It is called before any goroutine relies on
// the poller.
func (h *lot) startPoller() { // guarded by: mu
	if !h.polling.Load() && !h.closed.Load() {
		// Load the count of deaths before any goroutine waits, and before another goroutine finds that the poller is
		// running, so that the poller misses no death.
		deaths := h.a.Deaths()
		h.polling.Store(true)
		h.running.Go(func() { h.poller(deaths) })
	}
}

// takeLoose makes a ready poller node of this process idle although the node has not come off the ready stack. It
// reports whether the node was ready. From then on the node counts as loose: the process that made it ready may
// still push it on the stack.
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

// orphanCheck is how long, in nanoseconds, the poller waits before it searches for nodes that were lost from the ready
// stack. During the wait, a process that is about to push a node can do so. If the poller has found something on the
// stack that is not ready, it waits and searches twice.
const orphanCheck = 1e6

// poller waits in the kernel for all parked goroutines of this process, and wakes them. The parameter deaths is the
// number of deaths that are already handled.
func (h *lot) poller(deaths uint32) {
	var lost []untold // wait nodes whose waits are over, and which may never come off the ready stack
	for checks := 0; ; {
		doorbell, rung := h.a.Doorbell()
		// Read the doorbell word before the field closed, because the method close sets this field before it changes
		// the doorbell.
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
			// The process that died may have been about to wake a goroutine of this process.
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
			// The woken goroutines are in the run queue of this P. A system call would keep the P
			// until sysmon takes it away, so let them run first.
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

// looseBefore returns how many times a node has become loose, or 0 if no node is loose now. A node is loose if it
// may be pushed on the ready stack while it is not ready.
func (h *lot) looseBefore() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.loose) == 0 {
		return 0
	}
	return h.loosed
}

// fasten ends the loose state of the nodes that were loose when the poller called looseBefore. The parameter before
// is the result of that call. Since the call, every process that had made a node ready has pushed it, and the poller
// has emptied the ready stack. So no process pushes one of these nodes before it has made the node ready again.
func (h *lot) fasten(before uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.loose, func(_ arenakernel.Offset, when uint64) bool { return when <= before })
}

// checkNow checks every object for which goroutines of this process wait.
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

// close ends all waits of this process by waking the waiters. It returns when all of them have left, because the
// caller then unmaps the memory that they read.
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

// sendAway wakes all waiters of this process, so that they end their waits. It reports whether there were any.
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
