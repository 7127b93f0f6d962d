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
	queues   map[arenakernel.Offset]*Queue // guarded by: mu; by their poller node
	loose    map[arenakernel.Offset]uint64 // guarded by: mu; nodes that may be pushed though they are not ready, with loosed then
	loosed   uint64                        // guarded by: mu; how often one was taken loose
	checked  []*Queue                      // guarded by: mu; queues that have waiters
	checking bool                          // guarded by: mu; the periodic checker runs
	polling  bool                          // guarded by: mu; the poller runs

	running sync.WaitGroup // periodic checker and poller
	end     chan struct{}

	nodePool nodePool

	// took, if a test sets it before the poller runs, is called when the poller has
	// taken a node and not delivered yet.
	took func()
}

var lots struct {
	sync.Mutex
	of map[any]*lot // guarded by: Mutex; by the segment of a membership
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

// release gives up the node of a queue that is closed: a closed queue that kept it
// would drop the wakes of its successor.
func (h *lot) release(node arenakernel.Offset) {
	h.mu.Lock()
	delete(h.queues, node)
	h.mu.Unlock()
	if h.mayRelease(node) {
		h.a.ReleasePollerNode(node)
	}
}

// mayRelease reports whether others may have a node of ours.
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
		// Read before anybody waits, so that no death is missed.
		deaths := h.a.Deaths()
		h.running.Go(func() { h.poller(deaths) })
	}
}

// takeLoose makes a node of ours idle without its stack if it is ready, and
// reports whether it was. It is loose from then on.
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

// orphanCheck is how long after it met an orphaned node the poller looks for nodes that fell
// off its stack, twice, in nanoseconds: a releaser that is on its way to push one
// does it meanwhile.
const orphanCheck = 1e6

// poller sleeps for all parked goroutines of this process. deaths is what it has
// seen of those.
func (h *lot) poller(deaths uint32) {
	var lost []untold // wait nodes that may never come
	for checks := 0; ; {
		doorbell, rung := h.a.Doorbell()
		// After the doorbell: close says so and then rings.
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
			// The dead one may have owed any of us a wake.
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
			// The woken goroutines are in the run queue of this P, which the system call
			// below would take along until sysmon finds it.
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

// looseBefore gives how often a node was taken loose, 0 if none is loose now.
func (h *lot) looseBefore() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.loose) == 0 {
		return 0
	}
	return h.loosed
}

// fasten is for nodes that were loose before everybody had told what there was to
// tell, and the stack was emptied after that: they are not pushed out of turn any more.
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

// close sends everybody that waits away and returns when they have gone, since
// the memory that they look at is unmapped next.
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

// sendAway wakes everybody that waits, and reports whether there is anybody.
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
