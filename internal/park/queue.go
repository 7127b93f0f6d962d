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
	// Again: something has happened, or may have happened, so the caller checks the state again.
	Again Result = iota
	// Canceled: the context ended.
	Canceled
	// Closed: this process leaves the arena, or the handle of the wait is closed.
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
	lasting   atomic.Int32 // other calls, which Left does not count
	shut      atomic.Bool  // the handle is being closed, see Refuse
	serves    atomic.Bool  // see ServeToTheEnd
	listed    atomic.Bool  // the periodic checker has this queue on its list

	// life is held by Close, and by code that uses the object outside any call. Once Close has
	// returned, the object may no longer exist.
	life   sync.Mutex
	closed bool // guarded by: life

	mu    sync.Mutex
	first *waiter            // guarded by: mu; parked goroutines, in order of arrival
	last  *waiter            // guarded by: mu
	node  arenakernel.Offset // guarded by: mu; the poller node of this queue, 0 while there is none
	count int                // guarded by: mu; number of parked goroutines
	since int64              // guarded by: mu; when the queue last became non-empty, CLOCK_MONOTONIC ns

	asleep atomic.Int32 // number of waiters with a known since that sleep in the kernel
	oldest atomic.Int64 // first.since; 0 if nobody is parked, or if that time is not known
	seated atomic.Int32 // goroutines in WaitNode.Sleep

	wasReady bool // guarded by: mu; the last check found the node ready
	wasCut   bool // guarded by: mu; at the last check, no releaser would have found the node
}

// waiter is a parked goroutine. It is pooled. While the waiter is on the queue, the parked
// goroutine owns it; then the goroutine that has taken it off the queue owns it.
type waiter struct {
	prev, next *waiter
	queued     bool
	since      int64         // when the wait began, CLOCK_MONOTONIC ns, or 0
	others     int           // how many other waits it stands for; tools count them
	granted    bool          // Grant chose this waiter; written by the goroutine that takes it off the queue
	wake       chan struct{} // capacity 1
	notify     func()        // called for a Watch, instead of a send on wake
	timer      *time.Timer   // nil until one is needed
}

// after returns a channel that receives a value after d nanoseconds, unless me.timer is stopped.
func (me *waiter) after(d int64) <-chan time.Time {
	if me.timer == nil {
		me.timer = time.NewTimer(time.Duration(d))
	} else {
		me.timer.Reset(time.Duration(d))
	}
	return me.timer.C
}

var waiters = sync.Pool{New: func() any { return &waiter{wake: make(chan struct{}, 1)} }}

// Config is the argument of NewQueue.
type Config struct {
	WaitList WaitList
	Object   arenakernel.Object
	Word     arenakernel.Offset // of WaitList.Word
	All      bool               // a wake is for all waiters, and not for one
	// Check examines the object's own words for something that a waiter should have been told. It
	// is called ten times a second while anybody waits.
	Check func()
	// Rest returns a word of the object, and the value of this word at which no wake was due after
	// the last Check. Every process changes the word before a wake becomes due. While the word has
	// that value, Check is called only every few seconds. Rest returns ok false if it does not know
	// such a value. It is nil if the object has no such word.
	Rest func() (word *atomic.Uint64, value uint64, ok bool)
	// Miss is called if a wake for one waiter finds no waiter in this queue, and passes the wake
	// on. It is nil if wakes are for all waiters.
	Miss func()
}

// NewQueue makes the queue of a handle of an object. Each handle has its own.
func NewQueue(c Config) *Queue {
	q := &Queue{WaitList: c.WaitList, config: c, lot: lotOf(c.WaitList.Arena), haveWaitV: shmsync.FeatureWaitV.Have()}
	q.lot.add(q)
	return q
}

// SleepSpec says what a waiter sleeps on in addition to the word of its WaitList.
type SleepSpec struct {
	Owner   arenakernel.ParticipantID // if not 0, wake up when this participant dies
	Other   *atomic.Uint32            // if not nil, wake up when this word is woken, too
	OtherIs uint32                    // the value of Other when the waiter last checked it
	Bounded int64                     // sleep no longer than this many nanoseconds, if not 0
	Since   int64                     // when the wait began, CLOCK_MONOTONIC ns; 0 if not known
	Park    bool                      // park, so that Grant can find the waiter; do not sleep in the kernel
}

// Sleep lets a waiter sleep that has announced itself and has then seen that it has to wait. It
// returns at once if the word is no longer w. Otherwise it returns when the waiter is woken or when
// the context of c ends.
func (q *Queue) Sleep(w uint32, b SleepSpec, c *Cancel) Result {
	h := q.lot
	h.checkPeriodically(q)
	if q.refuses() {
		return Closed
	}
	// Without waitv, a thread can sleep on only one word. The context and a hand-off reach a parked
	// waiter in any case.
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

// direct sleeps in the kernel, on the thread of this goroutine.
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
					// The threads of the dead owner cannot be fenced yet; see Dead.
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
		if err != nil { // ENOMEM: the kernel has no memory for so many entries at the moment
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

// unfencedCheck is after how many nanoseconds a waiter checks again whether the threads of a dead
// owner can be fenced.
const unfencedCheck = 200e3

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
	case q.refuses():
		return Closed
	}
	return result
}

// enlist marks the poller node as waiting, and then queues me. If the word is no longer w after the
// mark, enlist queues nothing and returns false. Only tools read since.
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

// tellPeople writes into the poller node, for tools, how many goroutines wait.
func (q *Queue) tellPeople() { // guarded by: mu
	if q.node == 0 {
		return
	}
	if n, err := q.Arena.NodeAt(q.node); err == nil {
		n.SetBehind(q.count, q.since)
	}
}

// needNode gets a poller node for the queue if it has none. If there is no room for a node, the
// periodic checks wake the waiters.
func (q *Queue) needNode() { // guarded by: mu
	if q.node != 0 {
		return
	}
	node, err := q.lot.adopt(q)
	if err != nil {
		return
	}
	q.node = node
	// If the node is ready now, it was ready when this process last closed its handle, and that
	// Close has passed the wake on. The releaser of the node may never push it, and while the node
	// is ready it receives no other wake.
	q.lot.takeLoose(node)
}

// delist takes me off the queue. If me is already off, it was given a wake that came before the
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

// setIdle marks the poller node as idle if nobody waits. If a releaser has made the node ready
// meanwhile, it stays ready: its wake then finds nobody here, and is passed on.
func (q *Queue) setIdle() { // guarded by: mu
	if q.first == nil && q.node != 0 {
		q.Arena.SetIdle(q.node)
	}
}

// deliver gives a wake to the first parked goroutine, or to all of them. If a wake for one finds
// nobody, it is passed on.
//
// The node is marked as waiting for the other goroutines before the woken goroutine runs: this
// goroutine may take the lock, release it and search for the next waiter before deliver continues.
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

// deliverHere wakes a goroutine of this queue. If goroutines of other queues are parked, too, it
// does so only every other time.
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

// afterDeath delivers the wake that the dead process may not have made. It frees the node if the
// dead process had made it ready and had not pushed it. The poller calls afterDeath right after it
// has emptied the stack.
func (q *Queue) afterDeath() {
	q.mu.Lock()
	ready := q.node != 0 && q.lot.takeLoose(q.node)
	owed := ready || q.first != nil
	q.mu.Unlock()
	if owed {
		q.deliver(false)
	}
}

// StartPoller starts the poller of this process, which checks the queues after each death.
func (q *Queue) StartPoller() {
	q.lot.mu.Lock()
	defer q.lot.mu.Unlock()
	q.lot.startPoller()
}

// Seated returns how many goroutines of this process sleep in wait nodes for this object.
func (q *Queue) Seated() int { return int(q.seated.Load()) }

// Waiting returns how many goroutines of this process are in a call that may sleep here.
func (q *Queue) Waiting() int { return int(q.calls.Load() + q.lasting.Load()) }
