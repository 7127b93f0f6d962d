package prims

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("monitor.queue.stamped")
	_ = crashpoint.Register("monitor.queue.linked")
	_ = crashpoint.Register("monitor.resolve.resolved")
	_ = crashpoint.Register("monitor.account.committed")
	_ = crashpoint.Register("monitor.released")
	_ = crashpoint.Register("monitor.leave.before_wake")
	_ = crashpoint.Register("monitor.await.resolved")
	_ = crashpoint.Register("monitor.await.given_up")
)

// monitor is the machinery that all primitives with a queue of waiters share. It has a queue lock that guards the
// state of the primitive, and queues of wait nodes, each the record of one wait. A redo log makes a change of
// several words take effect as a whole.
//
// The queue lock is a Mutex, so it survives the death of its holder. The next holder carries out the redo log,
// rebuilds the queues from the wait nodes, and goes on. Nothing is lost, because the queues are only an index of
// the nodes.
//
// A wait ends by a compare-and-swap on its node. Either the holder of the queue lock marks the node as resolved, or
// the owner of the wait gives up and marks the node as left. The owner does not need the queue lock for that. To
// grant a wait, the holder takes the wait off the queue, resolves it, commits the change of state, and clears the
// stamp of the node, that is, the number of its arrival. If the holder dies between these steps, a resolved node
// with a stamp remains. The next holder of the queue lock then commits the change of state for that node, exactly
// once.
//
// The scheme is that of a monitor after Hoare and Brinch Hansen, with the redo log of a database.
type monitor struct {
	queueLock *Mutex
	a         *arenakernel.Arena
	object    arenakernel.Object
	words     monitorPlaces
	at        arenakernel.Offset // offset of the queue lock
	rules     rules
	key       race.Key
	counts    *countWords // the counters of the object; nil if the arena does not count
	opening   *opening
	// without is the ID of this participant while it leaves the arena, and 0 before. The method current treats that
	// participant as dead.
	without arenakernel.ParticipantID

	broken atomic.Bool   // a link was wrong, so the queues must be rebuilt before the queue lock is released
	deaths atomic.Uint32 // the number of deaths at the last call of rules.reap
	// unreaped is set if the last call of rules.reap left what a dead participant had, because a system call of
	// that participant might still have stored data.
	unreaped   atomic.Bool
	cleaningUp atomic.Bool   // a goroutine waits for the queue lock, to recover what dead participants left
	checks     atomic.Uint32 // how often the method check was called
}

// rules is how a primitive defines the behaviour of its monitor. The monitor calls the methods
// with the queue lock held.
type rules interface {
	// resolve ends the waits that the state allows to end.
	resolve(b *wakes)
	// account makes the change of state for a wait that was resolved, by a call of monitor.account. The monitor
	// also calls it for a resolved wait whose granter died before the change.
	account(w wait)
	// clear empties the queues. The monitor calls it to rebuild the queues. Afterwards it calls requeue for each
	// wait, in the order of arrival.
	clear()
	requeue(w wait)
	// detach takes a wait off its queue.
	detach(w wait)
	// each calls the function f for the waits in the queues until f returns false. f may take the wait off its
	// queue.
	each(f func(w wait) bool)
	// reap takes back what dead participants hold. A hold that gives access to user data is taken back only when no
	// system call of its participant can store any more.
	reap(dead func(arenakernel.ParticipantID) bool)
	// holders calls f for each participant that holds something for which others wait. The caller does not hold the
	// queue lock.
	holders(f func(arenakernel.ParticipantID))
}

// enterAtOnce tries to take the queue lock with one instruction, and reports whether it did. The compiler inlines
// it.
func (m *monitor) enterAtOnce() bool {
	return !race.Enabled && atomic.CompareAndSwapUint32(m.queueLock.own, 0, atomic.LoadUint32(&m.queueLock.self))
}

// enter takes the queue lock. ctx may be nil. If the error is not nil, the caller does not have the queue lock, and
// the error is ctx.Err(), ErrCorrupt or ErrClosed.
func (m *monitor) enter(ctx context.Context) error {
	if m.enterAtOnce() {
		return nil
	}
	return m.enterSlow(ctx)
}

func (m *monitor) enterSlow(ctx context.Context) error {
	if m.queueLock.tryLockSlow() {
		return nil
	}
	if m.opening.ended.Load() {
		return m.closed()
	}
	if ctx != nil && ctx.Err() != nil {
		// ctx has ended. But if the queue lock is free by now, the call takes it: whatever is possible without
		// waiting succeeds even with an ended context.
		if m.tryEnter() {
			return nil
		}
	}
	err := m.queueLock.LockContext(ctx)
	if err != nil && !errors.Is(err, shmsync.ErrClosed) && (ctx == nil || err != ctx.Err()) {
		return m.fail("monitor.enter", shmsync.ErrCorrupt, nil, err.Error())
	}
	return err
}

// leave releases the queue lock and then wakes the owners of the waits that have ended.
func (m *monitor) leave(b *wakes) {
	if m.broken.Load() {
		m.rebuild()
	}
	m.owe(b)
	m.queueLock.Unlock()
	m.wake(b)
	m.queueLock.yield()
}

// fail returns an error for the operation op on the object.
func (m *monitor) fail(op string, err error, who *shmsync.Identity, detail string) error {
	return failed(m.a, m.object, op, err, who, detail)
}

// begin makes the Close of the handle wait for this call until the call has called finish. So the shared words stay
// valid for the call before, during and after its wait. Every waiter in the monitor is in such a call, except a
// [Pending] and a watch. For those, the wait nodes keep the handle open.
func (m *monitor) begin() error {
	if !m.queueLock.queue.EnterNode() {
		return m.closed()
	}
	return nil
}

func (m *monitor) finish() { m.queueLock.queue.Exit() }

// waitNode returns a wait node for a wait of this process. The caller holds the queue lock. If the parameter has is
// not nil, waitNode returns the node in it. If the result again is true, waitNode has released the queue lock for a
// moment. The caller then checks the state once more, and passes the wait node as the parameter has in its next
// call. If waitNode returns an error, it has released the queue lock.
func (m *monitor) waitNode(ctx context.Context, has *park.WaitNode) (s *park.WaitNode, again bool, err error) {
	if has != nil {
		return has, false, nil
	}
	if s := m.queueLock.queue.CachedWaitNode(); s != nil {
		return s, false, nil
	}
	m.leave(nil)
	if s, err = m.queueLock.queue.TakeNode(); err != nil {
		return nil, false, err
	}
	if err = m.enter(ctx); err != nil {
		s.Return()
		return nil, false, err
	}
	return s, true, nil
}

// join puts the wait node s in the queue. The primitive has chosen the arguments wanted and class. The caller has
// called begin and holds the queue lock. After join, it releases the queue lock and calls await.
func (m *monitor) join(s *park.WaitNode, class uint16, wanted uint64) {
	n := s.Node
	n.SetObject(m.object.Offset)
	n.Wanted().Store(wanted)
	n.Extra().Store(makeOutcome(class, 0, 0))
	n.Next().Store(0)
	n.SetParkedSince(0)
	n.Swap(n.Load(), n.Load().With(arenakernel.NodeQueued))
	stamp := m.words.arrivals.Load() + 1
	storeWord(m.words.arrivals, stamp)
	n.Stamp().Store(stamp)
	crashpoint.Hit("monitor.queue.stamped")
	m.rules.requeue(wait{off: s.Off, Node: n})
	crashpoint.Hit("monitor.queue.linked")
	m.counts.add(countContended)
}

// sleep waits until the wait in s is resolved. The caller has put s in the queue by the method join, and has to call
// collect for the wait node. After an error, which means that the wait is not resolved and never will be, the caller
// must not use the wait node any more.
func (m *monitor) sleep(ctx context.Context, s *park.WaitNode) error {
	w := waitOf(s)
	q := m.queueLock.queue
	// If other goroutines of this process sleep already, a spinning goroutine would only keep them
	// from running.
	if q.Seated() == 0 && m.tuning().Spin(s.Resolved) {
		m.counts.add(countSpin)
		return nil
	}
	m.counts.add(countSleep)
	c := park.CancelBy(ctx)
	r := s.Sleep(q, &c)
	c.Stop()
	return m.slept(r, w, &c)
}

// slept returns the error for a sleep that ended with the result r. If the wait was given up, slept takes it off
// its queue.
func (m *monitor) slept(r park.Result, w abandoned, c *park.Cancel) error {
	switch r {
	case park.Canceled:
		crashpoint.Hit("monitor.await.given_up")
		m.cleanUp(w)
		return c.Err()
	case park.Closed:
		m.cleanUp(w)
		return m.closed()
	}
	return nil
}

// collect reads the result of a resolved wait, and gives the wait node back.
func (m *monitor) collect(s *park.WaitNode) outcome {
	crashpoint.Hit("monitor.await.resolved")
	f := outcome(s.Node.Extra().Load())
	race.Acquire(m.key)
	m.counts.took()
	s.Leave()
	return f
}

func (m *monitor) closed() error {
	return m.fail("monitor.wait", shmsync.ErrClosed, nil, closedHandle)
}

func (m *monitor) tuning() park.Tuning {
	w := m.words
	return park.Tuning{Budget: w.spin, Pays: w.pays, LastCPU: w.lastCPU, Slot: m.a.Self().Slot()}
}

// end takes a wait off its queue and resolves it. It reports whether it resolved the wait; if not, the owner had
// given up. If it did, the caller then calls account, with the change of state that belongs to the wait.
func (m *monitor) end(b *wakes, w wait, result, aux uint32) bool {
	m.rules.detach(w)
	w.Extra().Store(makeOutcome(w.class(), result, aux))
	race.ReleaseMerge(m.key)
	telling, owner := false, w.Owner()
	for {
		// Each iteration means that the owner has changed the node's state. It can do so three
		// times at most.
		n := w.Load()
		if !queued(n) {
			if telling {
				m.a.EndTell()
			}
			m.releaseNode(w)
			return false
		}
		if !telling && n.State() == arenakernel.NodeParked {
			m.a.BeginTell() // this section ends by EndTell, after the wake of the owner
			telling = true
		}
		// sync(waitnode.resolve): release
		// lin: the wait ends here.
		if w.Swap(n, n.With(arenakernel.NodeResolved)) {
			if telling && n.State() != arenakernel.NodeParked {
				m.a.EndTell() // a peer has overwritten the state, so there will be no wake to end the section
			}
			crashpoint.Hit("monitor.resolve.resolved")
			if n.State() == arenakernel.NodeQueued && owner != m.a.Self() {
				m.tuning().NoteCPU() // a hint for an owner that spins; for a sleeping owner, the wake stores it
			}
			b.add(w, n.State(), owner)
			return true
		}
	}
}

// account commits the change of state c for a resolved wait, and frees the wait's node. c may be nil.
func (m *monitor) account(w wait, c *change) {
	if c != nil && c.n > 0 {
		c.set(m.words.accounted, w.Stamp().Load())
		m.commit(c)
		crashpoint.Hit("monitor.account.committed")
	}
	m.releaseNode(w)
}

// releaseNode clears the stamp of a node after its wait was taken off the queue. The wait is over, or its owner is
// dead or has given up. releaseNode frees the node, unless the owner of the node does that.
func (m *monitor) releaseNode(w wait) {
	n, owner := w.Load(), w.Owner()
	// This process becomes the owner of the node before the node is off the queue. If this process dies in between,
	// the process that recovers what it left also frees the node.
	// sync(waitnode.abandon): acquire
	ours := n.State() == arenakernel.NodeLeft && m.a.TakeNode(w.off, owner)
	// sync(waitnode.unqueue): release
	w.Stamp().Store(0)
	crashpoint.Hit("monitor.released")
	switch {
	case ours:
		m.a.FreeNode(w.off)
	case m.current(owner):
		// sync(waitnode.abandon): acquire
		m.a.ReclaimNode(w.off, n)
	case w.Load().Generation() == n.Generation():
		m.a.ReapNode(w.off, owner, n)
	default:
		// The owner kept the node, used it in another queue, and died. The code for the object with that queue
		// frees the node.
	}
}

// ended reports whether no system call of the dead participant n can store any more, so that others may get its
// data. If the result is false, ended makes sure that the next check calls rules.reap again.
func (m *monitor) ended(n arenakernel.ParticipantID) bool {
	if !m.a.Gone(n) {
		m.unreaped.Store(true)
		return false
	}
	return true
}

// current reports whether a participant is alive. While this participant leaves the arena, current treats it as
// dead.
func (m *monitor) current(n arenakernel.ParticipantID) bool { return n != m.without && m.a.Current(n) }

// queued reports whether the owner of a node on a queue still waits.
func queued(n arenakernel.NodeWord) bool {
	switch n.State() {
	case arenakernel.NodeQueued, arenakernel.NodeAsleep, arenakernel.NodeParked:
		return true
	}
	return false
}

// waiting reports whether the owner of a wait is alive and still waits. It also detects a death that no process has
// noticed yet. Otherwise a dead participant might be granted something, which would stay unavailable until a
// process takes it back.
func (m *monitor) waiting(w wait) bool {
	owner := w.Owner()
	return queued(w.Load()) && m.current(owner) && !m.a.Dead(owner)
}
