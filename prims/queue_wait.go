package prims

import (
	"context"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
)

var (
	_ = crashpoint.Register("queue.put.staged")
	_ = crashpoint.Register("queue.get.granted")
)

// waitRoom is for a Put that found no room. It ends when the item that fill writes is in the
// queue. fill is called once or more, with a slot or with a block for the item.
func (x *queueCore) waitRoom(ctx context.Context, fill func(s *queueSlot, block []byte)) error {
	if err := x.mon.begin(); err != nil {
		return err
	}
	defer x.mon.finish()
	for {
		done, err := x.lock(ctx, func() bool { return x.put(fill) })
		if done {
			x.tellGetters()
			return nil
		}
		if err != nil {
			return err
		}
		if err = x.lineUp(ctx, fill); err != errQueueKicked {
			return err
		}
	}
}

// tellGetters serves the waiting Gets, if there are any.
func (x *queueCore) tellGetters() {
	if !x.getters.empty() {
		x.serve()
	}
}

// lineUp is waitRoom with the queue lock held, which it leaves.
func (x *queueCore) lineUp(ctx context.Context, fill func(s *queueSlot, block []byte)) error {
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
		x.step()
		m.reapIfDue(b)
		if x.stopped() {
			m.leave(b)
			returnNode()
			return x.shutDown("queue.put")
		}
		if x.putters.empty() && x.put(fill) {
			x.resolve(b)
			m.leave(b)
			returnNode()
			return nil
		}
		if x.bad.Load() {
			m.leave(b)
			returnNode()
			return x.corrupt("queue.put", "ring")
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
	stamp := waitNode.Node.Stamp().Load()
	x.afterJoin(b)
	f, err := m.await(ctx, waitNode)
	switch {
	case err != nil:
		return err
	case f.result() == queueStopped:
		return x.shutDown("queue.put")
	case f.result() != queueGranted:
		return x.corrupt("queue.put", "place of a waiting item")
	}
	// The granter may be stopped before it has put the item into the queue.
	if s := x.slot(f.aux()); s != nil && x.publishGranted(f.aux(), s, stamp) {
		x.tellGetters()
	}
	return nil
}

// afterJoin is the second half of the store-load pair of a wait: the process that makes room
// or an item now sees it in its line, or it sees the room or the item. It leaves the queue
// lock.
func (x *queueCore) afterJoin(b *wakes) {
	x.words.turns.Add(1) // a full fence
	x.resolve(b)
	x.mon.leave(b)
}

// waitItem is for a Get or Lease that found no item: it waits until this process has one.
func (x *queueCore) waitItem(ctx context.Context, class uint16) (i uint32, s *queueSlot, err error) {
	if err := x.mon.begin(); err != nil {
		return 0, nil, err
	}
	defer x.mon.finish()
	for {
		done, err := x.lock(ctx, func() bool {
			i, s = x.takeAs(class)
			return s != nil
		})
		if done {
			return i, s, nil
		}
		if err != nil {
			return 0, nil, err
		}
		if i, s, err = x.lineUpItem(ctx, class); err != errQueueKicked {
			return i, s, err
		}
	}
}

// takeAs is take for a class of waits.
func (x *queueCore) takeAs(class uint16) (uint32, *queueSlot) {
	if class != queueLease {
		return x.take(queueTaken)
	}
	x.deviate()
	i, s := x.take(queueLeased)
	if s != nil {
		storeWord(&s.times, s.times.Load()+1)
	}
	return i, s
}

// lineUpItem is waitItem with the queue lock held, which it leaves.
func (x *queueCore) lineUpItem(ctx context.Context, class uint16) (i uint32, s *queueSlot, err error) {
	m, b := x.mon, takeWakes()
	var waitNode *park.WaitNode
	for {
		x.step()
		m.reapIfDue(b)
		if x.getters.empty() {
			i, s = x.takeAs(class)
		}
		bad := s == nil && x.bad.Load()
		if s != nil || x.stopped() || bad {
			m.leave(b)
			if waitNode != nil {
				waitNode.Return()
			}
			switch {
			case s != nil:
				return i, s, nil
			case bad:
				return 0, nil, x.corrupt("queue.get", "ring")
			}
			return 0, nil, x.shutDown("queue.get")
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
	x.afterJoin(b)
	f, err := m.await(ctx, waitNode)
	switch {
	case err != nil:
		return 0, nil, err
	case f.result() == queueStopped:
		return 0, nil, x.shutDown("queue.get")
	}
	crashpoint.Hit("queue.get.granted")
	return x.given(f.aux(), class)
}

// given takes the slot that this process was given. The granter may be stopped before it has
// written down whose the slot is.
func (x *queueCore) given(i uint32, class uint16) (uint32, *queueSlot, error) {
	kind := queueTaken
	if class == queueLease {
		kind = queueLeased
	}
	for s := x.slot(i); s != nil; {
		st := queueState(s.state.Load())
		if st.kind() != queueHanding && (st.kind() != queueGiven || st.participant() != x.name) {
			break
		}
		// The loop ends: the granter changes the state once.
		if s.state.CompareAndSwap(uint64(st), uint64(st.with(kind, x.name))) {
			if class == queueLease {
				storeWord(&s.times, s.times.Load()+1)
			}
			return i, s, nil
		}
	}
	return 0, nil, x.corrupt("queue.get", "state of a slot that this process was given")
}

func (x *queueCore) shutDown(op string) error {
	return x.mon.fail(op, shmsync.ErrCanceled, nil, "it was shut down")
}

func (x *queueCore) corrupt(op, what string) error {
	return x.mon.fail(op, shmsync.ErrCorrupt, nil, "it has an impossible "+what)
}
