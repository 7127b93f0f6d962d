//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// queueOrder tells another process which call to make on the queue "q".
type queueOrder struct {
	ID   int
	Verb string   // put, tryput, get, tryget, lease, trylease, ack, nack, shutdown, look, arm
	IDs  []uint64 // the IDs of tickets
	N    int      // how many to get
	Ends int      // the context ends after this many ms; 0: never
	At   string   // the crash point for the verb arm
}

type queueAnswer struct {
	ID    int
	OK    bool
	IDs   []uint64
	Times []int // how often each leased item had been leased before
	Err   string
	Panic string
}

func init() {
	proctest.Register("queue", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		a, err := arena.Attach(name, &arena.Options{Label: "other"})
		if err != nil {
			c.Fatal(err)
		}
		q, err := prims.AttachQueue[queueTicket](a, "q", nil)
		if err != nil {
			c.Fatal(err)
		}
		x := queueActor{q: q, leases: map[uint64]prims.Lease[queueTicket]{}}
		c.Ready()
		for {
			var o queueOrder
			c.Recv(&o)
			go func() { c.Say(x.act(o)) }()
		}
	})
}

type queueActor struct {
	q      *prims.Queue[queueTicket]
	mu     sync.Mutex
	leases map[uint64]prims.Lease[queueTicket] // guarded by: mu
}

func (x *queueActor) act(o queueOrder) (r queueAnswer) {
	r.ID = o.ID
	defer func() {
		if p := recover(); p != nil {
			r.Panic = fmt.Sprint(p)
		}
	}()
	ctx := context.Background()
	if o.Ends > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(o.Ends)*time.Millisecond)
		defer cancel()
	}
	vs := make([]queueTicket, len(o.IDs))
	for i, id := range o.IDs {
		vs[i] = ticket(id)
	}
	err := x.do(ctx, o, vs, &r)
	r.OK = r.OK || err == nil && o.Verb[:3] != "try"
	if err != nil {
		r.Err = err.Error()
	}
	return r
}

func (x *queueActor) do(ctx context.Context, o queueOrder, vs []queueTicket, r *queueAnswer) (err error) {
	got := func(t queueTicket) {
		if !t.whole() {
			panic("torn")
		}
		r.IDs = append(r.IDs, t.ID)
	}
	lease := func(l prims.Lease[queueTicket]) {
		got(l.Item)
		r.Times = append(r.Times, l.Attempts)
		x.mu.Lock()
		defer x.mu.Unlock()
		x.leases[l.Item.ID] = l
	}
	switch o.Verb {
	case "put":
		if len(vs) == 1 {
			return x.q.PutContext(ctx, vs[0])
		}
		var n int
		n, err = x.q.PutBatchContext(ctx, vs)
		r.IDs = o.IDs[:n]
	case "look":
		x.q.Look()
	case "tryput":
		r.OK = x.q.TryPut(vs[0])
	case "get":
		into := make([]queueTicket, max(o.N, 1))
		n := 1
		if o.N > 1 {
			n, err = x.q.GetBatchContext(ctx, into)
		} else {
			into[0], err = x.q.GetContext(ctx)
		}
		if err == nil {
			for _, t := range into[:n] {
				got(t)
			}
		}
	case "tryget":
		var t queueTicket
		if t, r.OK = x.q.TryGet(); r.OK {
			got(t)
		}
	case "lease":
		for range max(o.N, 1) {
			l, err := x.q.LeaseContext(ctx)
			if err != nil {
				return err
			}
			lease(l)
		}
	case "trylease":
		var l prims.Lease[queueTicket]
		if l, r.OK = x.q.TryLease(); r.OK {
			lease(l)
		}
	case "ack", "nack":
		for _, id := range o.IDs {
			x.mu.Lock()
			l := x.leases[id]
			x.mu.Unlock()
			if o.Verb == "ack" {
				l.Ack()
			} else {
				l.Nack()
			}
		}
	case "shutdown":
		x.q.Shutdown()
	case "arm":
		crashpoint.Arm(o.At, 1)
	default:
		panic("no such verb: " + o.Verb)
	}
	return err
}

// queueOther starts another process that carries out queueOrders.
func queueOther(t *testing.T, a *arena.Arena, opts ...proctest.Option) *proctest.Proc {
	p := proctest.Start(t, "queue", append(opts, proctest.Params(nameOf(a)), proctest.Dump(func() string { return words(a) }))...)
	p.Await(t)
	return p
}

// queueDo sends an order to the other process, and waits for the answer.
func queueDo(t *testing.T, p *proctest.Proc, o queueOrder) queueAnswer {
	t.Helper()
	p.Send(o)
	return queueHear(t, p, o.ID)
}

func queueHear(t *testing.T, p *proctest.Proc, id int) (r queueAnswer) {
	t.Helper()
	p.Recv(t, &r)
	require.Equal(t, id, r.ID)
	require.Empty(t, r.Panic)
	return r
}

// queueWaits waits until the given numbers of goroutines wait for an item and for room.
func queueWaits(t *testing.T, a *arena.Arena, q *prims.Queue[queueTicket], getters, putters int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d getters, %d putters", getters, putters), func() string { return words(a) }, func() bool {
		g, p := q.Waiting()
		return g == getters && p == putters
	})
}

// queueNow returns the state of q without Getting and Putting. These two may stay true after the last waiter
// has left.
func queueNow(q *prims.Queue[queueTicket]) prims.QueueState {
	st := q.State()
	st.Getting, st.Putting = false, false
	return st
}

// queueFill puts tickets from first to last into q.
func queueFill(t *testing.T, q *prims.Queue[queueTicket], first, last uint64) {
	t.Helper()
	for id := first; id <= last; id++ {
		require.True(t, q.TryPut(ticket(id)))
	}
}

// queueDrain takes all items out of q, and returns their IDs.
func queueDrain(t *testing.T, q *prims.Queue[queueTicket]) (ids []uint64) {
	t.Helper()
	for q.Len() > 0 {
		if v, ok := q.TryGet(); ok {
			require.True(t, v.whole())
			ids = append(ids, v.ID)
		}
	}
	return ids
}
