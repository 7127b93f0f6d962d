package park

import (
	"maps"
	"runtime"
	"slices"
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

// host is what the queues of one arena share in this process.
type host struct {
	a      *arena.Arena
	procs  int32       // how many goroutines run at a time
	closed atomic.Bool // set under mu

	mu      sync.Mutex
	all     map[*Queue]struct{}     // guarded by: mu
	queues  map[arena.Offset]*Queue // guarded by: mu; by their hub node
	loose   map[arena.Offset]uint64 // guarded by: mu; nodes that may be pushed though they are not ready, with loosed then
	loosed  uint64                  // guarded by: mu; how often one was taken loose
	looked  []*Queue                // guarded by: mu; queues that somebody waits in
	looking bool                    // guarded by: mu; the looker runs
	hubbing bool                    // guarded by: mu; the hub runs

	running sync.WaitGroup // looker and hub
	end     chan struct{}

	bench bench

	// took, if a test sets it before the hub runs, is called when the hub has
	// taken a node and not delivered yet.
	took func()
}

var hosts struct {
	sync.Mutex
	of map[any]*host // guarded by: Mutex; by the segment of a membership
}

func hostOf(a *arena.Arena) *host {
	hosts.Lock()
	defer hosts.Unlock()
	if h := hosts.of[a.Segment()]; h != nil {
		return h
	}
	h := &host{a: a, procs: int32(runtime.GOMAXPROCS(0)), all: map[*Queue]struct{}{}, queues: map[arena.Offset]*Queue{}, loose: map[arena.Offset]uint64{}, end: make(chan struct{})}
	h.bench.host = h
	if hosts.of == nil {
		hosts.of = map[any]*host{}
	}
	hosts.of[a.Segment()] = h
	a.OnClose(h, h.close)
	return h
}

func (h *host) add(q *Queue) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all[q] = struct{}{}
}

func (h *host) remove(q *Queue) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, q)
}

// adopt gives q a hub node, and makes the hub deliver for q what becomes ready on it.
// Each queue has a node of its own.
func (h *host) adopt(q *Queue) (arena.Offset, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	node, err := h.a.HubNode(q.config.Object, q.Hub, func(node arena.Offset) bool { return h.queues[node] == nil })
	if err != nil {
		return 0, err
	}
	h.queues[node] = q
	h.startHub()
	return node, nil
}

// release gives up the node of a queue that is closed: a closed queue that kept it
// would drop the wakes of its successor.
func (h *host) release(node arena.Offset) {
	h.mu.Lock()
	delete(h.queues, node)
	h.mu.Unlock()
	if h.mayRelease(node) {
		h.a.ReleaseHubNode(node)
	}
}

// mayRelease reports whether others may have a node of ours.
func (h *host) mayRelease(node arena.Offset) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, loose := h.loose[node]
	return !loose
}

// startHub makes sure that the hub runs, before anybody waits for it.
func (h *host) startHub() { // guarded by: mu
	if !h.hubbing && !h.closed.Load() {
		h.hubbing = true
		// Read before anybody waits, so that no death is missed.
		deaths := h.a.Deaths()
		h.running.Go(func() { h.hub(deaths) })
	}
}

// takeLoose makes a node of ours idle without its stack if it is ready, and
// reports whether it was. It is loose from then on.
func (h *host) takeLoose(node arena.Offset) bool {
	if !h.a.TakeReadyNode(node) {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.loosed++
	h.loose[node] = h.loosed
	return true
}

// strayLook is how long after it met a stray the hub looks for nodes that fell
// off its stack, twice, in nanoseconds: a releaser that is on its way to push one
// does it meanwhile.
const strayLook = 1e6

// hub sleeps for all parked goroutines of this process. deaths is what it has
// seen of those.
func (h *host) hub(deaths uint32) {
	var lost []untold // seats that may never come
	for looks := 0; ; {
		bell, rung := h.a.Doorbell()
		// After the doorbell: close says so and then rings.
		if h.closed.Load() {
			return
		}
		delivered := false
		loose := h.looseBefore()
		told := (len(lost) > 0 || loose > 0) && h.a.AllTold()
		strays := h.a.TakeReady(func(node arena.Offset) {
			if h.took != nil {
				h.took()
			}
			h.mu.Lock()
			q := h.queues[node]
			h.mu.Unlock()
			if q != nil {
				q.deliver(false)
			} else if notify := h.bench.popped(node); notify != nil {
				notify()
			}
			delivered = true
		})
		if strays {
			looks = 2
		}
		if told {
			h.bench.forgive(lost)
			h.fasten(loose)
			lost = nil
		}
		if now := h.a.Deaths(); now != deaths {
			// The dead one may have owed any of us a wake.
			deaths = now
			for _, q := range h.adopted() {
				q.afterDeath()
			}
			h.bench.look()
			h.lookNow()
			lost, looks = h.bench.untold(), 2
			continue
		}
		if delivered {
			// Those who were woken are in the run queue of this P, which the
			// system call below would take along until sysmon finds it.
			runtime.Gosched()
			continue
		}
		if looks == 0 {
			shmsync.Wait(bell, rung, 0)
			continue
		}
		looks--
		shmsync.Wait(bell, rung, shmsync.Monotonic()+strayLook)
		if h.closed.Load() {
			return
		}
		for _, q := range h.adopted() {
			q.recover()
		}
		h.bench.look()
		lost = h.bench.untold()
	}
}

// looseBefore gives how often a node was taken loose, 0 if none is loose now.
func (h *host) looseBefore() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.loose) == 0 {
		return 0
	}
	return h.loosed
}

// fasten is for nodes that were loose before everybody had told what there was to
// tell, and the stack was emptied after that: they are not pushed out of turn any more.
func (h *host) fasten(before uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.loose, func(_ arena.Offset, when uint64) bool { return when <= before })
}

// lookNow has every object looked at that somebody waits for.
func (h *host) lookNow() {
	h.mu.Lock()
	queues := slices.Collect(maps.Keys(h.all))
	h.mu.Unlock()
	for _, q := range queues {
		if q.Waiting() > 0 {
			q.alive(q.config.Look)
		}
	}
}

func (h *host) adopted() []*Queue {
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
func (h *host) close() {
	h.mu.Lock()
	h.closed.Store(true)
	h.mu.Unlock()
	close(h.end)
	h.a.RingSelf()
	h.running.Wait()
	for h.sendAway() {
		time.Sleep(time.Millisecond)
	}
	hosts.Lock()
	delete(hosts.of, h.a.Segment())
	hosts.Unlock()
}

// sendAway wakes everybody that waits, and reports whether there is anybody.
func (h *host) sendAway() (busy bool) {
	h.mu.Lock()
	queues := slices.Collect(maps.Keys(h.all))
	h.mu.Unlock()
	for _, q := range queues {
		if q.Waiting() > 0 {
			busy = true
			q.sendAway()
		}
	}
	h.bench.sendAway(nil)
	return busy
}
