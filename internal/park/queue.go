package park

import (
	"cmp"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// A Result says why a sleep ended.
type Result uint8

const (
	// Again means that the waiter was woken, or may have been, so the caller must check the state again.
	Again Result = iota
	// Canceled means that the context ended.
	Canceled
	// Closed means that this process leaves the arena, or that the handle of the waiter is being closed.
	Closed
	// Granted means that the method Grant chose this waiter.
	Granted
	Torn // the queue of the wait is damaged; see WaitNode.Torn
)

// A Queue is the part of a WaitList that belongs to one handle. Goroutines that use the handle wait in its Queue.
type Queue struct {
	WaitList
	config Config
	lot    *lot

	calls   atomic.Int32 // how many calls are between Enter and Exit
	lasting atomic.Int32 // how many calls are between EnterStay and ExitLasting
	shut    atomic.Bool  // the handle is being closed; see Refuse
	listed  atomic.Bool  // the periodic checker has this queue on its list

	// Close locks life. Other code locks life to use the object outside of all calls, because the object may no longer
	// exist after Close has returned. A goroutine locks life before mu, and never holds the life of two queues.
	life   sync.Mutex
	closed bool // guarded by: life

	mu    sync.Mutex
	first *waiter            // guarded by: mu; the parked goroutines in order of arrival
	last  *waiter            // guarded by: mu
	node  arenakernel.Offset // guarded by: mu; the poller node of this queue, or 0
	count int                // guarded by: mu; number of parked goroutines
	since int64              // guarded by: mu; when the queue last became non-empty, CLOCK_MONOTONIC ns

	asleep atomic.Int32 // how many waiters sleep in the kernel and have a known start time
	oldest atomic.Int64 // first.since; 0 if no waiter is parked or if that time is unknown
	seated atomic.Int32 // how many goroutines are in WaitNode.Sleep

	wasReady bool // guarded by: mu; the last check found the poller node ready
	wasCut   bool // guarded by: mu; at the last check, releasers could not find the poller node
}

// A waiter is a parked goroutine. Waiters are pooled. While the waiter is on the queue, the parked goroutine owns it.
// Afterwards it belongs to the goroutine that has taken it off the queue.
type waiter struct {
	prev, next *waiter
	queued     bool
	since      int64         // when the wait began, CLOCK_MONOTONIC ns, or 0
	others     int           // how many other waits this waiter represents; only tools use it
	granted    bool          // Grant chose this waiter; written by the goroutine that takes it off the queue
	wake       chan struct{} // capacity 1
	notify     func()        // called for a Watch, instead of a send on wake
	timer      *time.Timer   // nil until a timer is needed
}

// after returns a channel that receives a value after d nanoseconds, unless the timer me.timer is
// stopped.
func (me *waiter) after(d int64) <-chan time.Time {
	if me.timer == nil {
		me.timer = time.NewTimer(time.Duration(d))
	} else {
		me.timer.Reset(time.Duration(d))
	}
	return me.timer.C
}

var waiters = sync.Pool{New: func() any { return &waiter{wake: make(chan struct{}, 1)} }}

// Config contains the arguments of NewQueue.
type Config struct {
	WaitList WaitList
	Object   arenakernel.Object
	Word     arenakernel.Offset // the offset of WaitList.Word
	All      bool               // each wake is for all waiters, not for one waiter
	// Check examines the words of the object for a wake that a waiter should have got. It is called
	// ten times a second while a goroutine waits. Like Miss, it is called under the lock life of the queue. It may
	// wake waiters, also through this queue, with ReleaseAsOne, DeliverOneAsOne or DeliverAllAsOne: none of them
	// locks life. It must not close a queue.
	Check func()
	// Rest returns a word of the object and a value. While the word has this value, no wake is due, because every
	// process changes the word before a wake becomes due. So Check is then called only every few seconds. ok is false
	// if no such value is known. Rest is nil if the object has no such word.
	Rest func() (word *atomic.Uint64, value uint64, ok bool)
	Torn func(s *WaitNode) bool // see WaitNode.Torn; nil if the object has no queue of wait nodes
	// Miss is called if a wake for one waiter finds no waiter in this queue. It wakes another
	// waiter instead. Miss is nil if each wake is for all waiters.
	Miss func()
}

// NewQueue returns a new queue for a handle of an object. Each handle has its own queue.
func NewQueue(c Config) *Queue {
	q := &Queue{WaitList: c.WaitList, config: c, lot: lotOf(c.WaitList.Arena)}
	q.lot.add(q)
	return q
}

// A SleepSpec says what can wake a waiter in addition to the word of its WaitList.
type SleepSpec struct {
	Owner   arenakernel.ParticipantID // if not 0, wake up when this participant dies
	Other   *atomic.Uint32            // if not nil, a wake on this word wakes the waiter, too
	OtherIs uint32                    // the value that Other had when the waiter last checked it
	Bounded int64                     // if not 0, sleep at most this many nanoseconds
	Since   int64                     // when the wait began, CLOCK_MONOTONIC ns; 0 if not known
	Exact   bool                      // a sleep in the kernel ends when Bounded says, and not up to 50 us later
	Park    bool                      // park, so that Grant can find the waiter, and do not sleep in the kernel
}

// Sleep suspends a waiter that has announced itself in the word of the WaitList and has then found that it has to
// wait. Sleep returns at once if this word no longer has the value w. Otherwise it returns when the waiter is woken,
// or when the context of c ends.
func (q *Queue) Sleep(w uint32, b SleepSpec, c *Cancel) Result {
	h := q.lot
	h.checkPeriodically(q)
	if q.Closing() {
		return Closed
	}
	// Without the system call futex_waitv, a thread can sleep on only one word. Then a waiter that also waits for a
	// context or for the word b.Other parks, because the end of the context, or a hand-off, can always wake a parked
	// waiter.
	haveWaitV := shmsync.FeatureWaitV.Have()
	if !b.Park && (haveWaitV || c.ctx == nil && b.Other == nil) && q.mayBeDirect(b.Since) {
		defer q.asleep.Add(-1)
		if record, ok := q.Arena.Announce(q.config.Object.Offset, q.config.Word, uint64(w), DirectMax); ok {
			if since := cmp.Or(b.Since, c.date()); since != 0 {
				q.Arena.DateAnnounced(record, since)
			}
			r := q.direct(w, b, c, haveWaitV)
			c.slept, c.since = true, q.Arena.Retract(record)
			return r
		}
	}
	return q.park(w, b, c)
}

// direct sleeps in the kernel, on the current thread. If haveWaitV is false, it sleeps on the word of the WaitList
// alone.
func (q *Queue) direct(w uint32, b SleepSpec, c *Cancel, haveWaitV bool) Result {
	c.arm()
	var entries [4]shmsync.WaitVEntry
	entries[0] = shmsync.NewWaitVEntry(q.Raw, w)
	n := 1
	add := func(word *uint32, is uint32) {
		entries[n] = shmsync.NewWaitVEntry(word, is)
		n++
	}
	bits, near := q.nearSleepSpec(&b, c)
	if haveWaitV && !near {
		if b.Owner != 0 {
			if word, alive, ok := q.Arena.AliveWord(b.Owner); ok {
				if alive&shmsync.RobustOwnerDied != 0 {
					// The owner is dying, but its threads may still run, so check again soon; see
					// arenakernel.Arena.Dead.
					b.Bounded, b.Exact = q.Arena.NextLook(b.Owner), true
				} else {
					add(word, alive)
				}
			}
		}
		if b.Other != nil {
			add(wordPtr(b.Other), b.OtherIs)
		}
		if c.word != nil {
			add(wordPtr(c.word), 0)
		}
	}
	if q.Closing() {
		return Closed
	}
	if b.Exact {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer arenakernel.ExactSleeps()()
	}
	var deadline int64
	if b.Bounded != 0 {
		deadline = shmsync.Monotonic() + b.Bounded
	}
	var err error
	if n > 1 {
		_, _, err = shmsync.WaitV(entries[:n], deadline)
		// ENOMEM: the kernel has no memory for so many entries at the moment. If the kernel refuses the call for ever,
		// the next Sleep does not make it.
		if err != nil {
			n, deadline = 1, shmsync.Monotonic()+1e6
		}
	}
	if n == 1 {
		if !near {
			bits = shmsync.MatchAny
		}
		_, err = shmsync.WaitBitset(q.Raw, w, bits, deadline)
	}
	runtime.KeepAlive(c.word)
	switch {
	case err != nil:
		panic("shmsync: " + err.Error()) // EFAULT: the arena was unmapped under a waiter
	case q.Closing():
		return Closed
	case c.word != nil && c.word.Load() != 0:
		return Canceled
	}
	return Again
}

// park waits on a channel. The process that changes the word wakes the poller of this process,
// which sends on the channel.
func (q *Queue) park(w uint32, b SleepSpec, c *Cancel) Result {
	me := waiters.Get().(*waiter)
	me.since, me.granted = b.Since, false
	c.slept, c.since = true, cmp.Or(b.Since, c.since, shmsync.Monotonic())
	if !q.enlist(w, me, c.since) {
		waiters.Put(me)
		return Again
	}
	var done <-chan struct{}
	if c.ctx != nil {
		done = c.ctx.Done()
	}
	var late <-chan time.Time
	if b.Bounded != 0 {
		late = me.after(b.Bounded)
	}
	result := Again
	select {
	case <-me.wake:
	case <-late:
		q.delist(me)
	case <-done:
		result = Canceled
		q.delist(me)
	}
	if late != nil {
		me.timer.Stop() // after Stop, no value arrives on the channel of the timer
	}
	granted := me.granted
	waiters.Put(me)
	switch {
	case granted:
		return Granted // the grant came before the cancellation
	case q.Closing():
		return Closed
	}
	return result
}

// enlist marks the poller node as waiting, and then puts the waiter me on the queue. If the word does not have the
// value w after the node was marked, enlist returns false, and the waiter is not queued. The parameter since says
// when the wait began, and is only for tools.
func (q *Queue) enlist(w uint32, me *waiter, since int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.needNode()
	q.setWaiting()
	if q.Word.Load() != w || q.Closing() {
		q.setIdle()
		return false
	}
	q.link(me)
	if q.count == 0 {
		q.since = since
	}
	q.count += 1 + me.others
	q.since = min(q.since, since)
	q.tellPeople()
	return true
}

// tellPeople stores in the poller node how many goroutines wait, for tools.
func (q *Queue) tellPeople() { // guarded by: mu
	if q.node == 0 {
		return
	}
	if n, err := q.Arena.NodeAt(q.node); err == nil {
		n.SetBehind(q.count, q.since)
	}
}

// needNode gets a poller node if the queue has none. If the arena has no room for a node, only the periodic checks
// wake the waiters.
func (q *Queue) needNode() { // guarded by: mu
	if q.node != 0 {
		return
	}
	node, err := q.lot.adopt(q)
	if err != nil {
		return
	}
	q.node = node
	// If the node is ready now, it was ready when its previous queue was closed, and the Close of
	// that queue has passed the wake on. The process that made the node ready may never push the
	// node, and a ready node gets no other wake. So make the node idle.
	q.lot.takeLoose(node)
}

// delist takes the waiter me off the queue. If it is already off the queue, it got a wake before the cancellation. The
// caller then checks the state once more, and passes the wake on.
func (q *Queue) delist(me *waiter) {
	q.mu.Lock()
	if me.queued {
		q.unlink(me)
		q.tellPeople()
		q.setIdle()
		q.mu.Unlock()
		return
	}
	q.mu.Unlock()
	<-me.wake
}

func (q *Queue) setWaiting() { // guarded by: mu
	if q.node != 0 {
		q.Arena.SetWaiting(q.node)
	}
}

// setIdle marks the poller node as idle if no goroutine waits. If another process has made the node ready
// meanwhile, the node stays ready. Its wake then finds no waiter in this queue, and is passed on to another queue.
func (q *Queue) setIdle() { // guarded by: mu
	if q.first == nil && q.node != 0 {
		q.Arena.SetIdle(q.node)
	}
}

// alive calls f, unless the queue is closed.
func (q *Queue) alive(f func()) {
	q.life.Lock()
	defer q.life.Unlock()
	if !q.closed {
		f()
	}
}

// afterDeath delivers a wake that a dead process may have failed to send. If the dead process had made the poller
// node ready and had not pushed it on the ready stack, afterDeath makes the node usable again. The poller calls
// afterDeath just after it has emptied the stack.
func (q *Queue) afterDeath() {
	q.mu.Lock()
	ready := q.node != 0 && q.lot.takeLoose(q.node)
	owed := ready || q.first != nil
	q.mu.Unlock()
	if owed {
		q.deliver(false)
	}
}

// StartPoller starts the poller of this process, unless it is running. The poller checks the queues after each death
// that is counted after the call.
func (q *Queue) StartPoller() {
	if q.lot.polling.Load() {
		return
	}
	q.lot.mu.Lock()
	defer q.lot.mu.Unlock()
	q.lot.startPoller()
}

// Seated returns how many goroutines of this process sleep in wait nodes for this object.
func (q *Queue) Seated() int { return int(q.seated.Load()) }

// Waiting returns how many goroutines of this process are in a call that may sleep in this queue.
func (q *Queue) Waiting() int { return int(q.calls.Load() + q.lasting.Load()) }
