//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// queueTicket is an item of the workload. It has the number of the ticket, and sums that show whether the item
// is torn or mixed up with another item.
type queueTicket struct {
	ID  uint64
	Sum [5]uint64
}

func ticket(id uint64) (t queueTicket) {
	t.ID = id
	for i := range t.Sum {
		t.Sum[i] = id * uint64(2*i+3)
	}
	return t
}

func (t queueTicket) whole() bool { return t == ticket(t.ID) }

const queueTickets = 5

// queueBoard says whether the tickets have been put into the queue.
type queueBoard struct{ Made atomic.Uint32 }

func init() {
	addWorkload(workload{
		name:   "queue",
		points: []string{"queue.add.*", "queue.take.*", "queue.drop.*", "queue.back.*", "queue.lease.*", "queue.wait.*", "park.wake.*"},
		open:   openQueueWork,
	})
}

// openQueueWork opens the workload. It has two queues. Tickets are leased from the first queue and come back by
// a Nack or a death, so no ticket may be lost or exist twice. All other calls fill and drain the second queue.
func openQueueWork(a *arena.Arena) (worker, error) {
	w := &queueWorker{}
	var err error
	if w.leased, err = prims.OpenQueue[queueTicket](a, "leased", queueTickets, nil); err != nil {
		return nil, err
	}
	if w.plain, err = prims.OpenQueue[queueTicket](a, "plain", 3, nil); err != nil {
		return nil, err
	}
	board, err := arena.Value[queueBoard](a, "tickets")
	if err != nil {
		return nil, err
	}
	if board.Made.CompareAndSwap(0, 1) {
		for i := range uint64(queueTickets) {
			if !w.leased.TryPut(ticket(i + 1)) {
				return nil, errors.New("no room for a ticket")
			}
		}
	}
	return w, nil
}

type queueWorker struct{ leased, plain *prims.Queue[queueTicket] }

func (w *queueWorker) turn(g int, r *rand.Rand) error {
	if r.IntN(2) == 0 {
		return w.lease(r)
	}
	return w.move(g, r)
}

// lease takes a ticket on lease, and puts it back with Nack.
func (w *queueWorker) lease(r *rand.Rand) error {
	return ends(r, func(ctx context.Context) error {
		l, err := w.leased.LeaseContext(ctx)
		switch {
		case gaveUp(err):
			return nil
		case err != nil:
			return err
		case !l.Item.whole() || l.Item.ID > queueTickets:
			return fmt.Errorf("a torn ticket: %+v", l.Item)
		}
		for range r.IntN(20) {
			runtime.Gosched()
		}
		l.Nack()
		return nil
	})
}

// move puts items into the second queue, or takes some out. Each call has a context that ends soon, because otherwise
// it might wait for other workers for ever.
func (w *queueWorker) move(g int, r *rand.Rand) error {
	return ends(r, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Millisecond)
		defer cancel()
		id := r.Uint64()
		var err error
		if g%2 == 0 {
			switch r.IntN(3) {
			case 0:
				err = w.plain.PutContext(ctx, ticket(id))
			case 1:
				_, err = w.plain.PutBatchContext(ctx, []queueTicket{ticket(id), ticket(id + 1)})
			default:
				w.plain.TryPut(ticket(id))
			}
		} else {
			var got [3]queueTicket
			n := 0
			switch r.IntN(4) {
			case 0:
				if got[0], err = w.plain.GetContext(ctx); err == nil {
					n = 1
				}
			case 1:
				n, err = w.plain.GetBatchContext(ctx, got[:])
			case 2:
				var ok bool
				if got[0], ok = w.plain.TryGet(); ok {
					n = 1
				}
			default:
				var l prims.Lease[queueTicket]
				if l, err = w.plain.LeaseContext(ctx); err == nil {
					got[0], n = l.Item, 1
					l.Ack()
				}
			}
			for _, t := range got[:n] {
				if !t.whole() {
					return fmt.Errorf("a torn item: %+v", t)
				}
			}
		}
		if gaveUp(err) {
			err = nil
		}
		return err
	})
}

func (w *queueWorker) rest() error {
	if st := w.leased.State(); st.Queued != queueTickets || st.Out != 0 {
		return fmt.Errorf("%w: %v", errLeft, w.leased)
	}
	if !w.leased.Consistent() || !w.plain.Consistent() {
		return fmt.Errorf("%w: the ring is not what the slots are", errLeft)
	}
	for id := range uint64(queueTickets) {
		t, ok := w.leased.TryGet()
		if !ok || t != ticket(id+1) {
			return fmt.Errorf("%w: ticket %d is %+v, %v", errLeft, id+1, t, ok)
		}
	}
	if st := w.plain.State(); st.Out != 0 {
		return fmt.Errorf("%w: %v", errLeft, w.plain)
	}
	for {
		if t, ok := w.plain.TryGet(); !ok {
			break
		} else if !t.whole() {
			return fmt.Errorf("%w: %+v", errLeft, t)
		}
	}
	if err := w.leased.Close(); err != nil {
		return err
	}
	return w.plain.Close()
}
