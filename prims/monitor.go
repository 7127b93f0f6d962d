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

// monitor is what primitives with a queue of waiters share: a queue lock that guards their
// state, a redo log that makes a change of several words one step, queues of wait nodes,
// and the way to wait in them.
//
// The queue lock is a Mutex, so that it survives its holder: the next holder after a death
// carries the redo log out, rebuilds the queues from the nodes, and goes on. The state
// itself and the nodes are the truth; the queues are an index over them.
//
// A wait ends by a compare-and-swap on its node: to resolved by the holder of the queue
// lock, or to idle by its owner, which gives up and need not have the queue lock. The order
// of a grant is: off the queue, resolve, commit the change of state, drop the node's stamp.
// A death in between leaves a resolved node with a stamp. The next holder of the queue lock
// accounts for it, once.
//
// The scheme is that of a monitor after Hoare and Brinch Hansen, with the redo log
// of a database.
type monitor struct {
	queueLock *Mutex
	a         *arenakernel.Arena
	object    arenakernel.Object
	words     *monitorWords
	at        arenakernel.Offset // of words
	rules     rules
	key       race.Key
	counts    *countWords // of the object; nil where nothing is counted
	// mine tells the waits of this monitor from those of others in the same object;
	// nil if it is the only one.
	mine    func(wait) bool
	opening *opening
	// without is this participant while it leaves, or 0.
	without arenakernel.ParticipantID

	broken atomic.Bool   // a link was wrong: the queues are rebuilt before the queue lock is left
	deaths atomic.Uint32 // how many reaps the last reap knew of
	// unreaped says that the last reap has left what a dead one had that is not gone.
	unreaped   atomic.Bool
	cleaningUp atomic.Bool   // a goroutine is on its way to reap
	checks     atomic.Uint32 // how often look was called
}

// rules is what a primitive tells its monitor. They are called with the queue lock held.
type rules interface {
	// resolve resolves those waits that the state allows to end.
	resolve(b *wakes)
	// account makes the change of state that a resolved wait stands for, through
	// monitor.account. It is also called for waits whose granter died before it could do
	// that.
	account(w wait)
	// clear empties the queues; requeue puts a wait at the end of the one where
	// it belongs. Together they rebuild the queues, in order of arrival.
	clear()
	requeue(w wait)
	// detach takes a wait off its queue.
	detach(w wait)
	// each calls f for the waits in the queues until it returns false. f may take
	// the wait off.
	each(f func(w wait) bool)
	// reap takes back the parts of the state that dead participants have. A part that gives
	// access to data is taken back only from a participant that is gone.
	reap(dead func(arenakernel.ParticipantID) bool)
	// holders calls f for the participants on whose life others wait. It is called
	// without the queue lock.
	holders(f func(arenakernel.ParticipantID))
}

// buildMonitor makes this process's handle on the monitor at off in the body of o.
// A reaper's handle is bare: it cannot wait.
func buildMonitor(a *arenakernel.Arena, o arenakernel.Object, off arenakernel.Offset, r rules, bare bool) *monitor {
	m := &monitor{a: a, object: o, words: arenakernel.At[monitorWords](a, off), at: off, rules: r}
	m.deaths.Store(a.Deaths() - 1) // the first check reaps
	opt := &MutexOptions{Repair: m.replay}
	if bare {
		m.queueLock = buildBareMutex(a, o, off, opt)
	} else {
		m.queueLock = buildMutexAt(a, o, off, opt)
		m.queueLock.queue.ServeToTheEnd()
		m.queueLock.alsoCheck = m.check
	}
	m.queueLock.queueLock, m.queueLock.internal = true, true
	m.setOpening(m.queueLock.opening)
	m.key = m.queueLock.key
	m.counts = countsOf(a, &m.words.queueLock.counts)
	return m
}

// setOpening says which opening the monitor belongs to. The maker of an object with
// more parts says how those end.
func (m *monitor) setOpening(p *opening) {
	m.opening, m.queueLock.opening = p, p
	p.shut, p.end = m.queueLock.shut, m.queueLock.end
}

// enterAtOnce takes the queue lock if that takes one instruction. The compiler inlines it.
func (m *monitor) enterAtOnce() bool {
	return !race.Enabled && atomic.CompareAndSwapUint32(m.queueLock.own, 0, atomic.LoadUint32(&m.queueLock.self))
}

// leaveQuiet is leave for a caller that has let no waiter go.
func (m *monitor) leaveQuiet() {
	if m.broken.Load() {
		m.leave(nil)
		return
	}
	m.queueLock.Unlock()
	m.queueLock.yield()
}

// enter takes the queue lock. ctx may be nil. Its errors are those of a call that could
// not begin: ctx.Err(), ErrCorrupt, ErrClosed.
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
		// The caller may be able to go on by now: that beats the context.
		if m.tryEnter() {
			return nil
		}
	}
	err := m.queueLock.LockContext(ctx)
	if err != nil && !errors.Is(err, shmsync.ErrClosed) && (ctx == nil || err != ctx.Err()) {
		return &shmsync.Error{Op: "monitor.enter", Object: objectName(m.object), Err: shmsync.ErrCorrupt, Detail: err.Error()}
	}
	return err
}

// leave gives the queue lock back and then wakes those whose wait has ended.
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
	return &shmsync.Error{Op: op, Object: objectName(m.object), Err: err, Who: who, Detail: detail}
}

// begin counts a call that may wait. Until finish, Close waits for it, so that the words
// stay in place for what the call does before, in and after its wait. Each waiter in the
// monitor is in such a call, but for a [Pending] and a watch, which count themselves.
func (m *monitor) begin() error {
	if !m.queueLock.queue.EnterNode() {
		return m.closed()
	}
	return nil
}

func (m *monitor) finish() { m.queueLock.queue.Exit() }

// leaveStay ends a stay for which Close does not wait, and neither does the end of the arena.
func (m *monitor) leaveStay() {
	q := m.queueLock.queue
	if q.EnterLasting() {
		defer q.ExitLasting()
		m.opening.leave()
	}
}

// waitNode gives a wait node, with the queue lock held. If again is true, it had to unlock
// the queue lock for a moment: the caller looks at the state once more, and passes the wait
// node in. If it returns an error, it has unlocked the queue lock.
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

// join queues a wait node's node, with the queue lock held: wanted and class are what the
// primitive wants to find there. The caller leaves the queue lock and then awaits. It has
// counted by begin.
func (m *monitor) join(s *park.WaitNode, class uint16, wanted uint64) {
	n := s.Node
	n.SetObject(m.object.Offset)
	n.Wanted().Store(wanted)
	n.Extra().Store(makeOutcome(class, 0, 0))
	n.Next().Store(0)
	n.SetParkedSince(0)
	n.Swap(n.Load(), n.Load().With(arenakernel.NodeQueued))
	stamp := m.words.arrivals.Load() + 1
	storeWord(&m.words.arrivals, stamp)
	n.Stamp().Store(stamp)
	crashpoint.Hit("monitor.queue.stamped")
	m.rules.requeue(wait{off: s.Off, Node: n})
	crashpoint.Hit("monitor.queue.linked")
	m.counts.add(countContended)
}

// await waits until the wait of a wait node that has joined is resolved. An error means
// that it is not and never will be.
func (m *monitor) await(ctx context.Context, s *park.WaitNode) (outcome, error) {
	if err := m.sleep(ctx, s); err != nil {
		return 0, err
	}
	return m.collect(s), nil
}

// refuse ends a wait that nobody sleeps in and that comes when the handle is being closed. It
// gives its error, or nil if it has been resolved.
func (m *monitor) refuse(s *park.WaitNode) error {
	if s.Resolved() {
		return nil
	}
	w := waitOf(s)
	if !s.Abandon() {
		return nil
	}
	m.cleanUp(w)
	return m.closed()
}

// sleep is await that leaves the wait node, which the caller collects. After an error
// there is none.
func (m *monitor) sleep(ctx context.Context, s *park.WaitNode) error {
	w := waitOf(s)
	q := m.queueLock.queue
	if s.OnLine() {
		return m.sleepOnLine(ctx, s, w)
	}
	// Where others of this process sleep already it would only keep them from running.
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

// sleepOnLine is sleep for a wait that is on a line of this process. If it is granted, the
// end of the hold passes the turn on.
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

// slept gives the error of a sleep with that result, and cleans up after one.
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

// collect takes the result of a wait that was resolved, and gives the wait node back.
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
	return park.Tuning{Budget: &w.spin, Pays: &w.pays, LastCPU: &w.lastCPU, Slot: m.a.Self().Slot()}
}

// end takes a wait off its queue and resolves it, and reports whether it did: its
// owner may have given up. If so the caller calls account with the change of state.
func (m *monitor) end(b *wakes, w wait, result, aux uint32) bool {
	m.rules.detach(w)
	w.Extra().Store(makeOutcome(w.class(), result, aux))
	race.ReleaseMerge(m.key)
	telling, owner := false, w.Owner()
	for {
		// The loop ends: the owner moves the word three times at most.
		n := w.Load()
		if !queued(n) {
			if telling {
				m.a.EndTell()
			}
			m.releaseNode(w)
			return false
		}
		if !telling && n.State() == arenakernel.NodeParked {
			m.a.BeginTell() // it ends with the wake
			telling = true
		}
		// sync(waitnode.resolve): release
		// lin: the wait ends here.
		if w.Swap(n, n.With(arenakernel.NodeResolved)) {
			if telling && n.State() != arenakernel.NodeParked {
				m.a.EndTell() // a peer overwrote the state: nobody is to be told
			}
			crashpoint.Hit("monitor.resolve.resolved")
			if n.State() == arenakernel.NodeQueued && owner != m.a.Self() {
				m.tuning().NoteCPU() // it spins; the wakes note the CPU for those that sleep
			}
			b.add(w, n.State(), owner)
			return true
		}
	}
}

// account commits the change of state that a resolved wait stands for, and gives
// its node free. c may be nil.
func (m *monitor) account(w wait, c *change) {
	if c != nil && c.n > 0 {
		c.set(&m.words.accounted, w.Stamp().Load())
		m.commit(c)
		crashpoint.Hit("monitor.account.committed")
	}
	m.releaseNode(w)
}

// drop takes a wait that is over, or that nobody is there for, out of the truth,
// after it was taken off its queue, and gives its node back unless the owner does.
func (m *monitor) releaseNode(w wait) {
	n, owner := w.Load(), w.Owner()
	// It is ours before it is off: if we die in between it goes with us.
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
		// It kept the node and died in another queue, whose kind does this.
	}
}

// ended reports whether a participant that is not current is gone, so that what it had
// of the data may be given to others. If it is not, the next reap asks again.
func (m *monitor) ended(n arenakernel.ParticipantID) bool {
	if !m.a.Gone(n) {
		m.unreaped.Store(true)
		return false
	}
	return true
}

// awaitGone waits until n, which is dead, is gone. The queue lock is not held.
func (m *monitor) awaitGone(ctx context.Context, n arenakernel.ParticipantID) error {
	if err := awaitGone(ctx, m.a, m.queueLock.queue, n); err != errClosing {
		return err
	}
	return m.closed()
}

// awaitAllGone waits until all dead participants are gone. The queue lock is not held.
func (m *monitor) awaitAllGone() error {
	if err := awaitAllGone(m.a, m.queueLock.queue); err != errClosing {
		return err
	}
	return m.closed()
}

// current reports whether a participant is there, as far as this call goes.
func (m *monitor) current(n arenakernel.ParticipantID) bool { return n != m.without && m.a.Current(n) }

// queued reports whether the owner of a node on a queue still waits.
func queued(n arenakernel.NodeWord) bool {
	switch n.State() {
	case arenakernel.NodeQueued, arenakernel.NodeAsleep, arenakernel.NodeParked:
		return true
	}
	return false
}

// waiting reports whether the owner of a wait is there for it. It looks for marks of death
// itself: a grant to a dead participant comes back only with its reap.
func (m *monitor) waiting(w wait) bool {
	owner := w.Owner()
	return queued(w.Load()) && m.current(owner) && !m.a.Dead(owner)
}
