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

// Result says why a sleep ended.
type Result uint8

const (
	// Again: something happened, or may have: look at the state.
	Again Result = iota
	// Canceled: the context ended.
	Canceled
	// Closed: this process leaves the arena, or the handle that waits is closed.
	Closed
	// Granted: Grant chose this waiter.
	Granted
)

// Queue is one handle's side of a WaitList: the goroutines that use the handle wait here.
type Queue struct {
	WaitList
	config Config
	lot    *lot

	haveWaitV bool
	calls     atomic.Int32 // calls between Enter and Exit
	lasting   atomic.Int32 // of those, the ones that Shut does not wait for
	shut      atomic.Bool  // the handle is being closed, see Shut
	serves    atomic.Bool  // see ServeToTheEnd
	listed    atomic.Bool  // the host looks after this queue

	// life is held while the object is used by others than its callers, and by
	// Close: once that has returned the object may be gone.
	life   sync.Mutex
	closed bool // guarded by: life

	mu    sync.Mutex
	first *waiter            // guarded by: mu; parked goroutines, in order of arrival
	last  *waiter            // guarded by: mu
	node  arenakernel.Offset // guarded by: mu; our poller node, 0 when there is none yet
	count int                // guarded by: mu; of parked goroutines
	since int64              // guarded by: mu; since when there are any, CLOCK_MONOTONIC ns

	asleep atomic.Int32 // waiters with a since that sleep in the kernel
	oldest atomic.Int64 // first.since; 0 if there is none, or it does not know
	seated atomic.Int32 // goroutines in WaitNode.Sleep

	wasReady bool // guarded by: mu; the node was ready at the last check
	wasCut   bool // guarded by: mu; nobody would have found it at the last check
}

// waiter is a parked goroutine. It is pooled, and owned by the goroutine that took it off
// the queue or by the parked goroutine itself.
type waiter struct {
	prev, next *waiter
	queued     bool
	since      int64         // since when it waits, CLOCK_MONOTONIC ns, or 0
	granted    bool          // by Grant; written by the goroutine that took it off the queue
	wake       chan struct{} // capacity 1
	notify     func()        // instead of wake, for a Watch
	timer      *time.Timer   // nil until one is needed
}

// after gives a channel on which the time comes when d is over, unless me.timer is
// stopped before.
func (me *waiter) after(d int64) <-chan time.Time {
	if me.timer == nil {
		me.timer = time.NewTimer(time.Duration(d))
	} else {
		me.timer.Reset(time.Duration(d))
	}
	return me.timer.C
}

var waiters = sync.Pool{New: func() any { return &waiter{wake: make(chan struct{}, 1)} }}

// Config describes a queue to NewQueue.
type Config struct {
	WaitList WaitList
	Object   arenakernel.Object
	Word     arenakernel.Offset // of WaitList.Word
	All      bool               // a wake is for all waiters, not for one
	// Check looks at the object's own words for something that a waiter should
	// have been told. It is called ten times a second while anybody waits.
	Check func()
	// Miss is called when a wake for one found nobody here any more: it passes
	// the wake on. Nil where wakes are for all.
	Miss func()
}

// NewQueue makes the queue of a handle on an object. Each handle has its own.
func NewQueue(c Config) *Queue {
	q := &Queue{WaitList: c.WaitList, config: c, lot: lotOf(c.WaitList.Arena), haveWaitV: shmsync.FeatureWaitV.Have()}
	q.lot.add(q)
	return q
}

// SleepSpec is what a waiter sleeps on, besides the word of its WaitList.
type SleepSpec struct {
	Owner   arenakernel.ParticipantID // wake up when this participant dies, if not 0
	Other   *atomic.Uint32            // wake up when this word is woken, too, if not nil
	OtherIs uint32                    // what it was at the last check
	Bounded int64                     // sleep no longer than this many nanoseconds, if not 0
	Since   int64                     // since when it waits, CLOCK_MONOTONIC ns; 0: it does not know
	Park    bool                      // wait where Grant finds it, not in the kernel
}

// Sleep is what a waiter does after it announced itself and saw that it has to
// wait: it returns at once when the word is no longer w, and otherwise when it
// is woken or when the context of c ends.
func (q *Queue) Sleep(w uint32, b SleepSpec, c *Cancel) Result {
	h := q.lot
	h.checkPeriodically(q)
	if q.refuses() {
		return Closed
	}
	// Without waitv a thread sleeps on one word only; behind the poller, a context
	// and a hand-off reach the waiter all the same.
	if !b.Park && (q.haveWaitV || c.ctx == nil && b.Other == nil) && q.mayBeDirect(b.Since) {
		defer q.asleep.Add(-1)
		if record, ok := q.Arena.Announce(q.config.Object.Offset, q.config.Word, uint64(w), DirectMax); ok {
			if since := cmp.Or(b.Since, c.date()); since != 0 {
				q.Arena.DateAnnounced(record, since)
			}
			r := q.direct(w, b, c)
			c.slept, c.since = true, q.Arena.Retract(record)
			return r
		}
	}
	return q.park(w, b, c)
}

// direct sleeps in the kernel, on this goroutine's thread.
func (q *Queue) direct(w uint32, b SleepSpec, c *Cancel) Result {
	var deadline int64
	if b.Bounded != 0 {
		deadline = shmsync.Monotonic() + b.Bounded
	}
	c.arm()
	var entries [4]shmsync.WaitVEntry
	entries[0] = shmsync.NewWaitVEntry(q.Raw, w)
	n := 1
	add := func(word *uint32, is uint32) {
		entries[n] = shmsync.NewWaitVEntry(word, is)
		n++
	}
	bits, near := q.nearSleepSpec(&b, c)
	if q.haveWaitV && !near {
		if b.Owner != 0 {
			if word, alive, ok := q.Arena.AliveWord(b.Owner); ok {
				if alive&shmsync.RobustOwnerDied != 0 {
					// Its threads cannot be fenced yet; see arena.Dead.
					deadline = shmsync.Monotonic() + unfencedCheck
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
	if q.refuses() {
		return Closed
	}
	var err error
	if n > 1 {
		_, _, err = shmsync.WaitV(entries[:n], deadline)
		if err != nil { // ENOMEM: no room for that many entries just now
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
	case q.refuses():
		return Closed
	case c.word != nil && c.word.Load() != 0:
		return Canceled
	}
	return Again
}

// unfencedCheck is how soon a waiter looks again at a dead owner whose threads
// cannot be fenced, in nanoseconds.
const unfencedCheck = 200e3

// park waits on a channel; the process that changes the word tells the poller of this
// process.
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
		me.timer.Stop() // nothing comes on its channel after that
	}
	granted := me.granted
	waiters.Put(me)
	switch {
	case granted:
		return Granted // it came first
	case q.refuses():
		return Closed
	}
	return result
}

// enlist queues me and makes the poller node say that it has waiters, provided that the
// word is still w after that. since is for people.
func (q *Queue) enlist(w uint32, me *waiter, since int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.needNode()
	q.setWaiting()
	if q.Word.Load() != w || q.refuses() {
		q.setIdle()
		return false
	}
	q.link(me)
	if q.count++; q.count == 1 {
		q.since = since
	}
	q.since = min(q.since, since)
	q.tellPeople()
	return true
}

// tellPeople notes in the poller node how many wait, for tools.
func (q *Queue) tellPeople() { // guarded by: mu
	if q.node == 0 {
		return
	}
	if n, err := q.Arena.NodeAt(q.node); err == nil {
		n.SetBehind(q.count, q.since)
	}
}

// needNode gets the queue a poller node if it has none yet. Without room for one,
// looks keep the waiters going.
func (q *Queue) needNode() { // guarded by: mu
	if q.node != 0 {
		return
	}
	node, err := q.lot.adopt(q)
	if err != nil {
		return
	}
	q.node = node
	// A node that is ready was so when this process closed its handle last, which passed
	// the wake on. It may never be pushed, and take no other wake.
	q.lot.takeLoose(node)
}

// delist takes me off the queue. If it is off already, a wake was handed to it: that came
// first, and the caller, which checks the state once more, passes it on.
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

// setIdle says that nobody waits, if so. A node that has been made ready
// meanwhile stays so: its wake is delivered, to nobody, and passed on.
func (q *Queue) setIdle() { // guarded by: mu
	if q.first == nil && q.node != 0 {
		q.Arena.SetIdle(q.node)
	}
}

// deliver hands a wake to parked goroutines, to the first or to all, and passes
// it on where one was meant and there are none.
//
// The node says that the others wait before any of them runs: a woken goroutine may take,
// release, and look for the next before this function goes on.
func (q *Queue) deliver(all bool) {
	q.mu.Lock()
	var woken *waiter // linked by next
	for me := q.first; me != nil; me = q.first {
		q.unlink(me)
		me.next, woken = woken, me
		if !all && !q.config.All {
			break
		}
	}
	if q.first != nil {
		q.setWaiting()
	}
	q.tellPeople()
	missed := woken == nil && !all && q.config.Miss != nil
	q.mu.Unlock()
	for woken != nil {
		me := woken
		woken, me.next = me.next, nil
		if me.notify != nil {
			me.notify()
			continue
		}
		me.wake <- struct{}{}
	}
	if missed {
		q.alive(q.config.Miss)
	}
}

// DeliverAllAsOne wakes all waiters, and the goroutines of this queue first: without the
// poller, and so without the doorbell of this process.
func (q *Queue) DeliverAllAsOne() {
	q.deliver(true)
	q.mu.Lock()
	q.setIdle()
	q.mu.Unlock()
	q.DeliverAll()
}

// alive calls f unless the queue is closed.
func (q *Queue) alive(f func()) {
	q.life.Lock()
	defer q.life.Unlock()
	if !q.closed {
		f()
	}
}

// afterDeath delivers the wake that the dead may have owed, and frees the node
// if it was made ready by the dead and not put on the stack. It is called by the
// poller, right after that has emptied the stack.
func (q *Queue) afterDeath() {
	q.mu.Lock()
	ready := q.node != 0 && q.lot.takeLoose(q.node)
	owed := ready || q.first != nil
	q.mu.Unlock()
	if owed {
		q.deliver(false)
	}
}

// StartPoller makes the poller of this process run, which checks after a death.
func (q *Queue) StartPoller() {
	q.lot.mu.Lock()
	defer q.lot.mu.Unlock()
	q.lot.startPoller()
}

// Seated reports how many goroutines of this process sleep in wait nodes for this object.
func (q *Queue) Seated() int { return int(q.seated.Load()) }

// Waiting reports how many goroutines of this process are in a call that may
// sleep here.
func (q *Queue) Waiting() int { return int(q.calls.Load()) }
