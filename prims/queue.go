package prims

import (
	"context"
	"fmt"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var _ = crashpoint.Register("queue.shutdown.marked")

// Queue is a bounded queue of values between processes: any number of goroutines of any number of
// processes put items in and get them out. T must have no pointers. Items are copied, so a T should be
// small. Put large data elsewhere in the arena, and pass its offset through the queue.
//
// Items come out in the order in which they went in. Calls that wait for an item or for room are woken about in the
// order in which they came. But no item or room is reserved for a woken call: a call that arrives meanwhile may get
// it first, and the woken call then waits again. A Queue has no lock. If a process is stopped at any point, the
// others go on. The stopped process keeps its leases. A Put that is stopped may also keep the room for its item, and a
// Get that is stopped may keep the item that it is about to return.
//
// At most one Get returns an item. The item then belongs to the caller, and is lost if the process of the caller
// dies. Lease takes an item, too, but the queue keeps the item until the process calls Ack. If the process dies
// before that, or calls Nack, the item goes back to its place in the order, which is the front of the queue. So no
// leased item is lost: it is in the queue, or is on lease, or a lease of it was acknowledged.
//
// If a process dies inside Put, its item is in the queue either completely or not at all. If a process dies inside
// Get, the item stays in the queue, unless Get had already removed it and was about to return.
//
// In the terminology of the Go memory model, and across processes: the Put of an item
// synchronizes before the return of the Get or Lease of that item, and the n'th Get or
// Ack synchronizes before the return of the n+C'th Put, where C is the capacity.
//
// A ring of words, the cells, gives the order of the items. Each cell has the number of a lap, that is, of a round
// through the ring: the last lap in which a Put filled the cell, as in SCQ (Nikolaev, 2019). Unlike in SCQ, each step
// is a compare-and-swap that also stores the ID of the participant, so that the step can be repaired if the
// participant dies. Leases are those of message queues such as SQS and beanstalkd. But a lease ends with the death of
// the process, and not after a time limit.
type Queue[T any] struct{ core *queueCore }

// QueueOptions says how a Queue is created. A nil *QueueOptions means the zero value.
type QueueOptions struct {
	// Spin bounds how long a waiter of a new object spins before it sleeps. If it is 0,
	// waiters learn the bound from earlier spins; if it is negative, they never spin.
	Spin time.Duration
}

// QueueItemMost is the most bytes that an item of a Queue may have.
const QueueItemMost = 64 << 10

var queueKind = arenakernel.KindOf("QUEU")

const (
	queueVersion      = 3
	queueCapacityMost = 1 << 30
)

// OpenQueue finds the Queue of that name in the arena or creates it, with room for capacity items. An item on lease
// still takes up room. An empty name makes a new anonymous Queue.
//
// If an existing Queue has items of another layout or another capacity, the error Is
// ErrIncompatible. If capacity is below 1, the error Is [fs.ErrInvalid]. A process that does not
// know the capacity calls AttachQueue. OpenQueue panics if T has pointers or more than
// QueueItemMost bytes, or if the capacity is more than 1<<30.
func OpenQueue[T any](a *arena.Arena, name string, capacity int, opts *QueueOptions) (*Queue[T], error) {
	if err := needs("Queue", name, "a capacity", int64(capacity)); err != nil {
		return nil, err
	}
	return openQueue[T]((*arenakernel.Arena)(a), name, capacity, opts, false)
}

func openQueue[T any](a *arenakernel.Arena, name string, capacity int, opts *QueueOptions, attach bool) (*Queue[T], error) {
	layout, item := queueLayout[T]()
	if capacity > queueCapacityMost {
		panic(fmt.Sprintf("shmsync: OpenQueue %q with a capacity of %d", name, capacity))
	}
	var opt QueueOptions
	if opts != nil {
		opt = *opts
	}
	places := uint32(capacity)
	x, err := openAs(a, arenakernel.ObjectSpec{
		Existing: attach, Kind: queueKind, Version: queueVersion, Name: name, Layout: layout, Type: arenakernel.TypeTextOf[T](),
		Size: queueBytes(uint64(places), item), AnySize: true,
		Init: func(body []byte) { initQueue(body, places, item, spinField(opt.Spin)) },
	}, "queue.open", newQueue[T], func(x *queueCore) string {
		if attach || x.capacity == places {
			return ""
		}
		return fmt.Sprintf("it has a capacity of %d; asked for %d", x.capacity, capacity)
	})
	if err != nil {
		return nil, err
	}
	return &Queue[T]{x}, nil
}

// QueueAt opens the Queue at an offset that another process got from the method Offset.
func QueueAt[T any](a *arena.Arena, off arena.Offset) (*Queue[T], error) {
	layout, _ := queueLayout[T]()
	x, err := handleAt(a, off, "queue.open", queueKind, queueVersion, queueHeadBytes,
		func(k *arenakernel.Arena, o arenakernel.Object) (*queueCore, error) {
			if what := k.TypeDiffers(o, layout, arenakernel.TypeTextOf[T]()); what != "" {
				return nil, &shmsync.Error{Op: "queue.open", Object: objectName(o), Err: shmsync.ErrIncompatible,
					Detail: fmt.Sprintf("opened as a %T: %s", *new(T), what)}
			}
			return newQueue[T](k, o)
		})
	if err != nil {
		return nil, err
	}
	return &Queue[T]{x}, nil
}

// queueLayout returns a fingerprint of the types and the places of the fields of T, and the size of an item in bytes.
func queueLayout[T any]() (layout, item uint64) {
	layout, err := arenakernel.LayoutOf[T]()
	if err != nil {
		panic("shmsync: Queue: " + err.Error())
	}
	if item = uint64(sizeOf[T]()); item > QueueItemMost {
		panic(fmt.Sprintf("shmsync: Queue of %T, which has %d bytes; the most is %d", *new(T), item, QueueItemMost))
	}
	return layout, item
}

func newQueue[T any](a *arenakernel.Arena, o arenakernel.Object) (*queueCore, error) {
	x, err := buildQueue(a, o, false)
	if err == nil && x.item != uint64(sizeOf[T]()) {
		err = x.fail("queue.open", shmsync.ErrCorrupt, fmt.Sprintf("it has an impossible size of its items, %d", x.item))
	}
	return x, err
}

// Put puts v into q, and waits until there is room. An error means that v is not in q. The error Is ErrCanceled
// after Shutdown; otherwise it Is ErrCorrupt or ErrClosed.
func (q *Queue[T]) Put(v T) error { return q.PutContext(context.Background(), v) }

// PutContext is like Put, but returns ctx.Err() if ctx ends while it waits. If there is room, it ignores ctx.
func (q *Queue[T]) PutContext(ctx context.Context, v T) error {
	x := q.core
	if x.open() && q.tryPut(v) == queuePutDone {
		x.done(&x.items, 1)
		return nil
	}
	return q.putSlow(ctx, v)
}

// tryPut puts v into q if there is room. It does not wake a waiter for the item; the caller has to do that.
func (q *Queue[T]) tryPut(v T) queuePutResult {
	x := q.core
	c, ok := x.claim()
	if !ok {
		return queuePutCorrupt
	}
	if c.s == nil {
		return queuePutNoRoom
	}
	*queueItem[T](c.s) = v
	return x.publish(c)
}

// putSlow continues a PutContext whose fast path has failed.
func (q *Queue[T]) putSlow(ctx context.Context, v T) error {
	x := q.core
	return x.await(ctx, &x.room, "queue.put", func() (bool, error) {
		if x.stopped() {
			return false, x.canceled("queue.put")
		}
		switch q.tryPut(v) {
		case queuePutNoRoom:
			return false, nil
		case queuePutStopped:
			return false, x.canceled("queue.put")
		case queuePutCorrupt:
			return false, x.corrupt("queue.put")
		}
		x.counts.took()
		x.tell(&x.items, 1)
		return true, nil
	})
}

// TryPut puts v into q if there is room, and reports whether it did. It fails after Shutdown. TryPut may find no room
// while another call keeps room that it is about to fill or to free.
func (q *Queue[T]) TryPut(v T) bool {
	x := q.core
	x.opening.use()
	if !x.open() {
		return false
	}
	put := q.tryPut(v)
	if put == queuePutNoRoom {
		x.checkTry(&x.room, func() { put = q.tryPut(v) })
	}
	if put != queuePutDone {
		return false
	}
	x.done(&x.items, 1)
	return true
}

// Get takes the first item out of q, and waits until there is one. An error means that Get took no item. The
// error Is ErrCanceled if q was shut down and has no item left; otherwise it Is ErrCorrupt or ErrClosed.
func (q *Queue[T]) Get() (T, error) { return q.GetContext(context.Background()) }

// GetContext is like Get, but returns ctx.Err() if ctx ends while it waits. If there is an item, it ignores ctx.
func (q *Queue[T]) GetContext(ctx context.Context) (v T, err error) {
	x := q.core
	if !x.shut.Load() {
		if t, ok := x.take(queueTaken); ok && t.s != nil {
			v = *queueItem[T](t.s)
			if x.drop(t) {
				x.done(&x.room, 1)
				return v, nil
			}
		}
	}
	return q.getSlow(ctx)
}

// getSlow continues a GetContext whose fast path has failed.
func (q *Queue[T]) getSlow(ctx context.Context) (v T, err error) {
	x := q.core
	err = x.awaitItem(ctx, queueTaken, func(t queueItemTaken) bool {
		got := *queueItem[T](t.s)
		if !x.drop(t) {
			return false
		}
		v = got
		x.tell(&x.room, 1)
		return true
	})
	return v, err
}

// TryGet takes the first item out of q if there is one, and reports whether it did.
func (q *Queue[T]) TryGet() (v T, ok bool) {
	x := q.core
	x.opening.use()
	t, ok := x.take(queueTaken)
	if ok && t.s == nil {
		x.checkTry(&x.items, func() { t, ok = x.take(queueTaken) })
	}
	if !ok || t.s == nil {
		return v, false
	}
	got := *queueItem[T](t.s)
	if !x.drop(t) {
		return v, false
	}
	x.done(&x.room, 1)
	return got, true
}

// Len is the number of items in q, not counting those on lease. The number may be out of date
// when Len returns.
func (q *Queue[T]) Len() int {
	q.core.opening.use()
	return q.core.length()
}

// Cap is the number of items for which q has room, including those on lease. Len may exceed Cap for a while: if a
// process dies inside Get, the item may come back after a Put has used its room.
func (q *Queue[T]) Cap() int { return int(q.core.capacity) }

// Shutdown makes every later Put fail with an error that Is ErrCanceled. A Get fails with such an error when no
// item is left. Shutdown wakes all waiters. It cannot be undone, and a second Shutdown does nothing.
//
// Leases stay valid, and can be acknowledged as before. An item that comes back from a lease is in q again, and
// the next Get takes it, even if an earlier Get has already failed.
//
// Shutdown panics with an *Error that Is ErrClosed if the handle is closed.
func (q *Queue[T]) Shutdown() {
	x := q.core
	defer x.opening.serve(x.items.queue).end()
	// sync(queue.shutdown): release
	x.words.flags.Or(queueStoppedFlag)
	crashpoint.Hit("queue.shutdown.marked")
	x.items.wake.WakeAll()
	x.room.wake.WakeAll()
}

// Offset is the place of the Queue in its arena, for QueueAt in another process.
func (q *Queue[T]) Offset() arena.Offset { return q.core.object.Offset }

// Close closes this handle on the Queue, and no other handle. Calls that wait through this handle end with an error
// that Is ErrClosed, unless there is an item or room for them. This process keeps its leases, and can end them as
// before; see [Lease]. A second Close is an error that Is ErrClosed.
func (q *Queue[T]) Close() error {
	return q.core.opening.close("queue.close")
}

// QueueState is the result of State.
type QueueState struct {
	Capacity int  // how many items fit
	Queued   int  // items in the queue
	Out      int  // items on lease, or in a Get that has not returned
	Getting  bool // a call has begun to wait for an item; it may have given up
	Putting  bool // a call has begun to wait for room; it may have given up
	Shutdown bool
}

// State reads q without locking it. The answer may be out of date when State returns, and its fields may be from
// different moments.
func (q *Queue[T]) State() QueueState {
	q.core.opening.use()
	x := q.core
	return QueueState{
		Capacity: q.Cap(), Queued: q.Len(), Out: x.out(),
		Getting: x.items.wake.Announced(), Putting: x.room.wake.Announced(), Shutdown: x.stopped(),
	}
}

// String renders the state on one line.
func (q *Queue[T]) String() string {
	return fmt.Sprintf("queue %s: %+v", objectName(q.core.object), q.State())
}
