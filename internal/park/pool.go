package park

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// A nodePool contains the wait nodes of a process, that is, the records in the arena by which its goroutines wait in
// queues. It keeps nodes for later waits, and gives back the nodes that no wait has needed for some seconds; see
// shrink.
type nodePool struct {
	lot *lot

	mu   sync.Mutex
	of   map[arenakernel.Offset]*WaitNode // guarded by: mu; all wait nodes, by the offset of the node in the arena
	used []*WaitNode                      // guarded by: mu; the wait nodes that are taken or owed, for the periodic checks
	free []*WaitNode                      // guarded by: mu; the other wait nodes

	looked int // guarded by: mu; the index, in used, of the last wait node that checkQueues has examined

	fewest  int // guarded by: mu; the least number of free nodes in the present period of shrink
	ticks   int // guarded by: mu; the calls of shrink in the present period
	surplus int // guarded by: mu; the number of free nodes that shrink has yet to give back
}

// TakeNode returns an idle wait node for one wait. If the arena has no room for another node, the error Is ErrNoSpace.
//
// TakeNode also starts the poller of this process. From then on, the poller checks the object after each death. The
// caller has called Enter. Before it queues the node, it checks for deaths itself. So it misses no death: if a death is
// not counted yet at that check, the poller finds it. A wait of a Cond needs no check, because no earlier death owes it a
// signal.
func (q *Queue) TakeNode() (*WaitNode, error) {
	q.StartPoller()
	return q.lot.nodePool.take()
}

// cached returns a wait node from the pool, or nil if the pool has no free node.
func (b *nodePool) cached() *WaitNode { // guarded by: mu
	n := len(b.free)
	if n == 0 {
		return nil
	}
	s := b.free[n-1]
	b.free = b.free[:n-1]
	b.fewest = min(b.fewest, n-1)
	b.use(s)
	s.taken, s.notify, s.told, s.Withdrawer = true, nil, false, nil
	s.in.Store(nil)
	s.suspect.Store(false)
	select {
	case <-s.wake: // a wake that an earlier wait did not need
	default:
	}
	return s
}

func (b *nodePool) take() (*WaitNode, error) {
	b.mu.Lock()
	s := b.cached()
	b.mu.Unlock()
	if s != nil {
		return s, nil
	}
	off, err := b.lot.a.ClaimNode()
	if err != nil {
		return nil, err
	}
	node, err := b.lot.a.NodeAt(off)
	if err != nil {
		return nil, err
	}
	s = &WaitNode{Node: node, Off: off, nodePool: b, wake: make(chan struct{}, 1), taken: true, NextTag: rand.Uint32()}
	s.ExtraTag = s.NextTag
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil {
		b.of = map[arenakernel.Offset]*WaitNode{}
	}
	b.of[off] = s
	b.use(s)
	return s, nil
}

func (b *nodePool) use(s *WaitNode) { // guarded by: mu
	s.index = len(b.used)
	b.used = append(b.used, s)
}

func (b *nodePool) unuse(s *WaitNode) { // guarded by: mu
	last := len(b.used) - 1
	b.used[s.index] = b.used[last]
	b.used[s.index].index = s.index
	b.used[last] = nil
	b.used = b.used[:last]
}

func (b *nodePool) put(s *WaitNode) { // guarded by: mu
	s.taken = false
	b.unuse(s)
	b.free = append(b.free, s)
}

// keep puts the wait node s back into the pool. The wait of s was resolved, and the node is not on the ready stack.
func (b *nodePool) keep(s *WaitNode) { // guarded by: mu
	w := s.Node.Load()
	s.Node.Swap(w, w.Kept())
	b.put(s)
}

// forget removes a wait node from the pool, because a queue may still refer to its record in the arena.
func (b *nodePool) forget(s *WaitNode) { // guarded by: mu
	s.taken = false
	if b.of[s.Off] != s {
		return
	}
	delete(b.of, s.Off)
	b.unuse(s)
}

// popped handles a node that has come off the ready stack, or that was lost from the stack and will never come off. It
// wakes the waiter, or returns a function that wakes the waiter. The caller must call this function, without the lock
// mu.
func (b *nodePool) popped(off arenakernel.Offset) (notify func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.of[off]
	if s == nil || !s.owed {
		return nil
	}
	s.owed = false
	if !s.taken {
		b.keep(s) // the wait had ended before this wake came
		return nil
	}
	return s.tell()
}

// TellOwn wakes a waiter of this process whose wait the caller has resolved while its node was in state parked. The
// caller uses it instead of the method Tell of the arena. TellOwn needs neither the ready stack nor the poller
// goroutine. On a busy P, the poller would run only after all other goroutines.
//
// TellOwn only wakes: the waiter then reads its node, as after every wake. If the caller stops or dies before the
// wake, a periodic check wakes the waiter.
func (q *Queue) TellOwn(off arenakernel.Offset) {
	if notify := q.lot.nodePool.popped(off); notify != nil {
		// Call notify in a new goroutine, because the caller may hold locks that notify takes.
		go notify()
	}
}

// untold is a wait node whose wait was resolved, but which has not come off the ready stack. There are three possible
// reasons: the granter is about to push the node, or has died, or the node was lost from the stack.
type untold struct {
	waitNode *WaitNode
	word     arenakernel.NodeWord
}

func (b *nodePool) untold() (lost []untold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.used {
		if w := s.Node.Load(); s.owed && w.State() == arenakernel.NodeResolved {
			lost = append(lost, untold{s, w})
		}
	}
	return lost
}

// forgive wakes the waiters of nodes that were lost from the ready stack. The poller calls it with the result of an
// earlier call of the method untold. Since that call, every granter has pushed all its nodes, and the poller has
// emptied the stack once more. So a node that has not come off the stack by now will never come off.
func (b *nodePool) forgive(lost []untold) {
	for _, l := range lost {
		b.mu.Lock()
		owed := l.waitNode.owed && l.waitNode.Node.Load() == l.word
		b.mu.Unlock()
		if owed {
			if notify := b.popped(l.waitNode.Off); notify != nil {
				notify()
			}
		}
	}
}

// tell wakes the waiter of s, or returns a function that wakes the waiter. The caller must call this function, without
// the lock mu of the pool.
func (s *WaitNode) tell() (notify func()) { // guarded by: nodePool.mu
	switch {
	case s.notify == nil:
		s.look()
	case !s.told:
		s.told = true
		return s.notify
	}
	return nil
}

// check wakes each waiter whose wait is over and which has not been woken. The granter of such a wait may be dead or
// stopped.
func (b *nodePool) check() {
	b.mu.Lock()
	used := slices.Clone(b.used)
	b.mu.Unlock()
	for _, s := range used {
		if s.Resolved() {
			b.prod(s, false)
		}
	}
}

// queuesMost is the maximum number of waits whose queues checkQueues examines in one tick of the
// checker. That takes less than 1 % of a CPU. If a process has more waits, each of them is examined
// less often.
const queuesMost = 256

// checkQueues examines the queues of some waits, and wakes the waiters whose queue a peer has damaged. Without this
// wake they could wait for ever, because a granter may be unable to find them in the damaged queue.
func (b *nodePool) checkQueues() {
	b.mu.Lock()
	some := make([]*WaitNode, min(len(b.used), queuesMost))
	for i := range some {
		b.looked = (b.looked + 1) % len(b.used)
		some[i] = b.used[b.looked]
	}
	b.mu.Unlock()
	for _, s := range some {
		switch s.Node.State() {
		case arenakernel.NodeQueued, arenakernel.NodeAsleep, arenakernel.NodeParked:
			if q := s.in.Load(); q != nil && q.torn(s) {
				s.suspect.Store(true)
				b.prod(s, true)
			}
		}
	}
}

// torn calls Config.Torn, unless the queue is closed.
func (q *Queue) torn(s *WaitNode) bool {
	if q.config.Torn == nil {
		return false
	}
	q.life.Lock()
	defer q.life.Unlock()
	return !q.closed && q.config.Torn(s)
}

// prod wakes the waiter of a wait node if its wait is over, or in any case if the parameter always
// is true. Other code may wake the same waiter, too.
func (b *nodePool) prod(s *WaitNode, always bool) {
	b.mu.Lock()
	var notify func()
	switch {
	case !s.taken:
	case always:
		// Wake the waiter even if it was woken before, because a peer may have overwritten the node.
		s.told = false
		notify = s.tell()
		shmsync.Wake(wordPtr(s.Node.Word()), allSleepers)
	case !s.Resolved(): // another wait uses the node by now
	case s.owed:
		notify = s.tell()
	default:
		if s.notify == nil {
			s.look() // the goroutine may be waiting for its turn to read the node; see Turns
		}
		shmsync.Wake(wordPtr(s.Node.Word()), allSleepers)
	}
	b.mu.Unlock()
	if notify != nil {
		notify()
	}
}

// sendAway is called when the handle of q is being closed. It wakes the goroutines that wait through this handle, so
// that they end their waits. If q is nil, this process is leaving the arena, and sendAway wakes all waiting goroutines.
// A goroutine that is not asleep yet sees by itself that the handle is being closed.
func (b *nodePool) sendAway(q *Queue) {
	b.mu.Lock()
	used := slices.Clone(b.used)
	b.mu.Unlock()
	for _, s := range used {
		if q == nil || s.in.Load() == q {
			b.prod(s, true)
		}
	}
}

// DescribeWaitNodes returns the waits of this process as text.
func DescribeWaitNodes(a *arenakernel.Arena) string {
	b := &lotOf(a).nodePool
	b.mu.Lock()
	defer b.mu.Unlock()
	out := ""
	for _, s := range b.used {
		out += fmt.Sprintf("wait node %v: %v, stamp %d, taken %v, owed %v, told %d\n", s.Off, s.Node.Load(), s.Node.Stamp().Load(), s.taken, s.owed, len(s.wake))
	}
	return out
}
