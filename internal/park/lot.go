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

// DirectMax is how many goroutines of a process may sleep in the kernel for one
// arena, each on a thread of its own. It is below the number of announce
// records of a slot.
const DirectMax = 12

// lot is what the queues of one arena share in this process.
type lot struct {
	a      *arenakernel.Arena
	procs  int32       // how many goroutines run at a time
	closed atomic.Bool // set under mu

	mu       sync.Mutex
	all      map[*Queue]struct{}           // guarded by: mu
	queues   map[arenakernel.Offset]*Queue // guarded by: mu; the queue of each poller node
	loose    map[arenakernel.Offset]uint64 // guarded by: mu; nodes that may be pushed though they are not ready, with their number in loosed
	loosed   uint64                        // guarded by: mu; how many nodes were ever taken loose
	checked  []*Queue                      // guarded by: mu; queues that have waiters
	checking bool                          // guarded by: mu; the periodic checker runs
	polling  bool                          // guarded by: mu; the poller runs

	resting atomic.Int32 // how many queues rest

	running sync.WaitGroup // the periodic checker and the poller
	end     chan struct{}

	nodePool nodePool

	// took, if a test sets it before the poller runs, is called when the poller has taken a node
	// and has not delivered the wake yet.
	took func()
}

var lots struct {
	sync.Mutex
	of map[any]*lot // guarded by: Mutex; the lot of each membership, by its segment
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

// adopt gives q a poller node, and makes the poller deliver for q what becomes ready on it.
// Each queue has a node of its own.
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

// release gives up the node of a queue that is closed. If the closed queue kept the node, it
// would swallow the wakes of the next queue of the object.
func (h *lot) release(node arenakernel.Offset) {
	h.mu.Lock()
	delete(h.queues, node)
	h.mu.Unlock()
	if h.mayRelease(node) {
		h.a.ReleasePollerNode(node)
	}
}

// mayRelease reports whether other queues may use a node of ours from now on.
func (h *lot) mayRelease(node arenakernel.Offset) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, loose := h.loose[node]
	return !loose
}

// startPoller makes sure that the poller runs, before anybody waits for it.
func (h *lot) startPoller() { // guarded by: mu
	if !h.polling && !h.closed.Load() {
		h.polling = true
		// Read before anybody waits: the poller must not miss a death.
		deaths := h.a.Deaths()
		h.running.Go(func() { h.poller(deaths) })
	}
}

// takeLoose makes a ready node of ours idle although the node did not come off the ready stack,
// and reports whether the node was ready. From then on the node is loose: its releaser may still
// push it.
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

// orphanCheck is how long, in nanoseconds, the poller waits before it looks for nodes that fell
// off its stack. It looks twice after it has met an orphaned node. A releaser that is about to
// push such a node does so in the meantime.
const orphanCheck = 1e6

// poller sleeps for all parked goroutines of this process. deaths is the number of deaths that it
// has dealt with.
func (h *lot) poller(deaths uint32) {
	var lost []untold // wait nodes that may never come
	for checks := 0; ; {
		doorbell, rung := h.a.Doorbell()
		// The doorbell is read first, because close sets closed and then rings.
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
			// The dead process may have owed any of us a wake.
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
			// The woken goroutines are in the run queue of this P. The system call below would
			// block the P until sysmon takes it away.
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

// looseBefore returns how many nodes were ever taken loose, or 0 if none is loose now.
func (h *lot) looseBefore() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.loose) == 0 {
		return 0
	}
	return h.loosed
}

// fasten ends the loose state of the first nodes that were taken loose; before is their number. The
// caller has seen that since then every releaser has pushed all its nodes, and has then emptied the
// stack. So no releaser pushes one of these nodes any more without making it ready first.
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

// close sends all waiters away and returns when they have gone: the memory that they look at is
// unmapped next.
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

// sendAway wakes all waiters, and reports whether there are any.
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
