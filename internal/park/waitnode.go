package park

import (
	"cmp"
	"runtime"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("park.waitnode.asleep")
	_ = crashpoint.Register("park.waitnode.parked")
	_ = crashpoint.Register("park.waitnode.given_up")
)

// WaitNode is this process's side of a wait node, which its owner queues in an object and a granter
// resolves. One goroutine waits in it. The granter changes the node's word by a compare-and-swap
// and calls Tell; see arenakernel.NodeWord.
//
// A WaitNode belongs to one wait at a time. Between Take and Leave or Abandon no other
// goroutine uses it.
type WaitNode struct {
	Node *arenakernel.Node
	Off  arenakernel.Offset

	nodePool *nodePool
	in       atomic.Pointer[Queue] // the queue of the handle whose wait uses it
	wake     chan struct{}         // capacity 1

	// Tag is for recorded queues, and only the owner uses it: no word of the node had a later tag
	// while this process has had the node.
	Tag uint32
	// Withdrawer is used only by the owner. If it is set, a Sleep that gives up calls it instead of
	// Abandon. Withdraw takes the wait off its queue, or returns false if the wait is resolved.
	Withdrawer interface{ Withdraw(s *WaitNode) bool }

	since         int64       // only used by the owner; when the wait began to wait for its turn, CLOCK_MONOTONIC ns, or 0
	turns         *Turns      // only used by the owner; nil while the wait is on no line
	line          *turnLine   // owner only
	turn          atomic.Bool // the wait has the turn of its line; set under turns.mu
	ahead, behind *WaitNode   // guarded by: turns.mu

	// guarded by: nodePool.mu

	notify func() // called when the wait is over, instead of a send on wake
	told   bool   // notify has been called
	taken  bool   // a wait uses it
	owed   bool   // the node was parked, and has not come off the ready stack yet
	index  int    // in nodePool.all
}

// Sleep waits until the wait is resolved, the context of c ends or the handle is closed. The node
// is on a queue and in state queued. After the results Canceled and Closed the caller must not use
// the node any more, because it belongs to the queue.
//
// q is the queue of the object's queue lock, which the call has entered.
func (s *WaitNode) Sleep(q *Queue, c *Cancel) Result {
	h := s.nodePool.lot
	h.checkPeriodically(q)
	s.in.Store(q)
	if q.Closing() {
		return s.giveUp(Closed)
	}
	defer q.seated.Add(-1)
	if q.seated.Add(1) <= q.lot.procs && (q.haveWaitV || c.ctx == nil) {
		if record, ok := q.Arena.Announce(q.config.Object.Offset, s.Off, s.Node.Wanted().Load(), DirectMax); ok {
			defer q.Arena.Retract(record)
			if s.since != 0 {
				q.Arena.DateAnnounced(record, s.since)
			}
			return s.direct(q, c)
		}
	}
	return s.parked(q, c)
}

// direct sleeps in the kernel, on the thread of this goroutine.
func (s *WaitNode) direct(q *Queue, c *Cancel) Result {
	c.arm()
	w := s.Node.Load()
	if w.State() == arenakernel.NodeQueued && s.Node.Swap(w, w.With(arenakernel.NodeAsleep)) {
		w = w.With(arenakernel.NodeAsleep)
	}
	crashpoint.Hit("park.waitnode.asleep")
	for s.Node.Load() == w && w.State() == arenakernel.NodeAsleep {
		if q.Closing() {
			return s.giveUp(Closed)
		}
		var err error
		if c.word != nil {
			entries := [2]shmsync.WaitVEntry{shmsync.NewWaitVEntry(wordPtr(s.Node.Word()), uint32(w)), shmsync.NewWaitVEntry(wordPtr(c.word), 0)}
			if _, _, err = shmsync.WaitV(entries[:], 0); err != nil { // ENOMEM, which may be temporary
				_, err = shmsync.Wait(wordPtr(s.Node.Word()), uint32(w), shmsync.Monotonic()+1e6)
			}
		} else {
			_, err = shmsync.Wait(wordPtr(s.Node.Word()), uint32(w), 0)
		}
		runtime.KeepAlive(c.word)
		switch {
		case err != nil:
			panic("shmsync: " + err.Error()) // EFAULT: the arena was unmapped under a waiter
		case c.word != nil && c.word.Load() != 0:
			return s.giveUp(Canceled)
		}
	}
	return Again
}

// parked waits on a channel. The granter that resolves the wait tells the poller, which sends on
// the channel.
func (s *WaitNode) parked(q *Queue, c *Cancel) Result {
	if !s.park(nil) {
		return Again
	}
	var done <-chan struct{}
	if c.ctx != nil {
		done = c.ctx.Done()
	}
	for {
		select {
		case <-s.wake:
			switch {
			case s.Resolved():
				return Again
			case q.Closing():
				return s.giveUp(Closed)
			}
		case <-done:
			return s.giveUp(Canceled)
		}
	}
}

// park moves the node to the state parked. It returns false if the wait is already resolved.
func (s *WaitNode) park(notify func()) bool {
	b := s.nodePool
	b.lot.mu.Lock()
	b.lot.startPoller()
	b.lot.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	w := s.Node.Load()
	s.notify = notify // set in any case: it is also called if a peer has overwritten the state and this process leaves
	s.Node.SetParkedSince(cmp.Or(s.since, shmsync.Monotonic()))
	if w.State() != arenakernel.NodeQueued || !s.Node.Swap(w, w.With(arenakernel.NodeParked)) {
		s.told = true
		return false
	}
	s.owed = true
	crashpoint.Hit("park.waitnode.parked")
	return true
}

// Watch makes notify run once: when the wait is resolved, or when this process leaves the arena.
// notify must be quick, and may run before Watch returns.
func (s *WaitNode) Watch(q *Queue, notify func()) {
	s.nodePool.lot.checkPeriodically(q)
	s.in.Store(q)
	if !s.park(notify) {
		notify()
	}
}

// giveUp ends a Sleep with the result why, unless the wait is resolved.
func (s *WaitNode) giveUp(why Result) Result {
	if s.Withdrawer != nil {
		if s.Withdrawer.Withdraw(s) {
			return why
		}
		return Again
	}
	if s.Abandon() {
		return why
	}
	return Again
}

// Abandon ends a wait that is not resolved. It returns false if the wait is resolved. If it returns
// true, the caller must not use the wait node any more: the participant that takes the node off its
// queue frees the node.
func (s *WaitNode) Abandon() bool {
	b := s.nodePool
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		w := s.Node.Load()
		if w.State() == arenakernel.NodeResolved {
			return false
		}
		// sync(waitnode.abandon): release
		if s.Node.Swap(w, w.With(arenakernel.NodeLeft)) {
			break
		}
	}
	crashpoint.Hit("park.waitnode.given_up")
	b.forget(s)
	return true
}

// Resolved reports whether the wait is over.
func (s *WaitNode) Resolved() bool {
	// sync(waitnode.resolve): acquire
	return s.Node.State() == arenakernel.NodeResolved
}

// Leave returns the wait node to the pool after its wait was resolved.
func (s *WaitNode) Leave() {
	b := s.nodePool
	// Usually the node is off its queue soon, because its granter takes it off a few instructions
	// after it has resolved the wait.
	for range leavePauses {
		if s.Node.Stamp().Load() == 0 {
			break
		}
		pause()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.taken = false
	if !s.owed {
		b.keep(s)
	}
}

// Withdrawn returns to the pool a wait node whose wait was taken off its queue without being
// resolved. No granter resolves it any more.
func (s *WaitNode) Withdrawn() {
	b := s.nodePool
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		// The loop ends, because only a peer that overwrites the node changes the word.
		if w := s.Node.Load(); s.Node.Swap(w, w.Kept()) {
			break
		}
	}
	s.owed = false
	b.put(s)
}

// Forget discards a wait node that a queue may still name, because a peer has overwritten the
// queue. No wait uses the node again before this process has left the arena.
func (s *WaitNode) Forget() {
	s.nodePool.mu.Lock()
	defer s.nodePool.mu.Unlock()
	for {
		// The loop ends, because the word is changed only by a granter, once, or by a peer that
		// overwrites it.
		w := s.Node.Load()
		if w.State() == arenakernel.NodeResolved || s.Node.Swap(w, w.With(arenakernel.NodeLeft)) {
			break // the deletion of the object frees the node
		}
	}
	s.owed = false
	s.nodePool.forget(s)
}

// Return returns to the pool a wait node that was taken and never queued.
func (s *WaitNode) Return() {
	s.nodePool.mu.Lock()
	defer s.nodePool.mu.Unlock()
	s.nodePool.put(s)
}
