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
)

// A WaitNode is this process's part of a wait node, a record in the arena by which a goroutine waits in a queue of
// an object. The owner puts the node on the queue, and a granter, which may be in another process, resolves the
// wait. One goroutine waits in the node. The granter changes the word of the node by a compare-and-swap and calls
// Tell; see arenakernel.NodeWord.
//
// A WaitNode belongs to one wait at a time. From TakeNode until Leave, Withdrawn or Forget, no other goroutine uses it.
type WaitNode struct {
	Node *arenakernel.Node
	Off  arenakernel.Offset

	nodePool *nodePool
	in       atomic.Pointer[Queue] // the queue of the handle through which a goroutine waits in this node
	wake     chan struct{}         // capacity 1

	// NextTag and ExtraTag are for queues whose links are recorded words. At the end of each wait, the owner stores
	// in them the tags of Node.Next and Node.Extra, and the next wait continues from these tags. The tags of the first
	// wait are random. Only the owner uses these fields.
	NextTag, ExtraTag uint32
	// Withdrawer takes the wait off its queue when Sleep gives up. Its method Withdraw returns false if the wait is
	// already resolved. The owner sets the field before it calls Sleep, and only the owner uses it.
	Withdrawer interface{ Withdraw(s *WaitNode) bool }
	// Found is the state in which Withdraw has found the wait. The Withdrawer sets it, and only the owner uses it.
	Found uint8

	suspect       atomic.Bool // a periodic check has found the queue damaged, so the owner has to examine it, too
	since         int64       // only used by the owner; when the wait for the turn began, CLOCK_MONOTONIC ns, or 0
	turns         *Turns      // only used by the owner; nil if the wait is on no line
	line          *turnLine   // only used by the owner; nil if the wait is on no line
	turn          atomic.Bool // the wait has the turn of its line; set under turns.mu
	ahead, behind *WaitNode   // guarded by: turns.mu

	// guarded by: nodePool.mu

	notify func() // called when the wait is over, instead of a send on wake
	told   bool   // notify was called
	taken  bool   // a wait uses the node
	owed   bool   // the node was parked, and has not come off the ready stack since
	index  int    // in nodePool.used, if the node is taken or owed
}

// Sleep waits until the wait is resolved, the context of c ends, the handle is closed or the queue is found damaged. The
// node is on a queue, in state queued. If Sleep returns Canceled, Closed or Torn, the Withdrawer has given the node back,
// so the caller must not use the node any more.
//
// q is the Queue of the object's handle. The caller has called Enter of q.
func (s *WaitNode) Sleep(q *Queue, c *Cancel) Result {
	h := s.nodePool.lot
	h.checkPeriodically(q)
	s.in.Store(q)
	if q.Closing() {
		return s.giveUp(Closed)
	}
	defer q.seated.Add(-1)
	if q.seated.Add(1) <= q.lot.procs && (c.ctx == nil || shmsync.FeatureWaitV.Have()) {
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

// direct sleeps in the kernel, on the current thread.
func (s *WaitNode) direct(q *Queue, c *Cancel) Result {
	c.arm()
	w := s.Node.Load()
	if w.State() == arenakernel.NodeQueued && s.Node.Swap(w, w.With(arenakernel.NodeAsleep)) {
		w = w.With(arenakernel.NodeAsleep)
	}
	crashpoint.Hit("park.waitnode.asleep")
	for s.Node.Load() == w && w.State() == arenakernel.NodeAsleep {
		switch {
		case q.Closing():
			return s.giveUp(Closed)
		case s.Torn(q):
			return s.giveUp(Torn)
		}
		var err error
		if c.word != nil {
			entries := [2]shmsync.WaitVEntry{shmsync.NewWaitVEntry(wordPtr(s.Node.Word()), uint32(w)), shmsync.NewWaitVEntry(wordPtr(c.word), 0)}
			_, _, err = shmsync.WaitV(entries[:], 0)
			if err != nil && !shmsync.FeatureWaitV.Have() {
				return s.parked(q, c) // the context can end a parked wait without futex_waitv
			}
			if err != nil { // ENOMEM, which may be temporary
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

// parked waits on a channel. The granter that resolves the wait wakes the poller of this process,
// and the poller sends on the channel.
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
			case s.Torn(q):
				return s.giveUp(Torn)
			}
		case <-done:
			return s.giveUp(Canceled)
		}
	}
}

// park changes the state of the node to parked. It returns false if the wait is already resolved.
func (s *WaitNode) park(notify func()) bool {
	b := s.nodePool
	b.lot.mu.Lock()
	b.lot.startPoller()
	b.lot.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	w := s.Node.Load()
	s.notify = notify // set even if park fails: if a peer has overwritten the state, notify is called on Close
	s.Node.SetParkedSince(cmp.Or(s.since, shmsync.Monotonic()))
	if w.State() != arenakernel.NodeQueued && w.State() != arenakernel.NodeAsleep || !s.Node.Swap(w, w.With(arenakernel.NodeParked)) {
		s.told = true
		return false
	}
	s.owed = true
	crashpoint.Hit("park.waitnode.parked")
	return true
}

// Watch registers the function notify. It is called when the wait is resolved, when this process
// leaves the arena, and when a periodic check has found the queue damaged; see Torn. The function
// notify must not block, and may be called before Watch returns.
func (s *WaitNode) Watch(q *Queue, notify func()) {
	s.nodePool.lot.checkPeriodically(q)
	s.in.Store(q)
	if !s.park(notify) {
		notify()
	}
}

// giveUp takes the wait off its queue and returns the parameter why, the reason for which Sleep ends. If the wait is
// already resolved, giveUp returns Again instead.
func (s *WaitNode) giveUp(why Result) Result {
	if s.Withdrawer.Withdraw(s) {
		return why
	}
	return Again
}

// Torn reports whether a peer has damaged the queue of the wait, so that the wait may never end.
// The periodic checker cannot decide this for the owner: by the time it has examined the queue, the
// owner may use the wait node for its next wait, perhaps for an object without a Config.Torn. So
// the checker only sets the flag suspect, and Torn examines the queue if this flag is set. The
// caller is the owner.
func (s *WaitNode) Torn(q *Queue) bool {
	return s.suspect.Load() && s.suspect.Swap(false) && q.config.Torn != nil && q.config.Torn(s)
}

// Resolved reports whether a granter has ended the wait.
func (s *WaitNode) Resolved() bool {
	// sync(waitnode.resolve): acquire
	return s.Node.State() == arenakernel.NodeResolved
}

// Leave puts the wait node back into the pool after its wait was resolved. The record that has ended the wait has
// taken the node off its queue, and the owner has set the stamp of the node to 0.
func (s *WaitNode) Leave() {
	b := s.nodePool
	b.mu.Lock()
	defer b.mu.Unlock()
	s.taken = false
	if !s.owed {
		b.keep(s)
	}
}

// Withdrawn puts a wait node back into the pool. The node was never queued, or its wait was taken off
// the queue without being resolved, so no granter can resolve the wait any more.
func (s *WaitNode) Withdrawn() {
	b := s.nodePool
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		// Only a peer that overwrites the node can make the swap fail, so the loop ends.
		if w := s.Node.Load(); s.Node.Swap(w, w.Kept()) {
			break
		}
	}
	s.owed = false
	b.put(s)
}

// Forget discards a wait node to which a queue may still refer because a peer has overwritten the
// queue. No wait uses the node again until this process has left the arena.
func (s *WaitNode) Forget() {
	s.nodePool.mu.Lock()
	defer s.nodePool.mu.Unlock()
	for {
		// The swap fails only if a granter has resolved the wait, which happens once, or if a peer
		// has overwritten the word. So the loop ends.
		w := s.Node.Load()
		if w.State() == arenakernel.NodeResolved || s.Node.Swap(w, w.With(arenakernel.NodeLeft)) {
			break // the node is freed when the object is deleted
		}
	}
	s.owed = false
	s.nodePool.forget(s)
}
