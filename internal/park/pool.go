package park

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/asm"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// leavePauses bounds how long a waiter waits until its node is off the queue.
const leavePauses = 200

func pause() { asm.Pause(2) }

// nodePool holds the wait nodes of a process. It keeps them for later waits, so a wait allocates a
// node only while more goroutines wait than ever before.
type nodePool struct {
	lot *lot

	mu   sync.Mutex
	of   map[arenakernel.Offset]*WaitNode // guarded by: mu; by their nodes
	all  []*WaitNode                      // guarded by: mu; the values of the map of
	free []*WaitNode                      // guarded by: mu; the wait nodes that no wait uses
}

// TakeNode returns an idle wait node for one wait in an object of a. The error Is ErrNoSpace if the
// arena has no room for a node.
func TakeNode(a *arenakernel.Arena) (*WaitNode, error) { return lotOf(a).nodePool.take() }

// TakeNode is the function TakeNode for the arena of this queue.
func (q *Queue) TakeNode() (*WaitNode, error) { return q.lot.nodePool.take() }

// CachedWaitNode is TakeNode if the pool has a free node, and nil otherwise.
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
	s.taken, s.notify, s.told, s.Withdrawer = true, nil, false, nil
	s.in.Store(nil)
	select {
	case <-s.wake: // a wake for an earlier wait that had ended without it
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
	s = &WaitNode{Node: node, Off: off, nodePool: b, wake: make(chan struct{}, 1), taken: true, Tag: rand.Uint32()}
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

// keep puts a wait node back into the pool. Its wait was resolved, and its node is on no stack.
func (b *nodePool) keep(s *WaitNode) { // guarded by: mu
	w := s.Node.Load()
	// sync(waitnode.unqueue): acquire
	if s.Node.Stamp().Load() == 0 {
		s.Node.Swap(w, w.Kept())
		b.put(s)
		return
	}
	// The granter has resolved the wait and not taken the node off the queue, because it is stopped
	// or dead. The participant that takes the node off frees the node. If that has just happened,
	// the code below frees it.
	b.forget(s)
	if s.Node.Swap(w, w.With(arenakernel.NodeSpent)) && s.Node.Stamp().Load() == 0 {
		b.lot.a.ReclaimNode(s.Off, w)
	}
}

// forget removes a wait node whose record in the arena no longer belongs to this process.
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

// popped handles a node that came off the ready stack, or that will never come. It wakes the
// waiter, or returns a function that the caller must call instead.
func (b *nodePool) popped(off arenakernel.Offset) (notify func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.of[off]
	if s == nil || !s.owed {
		return nil
	}
	s.owed = false
	if !s.taken {
		b.keep(s) // the wait ended without this wake
		return nil
	}
	return s.tell()
}

// TellOwn wakes a waiter of this process whose node was parked when the caller resolved it. It
// replaces Tell, and needs neither the ready stack nor the poller, because on a busy P the poller
// runs only after every other goroutine has had a turn.
//
// TellOwn only wakes. The waiter then reads its node, as after every wake. If the caller stops or
// dies before the wake, the periodic checks make up for it, as for a wake by the poller.
func (q *Queue) TellOwn(off arenakernel.Offset) {
	if notify := q.lot.nodePool.popped(off); notify != nil {
		// The caller may hold locks that notify takes.
		go notify()
	}
}

// untold is a wait node whose wait was resolved, and which has not come off the ready stack. Its
// granter is about to push it or has died, or the node fell off the stack.
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

// forgive wakes the waiters of lost nodes. The caller is the poller. It has seen these nodes as
// untold. Then it has seen that every granter has pushed all its nodes, and has emptied the stack
// once more. So a node that has not come off by now never will.
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

// tell wakes the waiter, or returns a function that the caller must call instead.
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

// check wakes waiters whose wait is over and which have not been told, because the granter may be
// dead or stopped.
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

// prod wakes the waiter of a wait node if its wait is over, or in any case if always is set. Other
// code may wake the same waiter as well.
func (b *nodePool) prod(s *WaitNode, always bool) {
	b.mu.Lock()
	var notify func()
	switch {
	case !s.taken:
	case always:
		// A peer may have overwritten the node, and the waiter may have been told before. The
		// waiter is woken in any case.
		s.told = false
		notify = s.tell()
		shmsync.Wake(wordPtr(s.Node.Word()), allSleepers)
	case !s.Resolved(): // another wait uses the node by now
	case s.owed:
		notify = s.tell()
	default:
		if s.notify == nil {
			s.look() // the goroutine may be waiting for its turn
		}
		shmsync.Wake(wordPtr(s.Node.Word()), allSleepers)
	}
	b.mu.Unlock()
	if notify != nil {
		notify()
	}
}

// sendAway ends the waits that use the handle of q, which is being closed, by waking their
// goroutines. If q is nil, this process leaves the arena, and sendAway ends all waits. A wait
// without a sleeping goroutine just ends.
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

// DescribeWaitNodes renders the waits of this process as text.
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
