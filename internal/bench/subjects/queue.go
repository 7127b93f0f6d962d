//go:build linux

package subjects

import (
	"errors"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/peers"
	"github.com/shmsync/shmsync/prims"
)

// queueSubjects has the library's queue in two forms. In the form queue-lease, a consumer leases each item and then
// acknowledges it.
var queueSubjects = []*bench.Subject{
	{By: bench.Library, Prim: "queue", Segment: newArena, Open: openQueue, Scenarios: []string{"queue"}},
	{By: bench.Library, Prim: "queue-lease", Segment: newArena, Open: openQueue, Brief: []string{}, Scenarios: []string{"queue"}},
}

// queue gives a prims.Queue the methods that the scenarios call.
type queue struct{ *prims.Queue[uint64] }

func openQueue(w *bench.Worker, _ int) (any, error) {
	a, err := JoinArena(w)
	if err != nil {
		return nil, err
	}
	q, err := prims.OpenQueue[uint64](a, "queue", int(w.Shape.Capacity), nil)
	if err != nil {
		return nil, err
	}
	if w.Subject.Prim == "queue-lease" {
		return leaseQueue{queue{q}}, nil
	}
	return queue{q}, nil
}

func (q queue) Put(items []uint64) {
	if len(items) == 1 {
		peers.Must(q.Queue.Put(items[0]))
		return
	}
	_, err := q.PutBatch(items)
	peers.Must(err)
}

func (q queue) Get(buf []uint64) int {
	var err error
	n := 1
	if len(buf) == 1 {
		buf[0], err = q.Queue.Get()
	} else {
		n, err = q.GetBatch(buf)
	}
	return q.got(n, err)
}

// got returns n. If err says that the queue is shut down and empty, it returns 0. Any other error is a panic.
func (q queue) got(n int, err error) int {
	if errors.Is(err, shmsync.ErrCanceled) {
		return 0
	}
	peers.Must(err)
	return n
}

func (q queue) Shut(int) { q.Shutdown() }

// leaseQueue is a queue whose consumers lease items, one at a time, and acknowledge each of them.
type leaseQueue struct{ queue }

func (q leaseQueue) Get(buf []uint64) int {
	l, err := q.Lease()
	if err == nil {
		buf[0] = l.Item
		l.Ack()
	}
	return q.got(1, err)
}
