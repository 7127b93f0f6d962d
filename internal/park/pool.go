package park

import (
	"fmt"
	"slices"
	"sync"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/asm"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// leavePauses bounds how long a waiter waits for its node to be off the queue.
const leavePauses = 200

func pause() { asm.Pause(2) }

// nodePool is where a process has its wait nodes. They are kept: a wait allocates
// nothing once there are as many as goroutines ever waited at a time.
type nodePool struct {
	lot *lot

	mu   sync.Mutex
	of   map[arenakernel.Offset]*WaitNode // guarded by: mu; by their nodes
	all  []*WaitNode                      // guarded by: mu; those in of
	free []*WaitNode                      // guarded by: mu; those that no wait uses
}

// TakeNode gives a wait node for one wait in an object of a, with its node idle. The
// error Is ErrNoSpace when there is no room for a node.
func TakeNode(a *arenakernel.Arena) (*WaitNode, error) { return lotOf(a).nodePool.take() }

// TakeNode is park.TakeNode for the arena of this queue.
func (q *Queue) TakeNode() (*WaitNode, error) { return q.lot.nodePool.take() }

// CachedWaitNode is TakeNode if that takes no allocation, or nil.
func (q *Queue) CachedWaitNode() *WaitNode {
	b := &q.lot.nodePool
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cached()
}

func (b *nodePool) cached() *WaitNode {
	n := len(b.free)
	if n == 0 {
		return nil
	}
	s := b.free[n-1]
	b.free = b.free[:n-1]
	s.taken, s.notify, s.told = true, nil, false
	s.in.Store(nil)
	select {
	case <-s.wake: // of a wait that ended before it was told
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
	s = &WaitNode{Node: node, Off: off, nodePool: b, wake: make(chan struct{}, 1), taken: true}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil {
		b.of = map[arenakernel.Offset]*WaitNode{}
	}
	b.of[off] = s
	s.index = len(b.all)
	b.all = append(b.all, s)
	return s, nil
}

func (b *nodePool) put(s *WaitNode) { // guarded by: mu
	s.taken = false
	b.free = append(b.free, s)
}

// keep puts a wait node back whose wait was resolved, and which is on no stack.
func (b *nodePool) keep(s *WaitNode) { // guarded by: mu
	w := s.Node.Load()
	// sync(waitnode.unqueue): acquire
	if s.Node.Stamp().Load() == 0 {
		s.Node.Swap(w, w.Kept())
		b.put(s)
		return
	}
	// Its granter is stopped or dead. The node goes back with the participant that takes it
	// off the queue, and if that has just happened, now.
	b.forget(s)
	if s.Node.Swap(w, w.With(arenakernel.NodeSpent)) && s.Node.Stamp().Load() == 0 {
		b.lot.a.ReclaimNode(s.Off, w)
	}
}

// forget drops a wait node whose node is ours no more.
func (b *nodePool) forget(s *WaitNode) { // guarded by: mu
	s.taken = false
	if b.of[s.Off] != s {
		return
	}
	delete(b.of, s.Off)
	last := len(b.all) - 1
	b.all[s.index] = b.all[last]
	b.all[s.index].index = s.index
	b.all[last] = nil
	b.all = b.all[:last]
}

// popped wakes the waiter of a node that came off the ready stack, or never comes there,
// or gives what to call for that.
func (b *nodePool) popped(off arenakernel.Offset) (notify func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.of[off]
	if s == nil || !s.owed {
		return nil
	}
	s.owed = false
	if !s.taken {
		b.keep(s) // its wait ended without being told
		return nil
	}
	return s.tell()
}

// TellOwn wakes the waiter of a wait node of this process whose node was parked when the
// caller resolved it. It takes the place of Tell, without the ready stack and the poller: on
// a busy P the poller runs only when everybody else has had a turn.
//
// It carries nothing but the wake. The waiter looks at its node, as after every wake, and
// a wake that does not come, since the caller stops or dies before, is made up for in the
// same ways as one of the poller.
func (q *Queue) TellOwn(off arenakernel.Offset) {
	if notify := q.lot.nodePool.popped(off); notify != nil {
		// The caller may hold locks that notify takes.
		go notify()
	}
}

// untold is a wait node whose wait was resolved, and which has not come off the ready stack:
// its granter is about to put it there, or has died, or it fell off.
type untold struct {
	waitNode *WaitNode
	word     arenakernel.NodeWord
}

func (b *nodePool) untold() (lost []untold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.all {
		if w := s.Node.Load(); s.owed && w.State() == arenakernel.NodeResolved {
			lost = append(lost, untold{s, w})
		}
	}
	return lost
}

// forgive is for wait nodes that were untold before everybody had told what there was to
// tell, and the stack was emptied once more: what has not come by now never will. It is
// called by the poller.
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

// tell wakes the waiter, or gives what to call for that.
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

// check wakes the waiters whose wait is over and that have not been told: the granter may
// be dead or stopped.
func (b *nodePool) check() {
	b.mu.Lock()
	all := slices.Clone(b.all)
	b.mu.Unlock()
	for _, s := range all {
		if s.Resolved() {
			b.prod(s, false)
		}
	}
}

// prod wakes the waiter of a wait node, also if another thread does so too, if its wait is
// over or always.
func (b *nodePool) prod(s *WaitNode, always bool) {
	b.mu.Lock()
	var notify func()
	switch {
	case !s.taken:
	case always:
		// Whatever a peer has made of the node, and whether or not the waiter was told
		// before.
		s.told = false
		notify = s.tell()
		shmsync.Wake(wordPtr(s.Node.Word()), allSleepers)
	case !s.Resolved(): // it is in another use by now
	case s.owed:
		notify = s.tell()
	default:
		if s.notify == nil {
			s.look() // it may wait for its turn
		}
		shmsync.Wake(wordPtr(s.Node.Word()), allSleepers)
	}
	b.mu.Unlock()
	if notify != nil {
		notify()
	}
}

// sendAway wakes those that wait by the handle of q, which is being closed, or, if q is
// nil, all, since this process leaves the arena. Waits without a sleeper end without being
// told.
func (b *nodePool) sendAway(q *Queue) {
	b.mu.Lock()
	all := slices.Clone(b.all)
	b.mu.Unlock()
	for _, s := range all {
		if q == nil || s.in.Load() == q {
			b.prod(s, true)
		}
	}
}

// DescribeWaitNodes renders the waits of this process, for people.
func DescribeWaitNodes(a *arenakernel.Arena) string {
	b := &lotOf(a).nodePool
	b.mu.Lock()
	defer b.mu.Unlock()
	out := ""
	for _, s := range b.all {
		if s.taken || s.owed {
			out += fmt.Sprintf("wait node %v: %v, stamp %d, taken %v, owed %v, told %d\n", s.Off, s.Node.Load(), s.Node.Stamp().Load(), s.taken, s.owed, len(s.wake))
		}
	}
	return out
}
