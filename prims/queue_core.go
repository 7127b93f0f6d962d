package prims

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// queueCore is the part of a Queue that does not depend on the type of its items. A handle has
// one.
//
// Items are in slots, and a ring of cells says in which order; see queueState and queueCell.
// Puts and Gets that need not wait use these words only. Those that wait do so in a monitor:
// Gets and Leases in one line, Puts in another. A Put that has published its item, and a Get
// that has freed its slot, serve the waiters if there are any. A waiter joins its line before
// it looks at the ring again, so one of the two sees the other (a store-load pair).
//
// A Put that waits leaves its item in a block that its process has claimed. The process that
// lets the Put go on copies the item from there, so that the Put is done with that, and no
// process waits for the Put's process to wake. A Get that waits is given a slot.
//
// A participant that is stopped with the queue lock held keeps the waiters of others waiting.
// Their periodic checks notice that: the waiters give up their places in the line, and look at
// the ring themselves, as newcomers then do, until the lock is free again.
type queueCore struct {
	mon              *monitor
	words            *queueWords
	gate             *uint64 // the flags, or closedQueueGate
	getters, putters fifo
	a                *arenakernel.Arena
	object           arenakernel.Object
	name             arenakernel.ParticipantID
	capacity         uint32
	slots            uint32
	shift            uint   // logarithm of the number of cells
	mask             uint64 // the number of cells less 1
	first            uint64 // where the slots begin
	item             uint64 // bytes
	stride           uint64

	seen    atomic.Uint64 // a position: no position before it has an item
	watched atomic.Uint32 // the slot that a check looked at last
	orphans atomic.Bool   // slots may be on their way to no waiter
	bad     atomic.Bool   // a peer overwrote the ring
	last    queueTurn     // what the last check saw; used by checks only

	staging sync.Mutex
	stages  []arenakernel.Offset // guarded by: staging; claimed blocks that no Put uses
}

// queueTurn tells whether the holder of the queue lock goes on.
type queueTurn struct {
	holder uint32 // the owner word, 0 if it is not held
	turns  uint64
}

// The classes of the waits of a Queue: what they are for.
const (
	queuePut = iota
	queueGet
	queueLease
)

// The outcomes of the waits of a Queue. A grant gives the slot whose number aux is.
const (
	queueGranted = iota
	queueStopped
	queueCorrupt // its item is not where its node says
)

// errQueueKicked ends a wait whose line nobody serves.
var errQueueKicked = errors.New("the queue lock is held by a participant that does not go on")

func buildQueue(a *arenakernel.Arena, o arenakernel.Object, bare bool) (*queueCore, error) {
	w, ok := queueShape(a, o)
	if !ok {
		return nil, &shmsync.Error{Op: "queue.open", Object: objectName(o), Err: shmsync.ErrCorrupt, Detail: "its body has no room for its slots"}
	}
	x := &queueCore{words: w, gate: wordPtr64(&w.flags), a: a, object: o, name: a.Self(), capacity: uint32(w.capacity), item: w.item}
	x.slots = uint32(queueSlots(uint64(x.capacity)))
	x.shift = queueLapShift(uint64(x.slots))
	x.mask = 1<<x.shift - 1
	x.first = queueHeadBytes + 8<<x.shift
	x.stride = queueStride(x.item)
	x.mon = buildMonitor(a, o, o.Body, x, bare)
	x.mon.opening.end = x.end
	if !bare {
		x.mon.queueLock.alsoCheck = x.check
	}
	x.getters = fifo{x.mon, &w.getters}
	x.putters = fifo{x.mon, &w.putters}
	return x, nil
}

// end is the end of the handle.
func (x *queueCore) end() {
	redirect(&x.gate, &closedQueueGate)
	x.mon.queueLock.end()
	x.staging.Lock()
	defer x.staging.Unlock()
	for _, off := range x.stages {
		x.a.UnclaimBlock(off)
	}
	x.stages = nil
}

// serve lets the waiters go on that can. It does not wait for the queue lock: its holder, if it
// is not stopped, does the same before or after it leaves.
func (x *queueCore) serve() {
	if !x.mon.tryEnter() {
		x.mon.cleanUpLater()
		return
	}
	x.mon.leaveAfter(x.resolve)
}

// put puts the item that fill writes into the queue, if there is room.
func (x *queueCore) put(fill func(s *queueSlot, block []byte)) bool {
	if atomic.LoadUint64(x.gate)&(queueStoppedFlag|queueClosedFlag) != 0 {
		return false
	}
	p, was, i, s := x.reserve()
	if s == nil {
		return false
	}
	fill(s, nil)
	return x.publish(p, was, i, s)
}

// lock takes the queue lock for a call that may wait. If its holder does not go on, it tries
// from time to time whether the call can be done without; then done is true, and the queue
// lock is not held.
func (x *queueCore) lock(ctx context.Context, try func() bool) (done bool, err error) {
	if x.mon.tryEnter() {
		return false, nil
	}
	if ctx == nil {
		ctx = context.Background()
	}
	for {
		before := x.turn()
		c, cancel := context.WithTimeout(ctx, stuckAfter)
		err := x.mon.enter(c)
		cancel()
		switch {
		case err == nil:
			return false, nil
		case err != context.DeadlineExceeded:
			return false, err
		case ctx.Err() != nil:
			return false, ctx.Err()
		case x.stuck(before) && try():
			return true, nil
		}
	}
}

// stuckAfter is how long the holder of the queue lock does nothing before others go on
// without it.
const stuckAfter = 50 * time.Millisecond

// turn is the state of the queue lock, to be compared with a later one.
func (x *queueCore) turn() queueTurn {
	if w := ownerWord(x.mon.queueLock.owner.Load()); w.held() {
		return queueTurn{uint32(w), x.words.turns.Load()}
	}
	return queueTurn{}
}

// stuck reports whether the queue lock was held all the time since before, by one holder that
// has done nothing.
func (x *queueCore) stuck(before queueTurn) bool { return before.holder != 0 && before == x.turn() }

// check is the periodic check of a process with waiters. If the queue lock is stuck and waiters
// could go on, they give up their places: see errQueueKicked.
func (x *queueCore) check() {
	x.mon.check()
	if stuck := x.stuck(x.last); stuck && x.due() {
		x.mon.queueLock.queue.Kick()
	}
	x.last = x.turn()
}

// due reports whether there is an item and a waiter for one, or room and a waiter for that.
func (x *queueCore) due() bool {
	if !x.getters.empty() {
		_, _, s, _ := x.front(false)
		if s != nil || x.words.returned.Load()&1 != 0 || x.stopped() {
			return true
		}
	}
	if !x.putters.empty() {
		p, _, ok := x.next()
		return ok && (!x.full(p) || x.stopped())
	}
	return false
}

// stopped reports whether the queue was shut down.
func (x *queueCore) stopped() bool {
	// sync(queue.shutdown): acquire
	return x.words.flags.Load()&queueStoppedFlag != 0
}

// step begins what a holder of the queue lock does.
func (x *queueCore) step() { storeWord(&x.words.turns, x.words.turns.Load()+1) }

// stage gives a block for the item of a Put that waits. It allocates unless ok.
func (x *queueCore) stage(allocate bool) (off arenakernel.Offset, block []byte, err error) {
	x.staging.Lock()
	if n := len(x.stages); n > 0 {
		off = x.stages[n-1]
		x.stages = x.stages[:n-1]
	}
	x.staging.Unlock()
	if off == 0 && allocate {
		if off, err = x.a.ClaimBlock(x.item); err != nil {
			return 0, nil, err
		}
	}
	if off == 0 {
		return 0, nil, nil
	}
	if block = x.a.ClaimedBlock(off, x.item, x.name); block == nil {
		return 0, nil, x.corrupt("queue.put", "block of this process")
	}
	return off, block, nil
}

func (x *queueCore) unstage(off arenakernel.Offset) {
	if off == 0 {
		return
	}
	x.staging.Lock()
	defer x.staging.Unlock()
	x.stages = append(x.stages, off)
}
