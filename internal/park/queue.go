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
	lasting   atomic.Int32 // other calls, which Left does not look for
	shut      atomic.Bool  // the handle is being closed, see Refuse
	serves    atomic.Bool  // see ServeToTheEnd
	listed    atomic.Bool  // the host looks after this queue

	// life is held by Close, and while code outside any call uses the object. Once Close has
	// returned, the object may be gone.
	life   sync.Mutex
	closed bool // guarded by: life

	mu    sync.Mutex
	first *waiter            // guarded by: mu; parked goroutines, in order of arrival
	last  *waiter            // guarded by: mu
	node  arenakernel.Offset // guarded by: mu; our poller node, 0 while there is none
	count int                // guarded by: mu; number of parked goroutines
	since int64              // guarded by: mu; when the queue last became non-empty, CLOCK_MONOTONIC ns

	asleep atomic.Int32 // waiters with a known since that sleep in the kernel
	oldest atomic.Int64 // first.since; 0 if nobody is parked, or if the first does not know its date
	seated atomic.Int32 // goroutines in WaitNode.Sleep

	wasReady bool // guarded by: mu; the node was ready at the last check
	wasCut   bool // guarded by: mu; no releaser would have found the node at the last check
}

// waiter is a parked goroutine. It is pooled. While it is on the queue, the parked goroutine owns it;
// afterwards the goroutine that took it off the queue does.
type waiter struct {
	prev, next *waiter
	queued     bool
	since      int64         // when the wait began, CLOCK_MONOTONIC ns, or 0
	others     int           // how many waits it stands for, beside its own; tools count them
	granted    bool          // Grant chose this waiter; written by the goroutine that took it off the queue
	wake       chan struct{} // capacity 1
	notify     func()        // called instead of a send on wake, for a Watch
	timer      *time.Timer   // nil until one is needed
}

// after returns a channel that receives after d nanoseconds, unless me.timer is stopped before.
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
	// Rest returns a word of the object, and the value of it at which no waiter was owed a wake after
	// the last Check. Every process changes that word before it owes a waiter a wake. While the word
	// has that value, Check is called every few seconds only. Rest reports false if it does not know
	// such a value. It is nil if the object has no such word.
	Rest func() (word *atomic.Uint64, value uint64, ok bool)
	// Miss is called when a wake for one waiter finds no waiter here: it passes the wake on. It
	// is nil where wakes are for all.
	Miss func()
}

// NewQueue makes the queue of a handle on an object. Each handle has its own.
func NewQueue(c Config) *Queue {
	q := &Queue{WaitList: c.WaitList, config: c, lot: lotOf(c.WaitList.Arena), haveWaitV: shmsync.FeatureWaitV.Have()}
	q.lot.add(q)
	return q
}

// SleepSpec is what a waiter sleeps on in addition to the word of its WaitList.
type SleepSpec struct {
	Owner   arenakernel.ParticipantID // wake up when this participant dies, if not 0
	Other   *atomic.Uint32            // wake up when this word is woken, too, if not nil
	OtherIs uint32                    // the value of Other at the last check
	Bounded int64                     // sleep no longer than this many nanoseconds, if not 0
	Since   int64                     // when the wait began, CLOCK_MONOTONIC ns; 0: not known
	Park    bool                      // wait where Grant finds it, not in the kernel
}

// Sleep puts a waiter to sleep that has announced itself and has seen that it has to wait. It
// returns at once if the word is no longer w. Otherwise it returns when the waiter is woken or
// when the context of c ends.
func (q *Queue) Sleep(w uint32, b SleepSpec, c *Cancel) Result {
	h := q.lot
	h.checkPeriodically(q)
	if q.refuses() {
		return Closed
	}
	// Without waitv a thread can sleep on one word only. A parked waiter is reached by its
	// context and by a hand-off in any case.
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
					// The threads of the dead owner cannot be fenced yet; see arena.Dead.
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

// unfencedCheck is how soon, in nanoseconds, a waiter looks again at a dead owner whose threads
// cannot be fenced yet.
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
		me.timer.Stop() // after Stop, nothing comes on the timer's channel
	}
	granted := me.granted
	waiters.Put(me)
	switch {
	case granted:
		return Granted // the grant came before the cancellation
	case q.refuses():
		return Closed
	}
	return result
}

// enlist queues me and marks the poller node as waiting. It reports false, and queues nothing, if
// the word is no longer w after that. Only tools read since.
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
	if q.count == 0 {
		q.since = since
	}
	q.count += 1 + me.others
	q.since = min(q.since, since)
	q.tellPeople()
	return true
}

// tellPeople writes the number of waiters into the poller node, for tools.
func (q *Queue) tellPeople() { // guarded by: mu
	if q.node == 0 {
		return
	}
	if n, err := q.Arena.NodeAt(q.node); err == nil {
		n.SetBehind(q.count, q.since)
	}
}

// needNode gets the queue a poller node if it has none. Without room for a node, the periodic
// checks wake the waiters.
func (q *Queue) needNode() { // guarded by: mu
	if q.node != 0 {
		return
	}
	node, err := q.lot.adopt(q)
	if err != nil {
		return
	}
	q.node = node
	// A node that is ready now was ready when this process last closed its handle, and that Close
	// passed the wake on. Its releaser may never push the node, and while the node is ready it
	// takes no other wake.
	q.lot.takeLoose(node)
}

// delist takes me off the queue. If me is off already, it was handed a wake that came before the
// cancellation. The caller then checks the state once more and passes the wake on.
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

// setIdle marks the node as idle if nobody waits. A node that a releaser has made ready in the
// meantime stays ready: its wake finds nobody here, and is passed on.
func (q *Queue) setIdle() { // guarded by: mu
	if q.first == nil && q.node != 0 {
		q.Arena.SetIdle(q.node)
	}
}

// deliver hands a wake to the first parked goroutine, or to all of them. A wake for one that
// finds nobody is passed on.
//
// The node is marked as waiting for the others before the woken goroutine runs: that goroutine
// may take the lock, release it and look for the next waiter before deliver goes on.
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

// DeliverAllAsOne wakes all waiters. It wakes the goroutines of this queue first and directly,
// without the poller, so nobody has to ring the doorbell of this process.
func (q *Queue) DeliverAllAsOne() {
	q.deliver(true)
	q.mu.Lock()
	q.setIdle()
	q.mu.Unlock()
	q.DeliverAll()
}

// ReleaseAsOne is Release of the wake word b of this queue. A goroutine of this queue is woken directly, without
// the poller, so nobody has to ring the doorbell of this process.
func (q *Queue) ReleaseAsOne(b *WakeWord) {
	if b.Announced() {
		b.release(q.DeliverOneAsOne)
	}
}

// DeliverOneAsOne is DeliverOne for wakes of this process: it wakes a goroutine of this queue directly, without the
// poller.
func (q *Queue) DeliverOneAsOne(turn uint32) {
	if turn&1 == 0 && q.wakeOne(turn) > 0 || q.deliverHere(turn>>1) || q.readyOne(turn) {
		return
	}
	if turn&1 != 0 {
		q.wakeOne(turn)
	}
}

// deliverHere wakes a goroutine of this queue. It does so only every other turn if goroutines of
// other queues are parked, too.
func (q *Queue) deliverHere(turn uint32) bool {
	q.mu.Lock()
	here := q.first != nil
	if here && turn&1 == 0 {
		q.Arena.EachPollerNode(q.Poller, func(off arenakernel.Offset, n *arenakernel.Node) bool {
			here = off == q.node || n.State() != arenakernel.NodeWaiting
			return here
		})
	}
	q.mu.Unlock()
	if !here {
		return false
	}
	q.deliver(false)
	q.mu.Lock()
	q.setIdle()
	q.mu.Unlock()
	return true
}

// alive calls f unless the queue is closed.
func (q *Queue) alive(f func()) {
	q.life.Lock()
	defer q.life.Unlock()
	if !q.closed {
		f()
	}
}

// afterDeath delivers the wake that the dead process may have owed. It frees the node if the dead
// process had made it ready and had not pushed it. The poller calls afterDeath right after it has
// emptied the stack.
func (q *Queue) afterDeath() {
	q.mu.Lock()
	ready := q.node != 0 && q.lot.takeLoose(q.node)
	owed := ready || q.first != nil
	q.mu.Unlock()
	if owed {
		q.deliver(false)
	}
}

// StartPoller makes the poller of this process run: it checks the queues after each death.
func (q *Queue) StartPoller() {
	q.lot.mu.Lock()
	defer q.lot.mu.Unlock()
	q.lot.startPoller()
}

// Seated reports how many goroutines of this process sleep in wait nodes for this object.
func (q *Queue) Seated() int { return int(q.seated.Load()) }

// Waiting reports how many goroutines of this process are in a call that may
// sleep here.
func (q *Queue) Waiting() int { return int(q.calls.Load() + q.lasting.Load()) }
