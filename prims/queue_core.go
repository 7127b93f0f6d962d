package prims

import (
	"context"
	"sync"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
)

var (
	_ = crashpoint.Register("queue.put.staged")
	_ = crashpoint.Register("queue.put.copied")
	_ = crashpoint.Register("queue.get.granted")
)

// queueCore is the part of a Queue that does not depend on the type of its items. It implements
// the rules of the monitor. Each handle has one.
//
// Getters, which are Gets and Leases, wait in one line, putters in another. A waiting Put leaves
// its item in a block that its process has claimed. The process that ends the wait copies the
// item from the block, so the Put is done, and nobody has to wait until its process wakes. A
// waiting Get is given a slot.
type queueCore struct {
	mon              *monitor
	words            *queueWords
	getters, putters fifo
	a                *arenakernel.Arena
	object           arenakernel.Object
	name             arenakernel.ParticipantID
	capacity         uint32
	item             uint64 // size of an item in bytes
	stride           uint64

	staging sync.Mutex
	stages  []arenakernel.Offset // guarded by: staging; claimed blocks that no Put uses
}

// The classes of the waits of a Queue say what the waits are for.
const (
	queuePut = iota
	queueGet
	queueLease
)

// The outcomes of the waits of a Queue. For a grant, aux is the position of the slot.
const (
	queueGranted = iota
	queueStopped
	queueCorrupt // the item is not where the wait's node says
)

func buildQueue(a *arenakernel.Arena, o arenakernel.Object, bare bool) (*queueCore, error) {
	w, ok := queueShape(a, o)
	if !ok {
		return nil, &shmsync.Error{Op: "queue.open", Object: objectName(o), Err: shmsync.ErrCorrupt, Detail: "its body has no room for its slots"}
	}
	x := &queueCore{words: w, a: a, object: o, name: a.Self(), capacity: uint32(w.capacity), item: w.item, stride: queueStride(w.item)}
	x.mon = buildMonitor(a, o, o.Body, x, bare)
	x.mon.opening.end = x.end
	x.getters = fifo{x.mon, &w.getters}
	x.putters = fifo{x.mon, &w.putters}
	return x, nil
}

// end takes the words away when the handle is closed.
func (x *queueCore) end() {
	x.mon.queueLock.end()
	x.staging.Lock()
	defer x.staging.Unlock()
	for _, off := range x.stages {
		x.a.UnclaimBlock(off)
	}
	x.stages = nil
}

// begin is monitor.begin for a call that holds the queue lock. If it returns an error, it has
// released the queue lock.
func (x *queueCore) begin() error {
	err := x.mon.begin()
	if err != nil {
		x.mon.leave(nil)
	}
	return err
}

func (x *queueCore) finish() { x.mon.finish() }

// room returns a slot that a Put may fill now, or nil if the Put has to wait.
func (x *queueCore) room() (uint32, *queueSlot) {
	if !x.putters.empty() || x.words.stopped.Load() != 0 {
		return 0, nil
	}
	return x.spare()
}

// ready returns the slot of an item that a Get may have now, or nil if the Get has to wait.
func (x *queueCore) ready() (uint32, *queueSlot) {
	if !x.getters.empty() {
		return 0, nil
	}
	return x.first()
}

// leave releases the queue lock after a change that may have ended waits in others.
func (x *queueCore) leave(others *fifo) {
	if others.empty() {
		x.mon.leave(nil)
		return
	}
	b := takeWakes()
	x.resolve(b)
	x.mon.leave(b)
}

// tryEnter takes the queue lock for a call that does not wait, unless that takes long. line is
// the queue where the call would wait. If waiters are there, the call fails.
func (x *queueCore) tryEnter(line *fifo) bool {
	m := x.mon
	if !m.tryEnter() {
		return false
	}
	if !line.empty() {
		// The waiters may be dead. If a living waiter can go on, it is woken a moment late.
		b := takeWakes()
		m.reapIfDue(b)
		m.leave(b)
		return m.tryEnter()
	}
	return true
}

// stage returns a block for the item of a waiting Put. It allocates one only if allocate is set.
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

// waitRoom is for a Put that has to wait. The caller holds the queue lock, and waitRoom releases
// it. It returns when the item that fill writes is in the queue. fill is called once or twice:
// with a slot that is free now, or before that with a block for the item.
func (x *queueCore) waitRoom(ctx context.Context, fill func(s *queueSlot, block []byte)) error {
	if err := x.begin(); err != nil {
		return err
	}
	defer x.finish()
	m, b := x.mon, takeWakes()
	var waitNode *park.WaitNode
	var off arenakernel.Offset
	var block []byte
	defer func() { x.unstage(off) }()
	returnNode := func() {
		if waitNode != nil {
			waitNode.Return()
		}
	}
	for {
		m.reapIfDue(b)
		if x.words.stopped.Load() != 0 {
			m.leave(b)
			returnNode()
			return x.stopped("queue.put")
		}
		if i, s := x.room(); s != nil {
			fill(s, nil)
			x.add(i, s)
			x.resolve(b)
			m.leave(b)
			returnNode()
			return nil
		}
		var again bool
		var err error
		if block == nil {
			if off, block, err = x.stage(false); err != nil {
				m.leave(b)
				returnNode()
				return err
			}
		}
		if block == nil {
			m.leave(nil)
			if off, block, err = x.stage(true); err == nil {
				err = m.enter(ctx)
			}
			if err != nil {
				m.wake(b)
				returnNode()
				return err
			}
			continue
		}
		if waitNode, again, err = m.waitNode(ctx, waitNode); err != nil {
			m.wake(b)
			return err
		}
		if !again {
			break
		}
	}
	fill(nil, block)
	crashpoint.Hit("queue.put.staged")
	m.join(waitNode, queuePut, uint64(off))
	m.leave(b)
	f, err := m.await(ctx, waitNode)
	switch {
	case err != nil:
		return err
	case f.result() == queueStopped:
		return x.stopped("queue.put")
	case f.result() != queueGranted:
		return x.corrupt("queue.put", "place of a waiting item")
	}
	return nil
}

// waitItem waits until this process has been given an item. The caller holds the queue lock. If
// there is an item, the queue lock is held again on return.
func (x *queueCore) waitItem(ctx context.Context, class uint16) (i uint32, s *queueSlot, err error) {
	m, b := x.mon, takeWakes()
	var waitNode *park.WaitNode
	for {
		m.reapIfDue(b)
		i, s := x.ready()
		if s != nil {
			x.take(i, s, class)
		}
		if s != nil || x.words.stopped.Load() != 0 {
			m.leave(b)
			if waitNode != nil {
				waitNode.Return()
			}
			if s == nil {
				return 0, nil, x.stopped("queue.get")
			}
			return x.given(i, class)
		}
		var again bool
		if waitNode, again, err = m.waitNode(ctx, waitNode); err != nil {
			m.wake(b)
			return 0, nil, err
		}
		if !again {
			break
		}
	}
	m.join(waitNode, class, 0)
	m.leave(b)
	f, err := m.await(ctx, waitNode)
	switch {
	case err != nil:
		return 0, nil, err
	case f.result() == queueStopped:
		return 0, nil, x.stopped("queue.get")
	}
	crashpoint.Hit("queue.get.granted")
	return x.given(f.aux(), class)
}

// given takes the queue lock and finds the slot that this process was given. The granter wakes
// this process before it has recorded the grant, and holds the queue lock until it has.
func (x *queueCore) given(i uint32, class uint16) (uint32, *queueSlot, error) {
	if err := x.mon.enter(nil); err != nil {
		return 0, nil, err
	}
	if s := x.slot(i); s != nil {
		st := queueState(s.state.Load())
		if want := st.to(class, x.name).kind(); st.kind() == want && st.participant() == x.name {
			return i, s, nil
		}
	}
	x.mon.leave(nil)
	return 0, nil, x.corrupt("queue.get", "state of a slot that this process was given")
}

func (x *queueCore) stopped(op string) error {
	return x.mon.fail(op, shmsync.ErrCanceled, nil, "it was shut down")
}

func (x *queueCore) corrupt(op, what string) error {
	return x.mon.fail(op, shmsync.ErrCorrupt, nil, "it has an impossible "+what)
}

// resolve gives items to getters and room to putters, in the order in which they came, while
// there is some. After Shutdown it ends the remaining waits.
func (x *queueCore) resolve(b *wakes) {
	for stopped := x.words.stopped.Load() != 0; x.resolveGetter(b, stopped) || x.resolvePutter(b, stopped); {
	}
}

// resolveGetter ends the first wait for an item if possible.
func (x *queueCore) resolveGetter(b *wakes, stopped bool) bool {
	w, ok := x.getters.head()
	if !ok {
		return false
	}
	if !x.mon.waiting(w) {
		x.abandon(w)
		return true
	}
	i, s := x.first()
	switch {
	case s != nil:
		if x.mon.end(b, w, queueGranted, i) {
			x.account(w)
		}
	case stopped:
		x.turnAway(b, w, queueStopped)
	default:
		return false
	}
	return true
}

// resolvePutter is resolveGetter for a wait for room: it copies the item, and the item is in the
// queue if the wait is still there.
func (x *queueCore) resolvePutter(b *wakes, stopped bool) bool {
	w, ok := x.putters.head()
	if !ok {
		return false
	}
	if !x.mon.waiting(w) {
		x.abandon(w)
		return true
	}
	if stopped {
		x.turnAway(b, w, queueStopped)
		return true
	}
	i, s := x.spare()
	if s == nil {
		return false
	}
	owner := w.Owner()
	block := x.a.ClaimedBlock(arenakernel.Offset(w.Wanted().Load()), x.item, owner)
	switch {
	case block != nil:
		copy(x.bytes(s), block)
		crashpoint.Hit("queue.put.copied")
		if !x.mon.current(owner) {
			x.abandon(w) // the block may have belonged to another process
		} else if x.mon.end(b, w, queueGranted, i) {
			x.account(w)
		}
	case x.mon.current(owner):
		x.turnAway(b, w, queueCorrupt)
	default:
		x.abandon(w)
	}
	return true
}

// abandon removes a wait whose owner is no longer there.
func (x *queueCore) abandon(w wait) {
	x.detach(w)
	x.mon.releaseNode(w)
}

// turnAway ends a wait without a grant.
func (x *queueCore) turnAway(b *wakes, w wait, result uint32) {
	if x.mon.end(b, w, result, 0) {
		x.mon.account(w, nil)
	}
}

// account makes the change for a wait that was granted something: its item is in the queue, or
// its owner has the item of the slot.
func (x *queueCore) account(w wait) {
	f := outcome(w.Extra().Load())
	i := f.aux()
	s := x.slot(i)
	if f.result() != queueGranted || s == nil {
		x.mon.account(w, nil)
		return
	}
	var c change
	st := queueState(s.state.Load())
	switch {
	case f.class() == queuePut && st.kind() == queueFree:
		x.number(s)
		c.set(&s.state, uint64(makeQueueState(queueFull, 0, 0)))
		x.mon.account(w, &c)
		x.unspare(i, s)
		x.append(i, s)
	case f.class() != queuePut && st.kind() == queueFull:
		c.set(&s.state, uint64(st.to(f.class(), w.Owner())))
		x.mon.account(w, &c)
		x.unlink(i, s)
		storeWord(&x.words.out, x.words.out.Load()+1)
	default:
		x.mon.account(w, nil) // a peer wrote the position
	}
}

// line is the queue for waits of a class.
func (x *queueCore) line(class uint16) *fifo {
	if class == queuePut {
		return &x.putters
	}
	return &x.getters
}

func (x *queueCore) detach(w wait)  { x.line(w.class()).detach(w) }
func (x *queueCore) requeue(w wait) { x.line(w.class()).requeue(w) }

func (x *queueCore) each(f func(wait) bool) {
	x.getters.each(f)
	x.putters.each(f)
}

func (x *queueCore) clear() {
	x.getters.clear()
	x.putters.clear()
	x.index()
}
