package park

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
)

// Result says why a sleep ended.
type Result uint8

const (
	// Again: something happened, or may have: look at the state.
	Again Result = iota
	// Canceled: the context ended.
	Canceled
	// Closed: this process leaves the arena.
	Closed
)

// Queue is this process's side of a Line: its goroutines wait here.
type Queue struct {
	Line
	host   *host
	object arena.Object
	word   arena.Offset // of Line.Word
	all    bool         // a wake is for all waiters of the object, not for one

	haveWaitV bool

	// look looks at the object's own words for something that a waiter should
	// have been told. It is called ten times a second while anybody waits.
	look func()

	waiting atomic.Int32 // goroutines in Sleep
	listed  atomic.Bool  // the host looks after this queue

	mu    sync.Mutex
	first *waiter      // guarded by: mu; parked goroutines, in order of arrival
	last  *waiter      // guarded by: mu
	node  arena.Offset // guarded by: mu; our hub node, 0 when there is none yet

	wasReady bool // guarded by: mu; the node was ready at the last look
}

// waiter is a parked goroutine. It is pooled, and owned by who took it off the
// queue or by the goroutine itself.
type waiter struct {
	prev, next *waiter
	queued     bool
	wake       chan struct{} // capacity 1
}

var waiters = sync.Pool{New: func() any { return &waiter{wake: make(chan struct{}, 1)} }}

// Config describes a queue to NewQueue.
type Config struct {
	Line   Line
	Object arena.Object
	Word   arena.Offset // of Line.Word
	All    bool         // a wake is for all waiters, not for one
	Look   func()
}

// NewQueue makes this process's queue of an object. There must be only one.
func NewQueue(c Config) *Queue {
	return &Queue{
		Line: c.Line, host: hostOf(c.Line.Arena), object: c.Object,
		word: c.Word, all: c.All, look: c.Look, haveWaitV: shmsync.FeatureWaitV.Have(),
	}
}

// Sleep is what a waiter does after it announced itself and saw that it has to
// wait: it returns at once when the word is no longer w, and otherwise when it
// is woken, when the context of c ends, or when owner, if not 0, dies. bounded
// is the longest that it sleeps in nanoseconds; 0 means no bound.
func (q *Queue) Sleep(w Word, owner arena.Name, c *Cancel, bounded int64) Result {
	return q.SleepOn(q.Raw, q.word, uint32(w), w, owner, c, bounded)
}

// SleepOn is Sleep for a waiter that sleeps on another word of the object, while
// it is val, as long as it has a thread of its own to sleep on.
func (q *Queue) SleepOn(word *uint32, off arena.Offset, val uint32, w Word, owner arena.Name, c *Cancel, bounded int64) Result {
	q.waiting.Add(1)
	defer q.waiting.Add(-1)
	h := q.host
	h.lookAfter(q)
	if h.closed.Load() {
		return Closed
	}
	if (c.ctx == nil || q.haveWaitV) && h.enterDirect() {
		defer h.leaveDirect()
		if record, ok := q.Arena.Announce(q.object.Offset, off, uint64(val)); ok {
			defer q.Arena.Retract(record)
			return q.direct(word, val, owner, c, bounded)
		}
	}
	return q.park(w, c)
}

// direct sleeps in the kernel, on this goroutine's thread.
func (q *Queue) direct(word *uint32, val uint32, owner arena.Name, c *Cancel, bounded int64) Result {
	var deadline int64
	if bounded != 0 {
		deadline = shmsync.Monotonic() + bounded
	}
	c.arm()
	var entries [3]shmsync.WaitVEntry
	entries[0] = shmsync.NewWaitVEntry(word, val)
	n := 1
	if owner != 0 && q.haveWaitV {
		if alive, value, ok := q.Arena.AliveWord(owner); ok {
			if value&shmsync.RobustOwnerDied != 0 {
				return Again
			}
			entries[n] = shmsync.NewWaitVEntry(alive, value)
			n++
		}
	}
	if c.word != nil {
		entries[n] = shmsync.NewWaitVEntry(raw(c.word), 0)
		n++
	}
	if q.host.closed.Load() {
		return Closed
	}
	var err error
	if n == 1 {
		_, err = shmsync.Wait(word, val, deadline)
	} else {
		_, _, err = shmsync.WaitV(entries[:n], deadline)
	}
	runtime.KeepAlive(c.word)
	switch {
	case err != nil:
		panic("shmsync: " + err.Error()) // EFAULT: the arena was unmapped under a waiter
	case q.host.closed.Load():
		return Closed
	case c.word != nil && c.word.Load() != 0:
		return Canceled
	}
	return Again
}

// park waits on a channel; the hub of this process is told by whoever bumps the
// word.
func (q *Queue) park(w Word, c *Cancel) Result {
	me := waiters.Get().(*waiter)
	q.mu.Lock()
	if !q.enlist(w, me) {
		q.mu.Unlock()
		waiters.Put(me)
		if q.host.closed.Load() {
			return Closed
		}
		return Again
	}
	q.mu.Unlock()

	var done <-chan struct{}
	if c.ctx != nil {
		done = c.ctx.Done()
	}
	result := Again
	select {
	case <-me.wake:
	case <-done:
		result = Canceled
		q.mu.Lock()
		if me.queued {
			q.unlink(me)
			q.mu.Unlock()
		} else {
			// A wake was ours: it came first, and the caller passes it on.
			q.mu.Unlock()
			<-me.wake
		}
	}
	waiters.Put(me)
	if q.host.closed.Load() {
		return Closed
	}
	return result
}

// enlist queues me and makes the hub node say that somebody waits, provided
// that the word is still w after that.
func (q *Queue) enlist(w Word, me *waiter) bool { // guarded by: mu
	if q.host.closed.Load() {
		return false
	}
	if q.node == 0 {
		node, err := q.Arena.HubNode(q.object, q.Hub)
		if err != nil {
			// No room for a node: 100 ms looks keep such a waiter going.
			return q.push(w, me)
		}
		q.node = node
		q.host.adopt(node, q)
	}
	q.Arena.SetWaiting(q.node)
	return q.push(w, me)
}

func (q *Queue) push(w Word, me *waiter) bool { // guarded by: mu
	if Word(q.Word.Load()) != w {
		return false
	}
	me.prev, me.next, me.queued = q.last, nil, true
	if q.last == nil {
		q.first = me
	} else {
		q.last.next = me
	}
	q.last = me
	return true
}

func (q *Queue) unlink(me *waiter) { // guarded by: mu
	if me.prev == nil {
		q.first = me.next
	} else {
		me.prev.next = me.next
	}
	if me.next == nil {
		q.last = me.prev
	} else {
		me.next.prev = me.prev
	}
	me.prev, me.next, me.queued = nil, nil, false
}

// deliver hands a wake to parked goroutines: to the first, or to all.
func (q *Queue) deliver(all bool) {
	q.mu.Lock()
	for me := q.first; me != nil; me = q.first {
		q.unlink(me)
		me.wake <- struct{}{}
		if !all && !q.all {
			break
		}
	}
	if q.first != nil && q.node != 0 {
		q.Arena.SetWaiting(q.node)
	}
	q.mu.Unlock()
}

// Parked reports how many goroutines of this process wait here.
func (q *Queue) Parked() int { return int(q.waiting.Load()) }

// Close gives the queue's hub node back, for other participants to use. Nobody
// may wait. A node that is ready just now stays ours until the hub takes it.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.node != 0 && q.Arena.ReleaseHubNode(q.node) {
		q.host.disown(q.node)
		q.node = 0
	}
}
