//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/prims"
)

func queueTest(t *testing.T, capacity int) (*arena.Arena, *prims.Queue[queueTicket], *proctest.Proc) {
	a := newArena(t, nil)
	q := newQueue[queueTicket](t, a, "q", capacity)
	return a, q, queueOther(t, a)
}

func TestQueueBasicEnqueueDequeue(t *testing.T) {
	_, q, p := queueTest(t, 4)
	for i := range uint64(10) {
		require.NoError(t, q.Put(ticket(3*i)))
		require.True(t, queueDo(t, p, queueOrder{Verb: "put", IDs: []uint64{3*i + 1}}).OK)
		require.NoError(t, q.Put(ticket(3*i+2)))
		require.Equal(t, 3, q.Len())
		require.Equal(t, []uint64{3 * i}, queueDo(t, p, queueOrder{Verb: "get"}).IDs)
		v, err := q.Get()
		require.NoError(t, err)
		require.Equal(t, ticket(3*i+1), v)
		require.Equal(t, []uint64{3*i + 2}, queueDrain(t, q))
	}
	require.Equal(t, prims.QueueState{Capacity: 4}, queueNow(q))
	require.Equal(t, 4, q.Cap())
}

func TestQueueTryEnqueueDequeue(t *testing.T) {
	_, q, p := queueTest(t, 2)
	_, ok := q.TryGet()
	require.False(t, ok)
	require.False(t, queueDo(t, p, queueOrder{Verb: "tryget"}).OK)
	require.False(t, queueDo(t, p, queueOrder{Verb: "trylease"}).OK)
	require.True(t, q.TryPut(ticket(1)))
	require.True(t, queueDo(t, p, queueOrder{Verb: "tryput", IDs: []uint64{2}}).OK)
	require.False(t, q.TryPut(ticket(3)))
	require.False(t, queueDo(t, p, queueOrder{Verb: "tryput", IDs: []uint64{3}}).OK)
	require.Equal(t, []uint64{1}, queueDo(t, p, queueOrder{Verb: "tryget"}).IDs)
	require.Equal(t, []uint64{2}, queueDrain(t, q))
}

func TestQueueBlockingDequeue(t *testing.T) {
	a, q, p := queueTest(t, 2)
	p.Send(queueOrder{ID: 1, Verb: "get"})
	queueWaits(t, a, q, 1, 0)
	require.NoError(t, q.Put(ticket(7)))
	require.Equal(t, []uint64{7}, queueHear(t, p, 1).IDs)
	p.Send(queueOrder{ID: 2, Verb: "get", Ends: 20})
	require.Equal(t, context.DeadlineExceeded.Error(), queueHear(t, p, 2).Err)
	queueWaits(t, a, q, 0, 0)
}

func TestQueueBlockingEnqueue(t *testing.T) {
	a, q, p := queueTest(t, 2)
	queueFill(t, q, 1, 2)
	p.Send(queueOrder{ID: 1, Verb: "put", IDs: []uint64{3}})
	queueWaits(t, a, q, 0, 1)
	v, err := q.Get()
	require.NoError(t, err)
	require.Equal(t, ticket(1), v)
	require.True(t, queueHear(t, p, 1).OK)
	p.Send(queueOrder{ID: 2, Verb: "put", IDs: []uint64{4}, Ends: 20})
	require.Equal(t, context.DeadlineExceeded.Error(), queueHear(t, p, 2).Err)
	queueWaits(t, a, q, 0, 0)
	require.Equal(t, []uint64{2, 3}, queueDrain(t, q), "the item of a Put that gave up is not in the queue")
}

func TestQueueTeardownUnblocksDequeue(t *testing.T) {
	a, q, p := queueTest(t, 2)
	p.Send(queueOrder{ID: 1, Verb: "get"})
	queueWaits(t, a, q, 1, 0)
	q.Shutdown()
	require.Contains(t, queueHear(t, p, 1).Err, `queue.get "q": canceled: it was shut down`)
}

func TestQueueTeardownUnblocksEnqueue(t *testing.T) {
	a, q, p := queueTest(t, 1)
	queueFill(t, q, 1, 1)
	done := make(chan error, 1)
	go func() { done <- q.Put(ticket(2)) }()
	queueWaits(t, a, q, 0, 1)
	require.True(t, queueDo(t, p, queueOrder{Verb: "shutdown"}).OK)
	require.ErrorIs(t, <-done, shmsync.ErrCanceled)
	require.Equal(t, []uint64{1}, queueDrain(t, q))
}

// TestQueueTeardownUnblocksMultipleWaiters: many goroutines of two processes wait for items, or for room.
// Shutdown ends all of these waits.
func TestQueueTeardownUnblocksMultipleWaiters(t *testing.T) {
	for _, verb := range []string{"get", "lease", "put"} {
		t.Run(verb, func(t *testing.T) {
			a, q, p := queueTest(t, 1)
			const each = 30
			getters, putters := 2*each, 0
			if verb == "put" {
				queueFill(t, q, 1, 1)
				getters, putters = 0, 2*each
			}
			var wg sync.WaitGroup
			for i := range each {
				p.Send(queueOrder{ID: i, Verb: verb, IDs: []uint64{9}})
				wg.Go(func() {
					var err error
					switch verb {
					case "get":
						_, err = q.Get()
					case "lease":
						_, err = q.Lease()
					default:
						err = q.Put(ticket(9))
					}
					if !errors.Is(err, shmsync.ErrCanceled) {
						t.Error(err)
					}
				})
			}
			queueWaits(t, a, q, getters, putters)
			q.Shutdown()
			for range each {
				var r queueAnswer
				p.Recv(t, &r)
				require.Contains(t, r.Err, "it was shut down")
			}
			wg.Wait()
			queueWaits(t, a, q, 0, 0)
		})
	}
}

// TestQueueTeardownSubsequentCallsFail: after Shutdown no item can be put. The items in the queue can still be
// taken. When none is left, calls fail.
func TestQueueTeardownSubsequentCallsFail(t *testing.T) {
	_, q, p := queueTest(t, 4)
	queueFill(t, q, 1, 3)
	l, err := q.Lease()
	require.NoError(t, err)
	q.Shutdown()
	q.Shutdown()
	require.True(t, queueDo(t, p, queueOrder{Verb: "shutdown"}).OK, "any number of times")
	require.True(t, q.State().Shutdown)
	require.ErrorIs(t, q.Put(ticket(9)), shmsync.ErrCanceled)
	require.Contains(t, queueDo(t, p, queueOrder{Verb: "put", IDs: []uint64{9}}).Err, "it was shut down")
	n, err := q.PutBatch([]queueTicket{ticket(9)})
	require.Zero(t, n)
	require.ErrorIs(t, err, shmsync.ErrCanceled)
	require.Equal(t, []uint64{2}, queueDo(t, p, queueOrder{Verb: "get"}).IDs)
	v, err := q.Get()
	require.NoError(t, err)
	require.Equal(t, ticket(3), v)
	for range 2 {
		_, err = q.Get()
		require.ErrorIs(t, err, shmsync.ErrCanceled)
		_, err = q.Lease()
		require.ErrorIs(t, err, shmsync.ErrCanceled)
		_, err = q.GetBatch(make([]queueTicket, 2))
		require.ErrorIs(t, err, shmsync.ErrCanceled)
		require.Contains(t, queueDo(t, p, queueOrder{Verb: "get"}).Err, "it was shut down")
	}
	l.Nack() // even after Gets have failed, an item that comes back can be taken
	require.Equal(t, []uint64{1}, queueDo(t, p, queueOrder{Verb: "get"}).IDs)
}

func TestQueueTeardownTryCallsFail(t *testing.T) {
	_, q, p := queueTest(t, 2)
	queueFill(t, q, 1, 1)
	q.Shutdown()
	require.False(t, q.TryPut(ticket(2)))
	require.False(t, queueDo(t, p, queueOrder{Verb: "tryput", IDs: []uint64{2}}).OK)
	require.Equal(t, []uint64{1}, queueDo(t, p, queueOrder{Verb: "tryget"}).IDs)
	require.False(t, queueDo(t, p, queueOrder{Verb: "tryget"}).OK)
	_, ok := q.TryLease()
	require.False(t, ok)
}

// TestQueueFifoOrdering: 64 items pass through a queue with room for 4, and come out in the order in which they
// were put.
func TestQueueFifoOrdering(t *testing.T) {
	_, q, p := queueTest(t, 4)
	ids := make([]uint64, 64)
	for i := range ids {
		ids[i] = uint64(i + 1)
	}
	p.Send(queueOrder{Verb: "put", IDs: ids})
	for _, id := range ids {
		v, err := q.Get()
		require.NoError(t, err)
		require.Equal(t, ticket(id), v)
	}
	require.Len(t, queueHear(t, p, 0).IDs, 64)
}

// TestQueueConcurrentMPMC: two processes have four producers and four consumers each, and each producer puts
// 200 items. Every item comes out exactly once, and the items of a producer come out in order.
func TestQueueConcurrentMPMC(t *testing.T) {
	for _, how := range []string{"get", "batch", "lease"} {
		t.Run(how, func(t *testing.T) {
			a := newArena(t, nil)
			q := newQueue[queueTicket](t, a, "q", 4)
			board, err := arena.Value[queueCrowdBoard](a, "board")
			require.NoError(t, err)
			p := proctest.Start(t, "queue/crowd", proctest.Params(queueCrowdParams{nameOf(a), how, 1}), proctest.Dump(func() string { return words(a) }))
			p.Await(t)
			require.NoError(t, queueCrowd(a, how, 0))
			p.WaitExit(t)
			for i := range board.Got {
				for k := range board.Got[i] {
					require.EqualValues(t, 1, board.Got[i][k].Load(), "item %d of producer %d", k, i)
				}
			}
			require.Zero(t, q.Len())
			require.True(t, q.Consistent())
			sound(t, a)
		})
	}
}

const (
	queueCrowdEach  = 4 // the number of producers in each process, and of consumers
	queueCrowdItems = 200
)

type queueCrowdBoard struct {
	Got [2 * queueCrowdEach][queueCrowdItems]atomic.Uint32
}

type queueCrowdParams struct {
	Arena, How string
	WaitNode   int
}

func init() {
	proctest.Register("queue/crowd", func(c *proctest.Child) {
		var p queueCrowdParams
		c.Params(&p)
		a, err := arena.Attach(p.Arena, nil)
		if err != nil {
			c.Fatal(err)
		}
		c.Ready()
		if err := queueCrowd(a, p.How, p.WaitNode); err != nil {
			c.Fatal(err)
		}
	})
}

func queueCrowd(a *arena.Arena, how string, waitNode int) error {
	q, err := prims.AttachQueue[queueTicket](a, "q", nil)
	if err != nil {
		return err
	}
	board, err := arena.Value[queueCrowdBoard](a, "board")
	if err != nil {
		return err
	}
	ctx := context.Background()
	errs := make(chan error, 4*queueCrowdEach)
	var wg sync.WaitGroup
	for k := range queueCrowdEach {
		wg.Go(func() {
			who := uint64(waitNode*queueCrowdEach + k)
			var batch []queueTicket
			for i := range uint64(queueCrowdItems) {
				batch = append(batch, ticket(who*queueCrowdItems+i))
				if how == "batch" && len(batch) < 7 && i < queueCrowdItems-1 {
					continue
				}
				if n, err := q.PutBatchContext(ctx, batch); err != nil || n != len(batch) {
					errs <- fmt.Errorf("put %d of %d: %w", n, len(batch), err)
				}
				batch = batch[:0]
			}
		})
		wg.Go(func() {
			var last [2 * queueCrowdEach]uint64 // for each producer, the number of its last item, plus 1
			into := make([]queueTicket, 5)
			for n, k := 0, 0; n < queueCrowdItems; n += k {
				k = 1
				var err error
				switch how {
				case "get":
					into[0], err = q.Get()
				case "batch":
					k, err = q.GetBatchContext(ctx, into[:min(len(into), queueCrowdItems-n)])
				case "lease":
					var l prims.Lease[queueTicket]
					if l, err = q.LeaseContext(ctx); err == nil {
						into[0] = l.Item
						l.Ack()
					}
				}
				if err != nil {
					errs <- err
					return
				}
				for _, v := range into[:k] {
					who, i := v.ID/queueCrowdItems, v.ID%queueCrowdItems
					if !v.whole() || last[who] > i {
						errs <- fmt.Errorf("item %+v after %d of its producer", v, last[who])
					}
					last[who] = i + 1
					board.Got[who][i].Add(1)
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// TestQueueWaitersGoOn checks that each new item wakes one waiter for an item, and each Get wakes one waiter for
// room, in whichever process. Another call may get the item or the room first. The woken waiter then waits again.
func TestQueueWaitersGoOn(t *testing.T) {
	a, q, p := queueTest(t, 3)
	ctx := context.Background()
	const n = 12
	got := make(chan uint64, n)
	for i := range n {
		switch i % 3 {
		case 0:
			p.Send(queueOrder{ID: i, Verb: "get"})
		case 1:
			go func() {
				v, _ := q.Get()
				got <- v.ID
			}()
		case 2:
			go func() {
				l, _ := q.LeaseContext(ctx)
				got <- l.Item.ID
				l.Ack()
			}()
		}
		queueWaits(t, a, q, i+1, 0)
	}
	go func() {
		for range n / 3 {
			var r queueAnswer
			p.Recv(t, &r)
			got <- r.IDs[0]
		}
	}()
	for i := range n {
		require.NoError(t, q.Put(ticket(uint64(100+i))))
		require.EqualValues(t, 100+i, <-got, "one of them has it")
	}
	queueWaits(t, a, q, 0, 0)
	eventually(t, "acknowledged", func() string { return words(a) }, func() bool { return q.State().Out == 0 })
	queueFill(t, q, 1, 3)
	done := make(chan bool, n)
	for i := range uint64(n) {
		if i%2 == 0 {
			p.Send(queueOrder{ID: int(i), Verb: "put", IDs: []uint64{4 + i}})
		} else {
			go func() { done <- q.Put(ticket(4+i)) == nil }()
		}
		queueWaits(t, a, q, 0, int(i+1))
	}
	go func() {
		for range n / 2 {
			var r queueAnswer
			p.Recv(t, &r)
			done <- r.OK
		}
	}()
	require.False(t, q.TryPut(ticket(99)))
	seen := map[uint64]bool{}
	for i := range n + 3 {
		v, err := q.Get()
		require.NoError(t, err)
		require.True(t, v.whole())
		require.False(t, seen[v.ID])
		seen[v.ID] = true
		if i < 3 {
			require.EqualValues(t, i+1, v.ID)
		}
		if i < n {
			require.True(t, <-done, "one of them has room")
		}
	}
	require.Zero(t, q.Len())
	require.True(t, q.Consistent())
}

// TestQueueLeaseEnds: an Ack makes room for a waiting Put, and a Nack puts back an item, which a waiting Get
// takes.
func TestQueueLeaseEnds(t *testing.T) {
	a, q, p := queueTest(t, 1)
	queueFill(t, q, 1, 1)
	l, err := q.Lease()
	require.NoError(t, err)
	const soon = 10_000 // ms; no call waits that long unless a wake is lost
	p.Send(queueOrder{ID: 1, Verb: "get", Ends: soon})
	queueWaits(t, a, q, 1, 0)
	l.Nack()
	require.Equal(t, []uint64{1}, queueHear(t, p, 1).IDs)
	queueFill(t, q, 2, 2)
	l, err = q.Lease()
	require.NoError(t, err)
	p.Send(queueOrder{ID: 2, Verb: "put", IDs: []uint64{3}, Ends: soon})
	queueWaits(t, a, q, 0, 1)
	l.Ack()
	require.True(t, queueHear(t, p, 2).OK)
	// A waiter for an item and a waiter for room both go on.
	l, err = q.Lease()
	require.NoError(t, err)
	p.Send(queueOrder{ID: 3, Verb: "put", IDs: []uint64{4}, Ends: soon})
	queueWaits(t, a, q, 0, 1)
	got := make(chan queueTicket, 1)
	go func() {
		v, _ := q.Get()
		got <- v
	}()
	queueWaits(t, a, q, 1, 1)
	l.Ack()
	require.Equal(t, ticket(4), <-got)
	require.True(t, queueHear(t, p, 3).OK)
}

func TestQueueBatches(t *testing.T) {
	a, q, p := queueTest(t, 5)
	ctx := context.Background()
	into := make([]queueTicket, 4)
	n, err := q.GetBatchContext(ctx, nil)
	require.NoError(t, err)
	require.Zero(t, n)
	// The queue has no room for the whole batch, so the call waits before it puts the remaining items.
	p.Send(queueOrder{ID: 1, Verb: "put", IDs: []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9}})
	queueWaits(t, a, q, 0, 1)
	require.Equal(t, 5, q.Len())
	n, err = q.GetBatchContext(ctx, into)
	require.NoError(t, err)
	require.Equal(t, []queueTicket{ticket(1), ticket(2), ticket(3), ticket(4)}, into[:n])
	require.Len(t, queueHear(t, p, 1).IDs, 9)
	require.Equal(t, 5, q.Len())
	require.Equal(t, []uint64{5, 6, 7, 8, 9}, queueDo(t, p, queueOrder{ID: 2, Verb: "get", N: 99}).IDs)
	// A GetBatch waits for the first item, and then takes all items that are in the queue.
	p.Send(queueOrder{ID: 3, Verb: "get", N: 3})
	queueWaits(t, a, q, 1, 0)
	n, err = q.PutBatchContext(ctx, []queueTicket{ticket(11), ticket(12), ticket(13), ticket(14)})
	require.NoError(t, err)
	require.Equal(t, 4, n)
	got := queueHear(t, p, 3).IDs
	require.Equal(t, []uint64{11, 12, 13, 14}, append(got, queueDrain(t, q)...))
	require.GreaterOrEqual(t, len(got), 1)
	// The call reports how many items of the batch it has put.
	p.Send(queueOrder{ID: 4, Verb: "put", IDs: []uint64{21, 22, 23, 24, 25, 26, 27}, Ends: 20})
	r := queueHear(t, p, 4)
	require.Equal(t, context.DeadlineExceeded.Error(), r.Err)
	require.Equal(t, []uint64{21, 22, 23, 24, 25}, r.IDs)
	require.Equal(t, r.IDs, queueDrain(t, q))
	p.Send(queueOrder{ID: 5, Verb: "get", N: 3, Ends: 20})
	require.Equal(t, context.DeadlineExceeded.Error(), queueHear(t, p, 5).Err)
	// A context that has ended does not matter while there is an item.
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.NoError(t, q.PutContext(ended, ticket(31)))
	v, err := q.GetContext(ended)
	require.NoError(t, err)
	require.Equal(t, ticket(31), v)
	_, err = q.GetContext(ended)
	require.Equal(t, context.Canceled, err)
	queueFill(t, q, 1, 5)
	require.Equal(t, context.Canceled, q.PutContext(ended, ticket(6)))
	l, err := q.LeaseContext(ended)
	require.NoError(t, err)
	require.Equal(t, ticket(1), l.Item)
	require.Equal(t, context.Canceled, q.PutContext(ended, ticket(6)), "an item on lease still takes up room")
	l.Ack()
	require.NoError(t, q.PutContext(ended, ticket(6)))
	require.Equal(t, []uint64{2, 3, 4, 5, 6}, queueDrain(t, q))
}

// TestQueueCancelAgainstHandOver: the context of a waiter ends while another call puts an item or makes room.
// Whichever comes first, no item is lost or duplicated.
func TestQueueCancelAgainstHandOver(t *testing.T) {
	rounds := proctest.Rounds(5_000, 50_000)
	for _, what := range []string{"get", "put"} {
		t.Run(what, func(t *testing.T) {
			a := newArena(t, nil)
			q := newQueue[queueTicket](t, a, "q", 1)
			nodes, won, i := a.Stats().Nodes, 0, 0
			begun := time.Now()
			// On one CPU, one of the two calls nearly always comes first. So the test goes on until each of them has
			// come first at least once.
			for ; i < rounds || won == 0 || won == i; i++ {
				require.False(t, i > rounds && time.Since(begun) > 3*timeout(), "%d of %d granted", won, i)
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan error, 1)
				act := func() {
					if err := q.Put(ticket(uint64(i))); err != nil {
						t.Error(err)
					}
				}
				if what == "get" {
					go func() {
						v, err := q.GetContext(ctx)
						if err == nil && v != ticket(uint64(i)) {
							err = fmt.Errorf("got %+v", v)
						}
						done <- err
					}()
				} else {
					act()
					go func() { done <- q.PutContext(ctx, ticket(uint64(i+1))) }()
					act = func() {
						if v, err := q.Get(); err != nil || v != ticket(uint64(i)) {
							t.Error(v, err)
						}
					}
				}
				for k := 0; i%4 != 0 && k < 1000; k++ {
					if st := q.State(); st.Getting || st.Putting {
						break
					}
					runtime.Gosched()
				}
				over := make(chan struct{})
				first, second := func() { cancel() }, act
				if i%2 == 0 {
					first, second = second, first
				}
				late := 3000
				if i%8 < 4 {
					late *= 30
				}
				go func() {
					for range rand.IntN(late) {
					}
					second()
					close(over)
				}()
				for range rand.IntN(1000) {
				}
				first()
				err := <-done
				<-over
				cancel()
				left := queueDrain(t, q)
				switch {
				case err == nil && what == "get":
					require.Empty(t, left)
					won++
				case err == nil:
					require.Equal(t, []uint64{uint64(i + 1)}, left)
					won++
				case what == "get":
					require.Equal(t, context.Canceled, err)
					require.Equal(t, []uint64{uint64(i)}, left)
				default:
					require.Equal(t, context.Canceled, err)
					require.Empty(t, left)
				}
			}
			t.Logf("%d of %d granted", won, i)
			queueWaits(t, a, q, 0, 0)
			require.True(t, q.Consistent())
			require.LessOrEqual(t, a.Stats().Nodes, nodes+8)
		})
	}
}

// TestQueueWaitsWithoutRoom: a wait needs no memory of the arena. Thousands of goroutines wait although the
// arena is full, and all go on.
func TestQueueWaitsWithoutRoom(t *testing.T) {
	for _, what := range []string{"get", "put"} {
		t.Run(what, func(t *testing.T) {
			a := newArena(t, &arena.Options{Size: 1 << 20, MaxParticipants: 4})
			q := newQueue[queueTicket](t, a, "q", 1)
			for {
				if _, err := a.Alloc(64, 8); err != nil {
					require.ErrorIs(t, err, shmsync.ErrNoSpace)
					break
				}
			}
			waiters := uint64(3000)
			if race.Enabled {
				waiters = 300
			}
			var begun, served, turnedAway atomic.Int64
			var wg sync.WaitGroup
			call := func(uint64) error { _, err := q.Get(); return err }
			if what == "put" {
				queueFill(t, q, 1, 1)
				call = func(id uint64) error { return q.Put(ticket(id)) }
			}
			for i := range waiters {
				wg.Go(func() {
					begun.Add(1)
					switch err := call(2 + i); {
					case err == nil:
						served.Add(1)
					case errors.Is(err, shmsync.ErrCanceled):
						turnedAway.Add(1)
					default:
						t.Error(err)
					}
				})
			}
			eventually(t, "all have begun", q.String, func() bool { return begun.Load() == int64(waiters) })
			for n := range int64(10) {
				if what == "put" {
					v, err := q.Get()
					require.NoError(t, err)
					require.True(t, v.whole())
				} else {
					require.NoError(t, q.Put(ticket(1)))
				}
				eventually(t, "one goes on", q.String, func() bool { return served.Load() == n+1 })
			}
			q.Shutdown()
			wg.Wait()
			require.EqualValues(t, 10, served.Load())
			require.EqualValues(t, waiters-10, turnedAway.Load())
			require.Len(t, queueDrain(t, q), map[string]int{"get": 0, "put": 1}[what])
		})
	}
}
