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

// monitor is what all primitives with a queue of waiters have in common: a queue lock that guards
// their state, a redo log that makes a change of several words one step, queues of wait nodes, and
// the way to wait in them.
//
// The queue lock is a Mutex, so it survives the death of its holder. The next holder carries out
// the redo log, rebuilds the queues from the nodes, and goes on. That is possible because the state
// and the nodes are the truth; the queues are only an index of the nodes.
//
// A wait ends by a compare-and-swap on its node. Either the holder of the queue lock makes the node
// resolved, or the owner of the wait gives up and makes the node left; the owner does not need the
// queue lock for that. A grant takes these steps: take the wait off the queue, resolve it, commit
// the change of state, clear the node's stamp. If the granter dies between these steps, a resolved
// node with a stamp remains. The next holder of the queue lock then commits the change of state for
// that node, exactly once.
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
	// mine reports whether a wait belongs to this monitor, if the object has several monitors. It
	// is nil if this monitor is the only one.
	mine    func(wait) bool
	opening *opening
	// without is the ID of this participant while the participant leaves, and 0 before. See
	// current.
	without arenakernel.ParticipantID

	broken atomic.Bool   // a link was wrong, so the queues must be rebuilt before the queue lock is released
	deaths atomic.Uint32 // the number of deaths at the last reap
	// unreaped is set if a dead participant was not gone at the last reap. That reap has left what
	// the participant had.
	unreaped   atomic.Bool
	cleaningUp atomic.Bool   // a goroutine is waiting to reap
	checks     atomic.Uint32 // how often check was called
}

// rules is how a primitive defines the behaviour of its monitor. The monitor calls the methods
// with the queue lock held.
type rules interface {
	// resolve ends the waits that the state allows to end.
	resolve(b *wakes)
	// account makes the change of state for a resolved wait, through monitor.account. The monitor
	// also calls it for a resolved wait whose granter died before the change.
	account(w wait)
	// clear empties the queues. requeue puts a wait at the end of its queue. To rebuild the queues,
	// the monitor calls clear, and then requeue for each wait in the order of arrival.
	clear()
	requeue(w wait)
	// detach takes a wait off its queue.
	detach(w wait)
	// each calls f for the waits in the queues until f returns false. f may take the wait off its
	// queue.
	each(f func(w wait) bool)
	// reap takes back the parts of the state that dead participants have. A part that gives access
	// to data is taken back only when its participant is gone.
	reap(dead func(arenakernel.ParticipantID) bool)
	// holders calls f for each participant that has something for which others wait. The caller
	// does not hold the queue lock.
	holders(f func(arenakernel.ParticipantID))
}

// enterAtOnce takes the queue lock if one instruction is enough. The compiler inlines it.
func (m *monitor) enterAtOnce() bool {
	return !race.Enabled && atomic.CompareAndSwapUint32(m.queueLock.own, 0, atomic.LoadUint32(&m.queueLock.self))
}

// enter takes the queue lock. ctx may be nil. The errors are those of a call that cannot begin:
// ctx.Err(), ErrCorrupt, ErrClosed.
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
		// ctx has ended. But if the queue lock is free by now, the call goes on: what is possible
		// at once takes precedence.
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

// fail makes an error of an operation on the object.
func (m *monitor) fail(op string, err error, who *shmsync.Identity, detail string) error {
	return failed(m.a, m.object, op, err, who, detail)
}

// begin makes Close wait for this call until the call has called finish. So the words stay in place
// for the call before, during and after its wait. Every waiter in the monitor is in such a call,
// except a [Pending] and a watch: their wait nodes keep the handle open.
func (m *monitor) begin() error {
	if !m.queueLock.queue.EnterNode() {
		return m.closed()
	}
	return nil
}

func (m *monitor) finish() { m.queueLock.queue.Exit() }

// leaveStay ends the stay that opening.stayIfOpen has begun. The Close of the handle does not wait
// for a stay.
func (m *monitor) leaveStay() {
	q := m.queueLock.queue
	if q.EnterLasting() {
		defer q.ExitLasting()
		m.opening.leave()
	}
}

// waitNode returns a wait node for a wait of this process. If the parameter has is not nil,
// waitNode returns that node. The caller holds the queue lock. If the result again is true,
// waitNode has released the queue lock for a moment. The caller then has to check the state once
// more, and passes the wait node as the parameter has in its next call. If waitNode returns an
// error, it has released the queue lock.
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

// join queues the wait node s, with the wanted word and the class that the primitive has chosen.
// The caller has called begin and holds the queue lock. After join, it releases the queue lock and
// calls await.
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

// await waits until the wait in s is resolved. The caller has queued it by join. An error means that
// the wait has not been resolved and never will be.
func (m *monitor) await(ctx context.Context, s *park.WaitNode) (outcome, error) {
	if err := m.sleep(ctx, s); err != nil {
		return 0, err
	}
	return m.collect(s), nil
}

// sleep is await, except that the caller collects the wait node. After an error the caller must not
// use the wait node any more.
func (m *monitor) sleep(ctx context.Context, s *park.WaitNode) error {
	w := waitOf(s)
	q := m.queueLock.queue
	if s.OnLine() {
		return m.sleepOnLine(ctx, s, w)
	}
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

// sleepOnLine does what the method sleep does, for a wait that is on a line of waits of this
// process; see park.Turns. The first wait of the line has the turn: its goroutine polls the node and
// then sleeps. If this wait is granted, the next wait of the line gets the turn when the hold ends.
func (m *monitor) sleepOnLine(ctx context.Context, s *park.WaitNode, w abandoned) error {
	granted := false
	defer func() { s.LeaveLine(granted) }()
	c := park.CancelBy(ctx)
	r, awake := s.SleepInTurn(m.queueLock.queue, m.tuning(), &c)
	c.Stop()
	if awake {
		m.counts.add(countSpin)
	} else {
		m.counts.add(countSleep)
	}
	err := m.slept(r, w, &c)
	granted = err == nil && outcome(s.Node.Extra().Load()).result() == lockGranted
	return err
}

// slept returns the error of a sleep that ended with r. It cleans up if the wait was abandoned.
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

// end takes a wait off its queue and resolves it, and reports whether it did: the owner may have
// given up instead. If it did, the caller calls account with the change of state.
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
			m.a.BeginTell() // the wake of the owner ends this section, by EndTell
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
				m.tuning().NoteCPU() // the owner may still spin and use it; for a sleeping owner, the wake stores it
			}
			b.add(w, n.State(), owner)
			return true
		}
	}
}

// account commits the change of state for a resolved wait, and frees the wait's node. c may be nil.
func (m *monitor) account(w wait, c *change) {
	if c != nil && c.n > 0 {
		c.set(m.words.accounted, w.Stamp().Load())
		m.commit(c)
		crashpoint.Hit("monitor.account.committed")
	}
	m.releaseNode(w)
}

// releaseNode clears the stamp of a node after its wait was taken off the queue. The wait is over
// or has no owner any more. releaseNode frees the node unless the owner of the node does that.
func (m *monitor) releaseNode(w wait) {
	n, owner := w.Load(), w.Owner()
	// The node gets this process as its owner before it is off the queue. If this process dies in
	// between, its reaper frees the node.
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
		// The owner kept the node, used it in another queue, and died. The kind of the object with
		// that queue frees the node.
	}
}

// ended reports whether a participant that is not current is gone, so that others may get its data.
// If it is not gone, the next reap checks again.
func (m *monitor) ended(n arenakernel.ParticipantID) bool {
	if !m.a.Gone(n) {
		m.unreaped.Store(true)
		return false
	}
	return true
}

// awaitGone waits until the dead participant n is gone, or until the function names returns false.
// That function reports whether the word still names n. The caller must not hold the queue lock.
func (m *monitor) awaitGone(ctx context.Context, n arenakernel.ParticipantID, names func() bool) error {
	if err := awaitGone(ctx, m.a, m.queueLock.queue, n, names); err != errClosing {
		return err
	}
	return m.closed()
}

// current reports whether a participant is alive. While this participant leaves the arena, it does
// not count as alive here.
func (m *monitor) current(n arenakernel.ParticipantID) bool { return n != m.without && m.a.Current(n) }

// queued reports whether the owner of a node on a queue still waits.
func queued(n arenakernel.NodeWord) bool {
	switch n.State() {
	case arenakernel.NodeQueued, arenakernel.NodeAsleep, arenakernel.NodeParked:
		return true
	}
	return false
}

// waiting reports whether the owner of a wait is alive and still waits. It checks for a death that
// has not been noticed yet. If a dead participant were granted something, the grant would come back
// only when that participant is reaped.
func (m *monitor) waiting(w wait) bool {
	owner := w.Owner()
	return queued(w.Load()) && m.current(owner) && !m.a.Dead(owner)
}
