//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/prims"
)

func TestQueueMistakes(t *testing.T) {
	a, q, p := queueTest(t, 4)
	ctx := context.Background()
	queueFill(t, q, 1, 3)
	l, err := q.LeaseContext(ctx)
	require.NoError(t, err)
	l.Ack()
	const message = "shmsync: Ack of item 1 of queue q, which this process does not have on that lease"
	require.PanicsWithValue(t, message, l.Ack, "a second Ack")
	require.Panics(t, l.Nack)
	require.PanicsWithValue(t, "shmsync: Ack of a Lease that is none", prims.Lease[queueTicket]{}.Ack)
	// This process has leased the same item again, so the earlier lease is over.
	l, err = q.LeaseContext(ctx)
	require.NoError(t, err)
	l.Nack()
	again, err := q.LeaseContext(ctx)
	require.NoError(t, err)
	require.Equal(t, l.Item, again.Item)
	require.Panics(t, l.Ack)
	require.Panics(t, l.Nack)
	// A participant cannot end the lease of another participant.
	var other arena.ParticipantID
	for part := range a.Participants() {
		if part.Label == "other" {
			other = arenakernel.Participant(part).Name()
		}
	}
	require.NotZero(t, other)
	require.Panics(t, prims.StrangersLease(again, other).Ack)
	require.Equal(t, []uint64{3}, queueDo(t, p, queueOrder{Verb: "lease"}).IDs)
	queueDo(t, p, queueOrder{ID: 1, Verb: "ack", IDs: []uint64{3}})
	p.Send(queueOrder{ID: 2, Verb: "ack", IDs: []uint64{3}})
	var r queueAnswer
	p.Recv(t, &r)
	require.Contains(t, r.Panic, "Ack of item 3 of queue q")
	require.Equal(t, prims.QueueState{Capacity: 4, Out: 1}, queueNow(q), "nothing has changed")
	again.Ack()

	for name, f := range map[string]func(){
		"capacity": func() { prims.OpenQueue[int](a, "", 1<<30+1, nil) },
		"pointer":  func() { prims.OpenQueue[*int](a, "", 1, nil) },
		"string":   func() { prims.OpenQueue[struct{ S string }](a, "", 1, nil) },
		"too big":  func() { prims.OpenQueue[[prims.QueueItemMost + 1]byte](a, "", 1, nil) },
	} {
		require.Panics(t, f, name)
	}
	require.NoError(t, q.Close())
	require.ErrorIs(t, q.Close(), shmsync.ErrClosed)
}

func TestQueueOpen(t *testing.T) {
	a, q, _ := queueTest(t, 5)
	same := newQueue[queueTicket](t, a, "q", 5)
	require.Equal(t, q.Offset(), same.Offset())
	require.Equal(t, 5, same.Cap())
	_, err := prims.OpenQueue[queueTicket](a, "q", 6, nil)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.ErrorContains(t, err, "it has a capacity of 5; asked for 6")
	_, err = prims.OpenQueue[[6]uint32](a, "q", 5, nil)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	_, err = prims.OpenQueue[[48]byte](a, "q", 5, nil)
	require.ErrorIs(t, err, shmsync.ErrIncompatible, "another type of the same size")
	_, err = prims.OpenSemaphore(a, "q", 5, nil)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	_, err = prims.QueueAt[[6]uint32](a, q.Offset())
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	_, err = prims.QueueAt[queueTicket](a, newSemaphore(t, a, "s", 1, nil).Offset())
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	at, err := prims.QueueAt[queueTicket](a, q.Offset())
	require.NoError(t, err)
	require.NoError(t, at.Put(ticket(1)))
	require.Equal(t, []uint64{1}, queueDrain(t, q))
	require.Contains(t, q.String(), "queue q: {Capacity:5 Queued:0")
	// Another type with the same layout is accepted.
	type renamed struct {
		Number uint64
		Sums   [5]uint64
	}
	require.NoError(t, newQueue[renamed](t, a, "q", 5).Put(renamed{2, ticket(2).Sum}))
	require.Equal(t, []uint64{2}, queueDrain(t, q))
	// Closing a handle leaves the queue as it is. When no handle is open, the queue can be deleted.
	solo := newQueue[uint16](t, a, "solo", 2)
	require.NoError(t, solo.Put(3))
	require.NoError(t, solo.Close())
	solo = newQueue[uint16](t, a, "solo", 2)
	v, err := solo.Get()
	require.NoError(t, err)
	require.EqualValues(t, 3, v)
	require.NoError(t, solo.Close())
	require.NoError(t, a.Delete("solo"))
	sound(t, a)
}

// TestQueueItemSizes: a queue can have items of any size up to the largest.
func TestQueueItemSizes(t *testing.T) {
	a := newArena(t, nil)
	queueOfSize[struct{}](t, a, func(int) struct{} { return struct{}{} })
	queueOfSize(t, a, func(i int) byte { return byte(i) })
	queueOfSize(t, a, func(i int) [3]uint16 { return [3]uint16{uint16(i), 2, uint16(3 * i)} })
	queueOfSize(t, a, func(i int) (v [prims.QueueItemMost]byte) {
		for k := range v {
			v[k] = byte(i + k)
		}
		return v
	})
	sound(t, a)
}

func queueOfSize[T comparable](t *testing.T, a *arena.Arena, item func(int) T) {
	q := newQueue[T](t, a, "", 3)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 40 {
			if err := q.Put(item(i)); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range 40 {
		v, err := q.Get()
		require.NoError(t, err)
		require.True(t, v == item(i), "item %d", i)
	}
	wg.Wait()
	require.NoError(t, q.Close())
}

func TestQueueAllocatesNothing(t *testing.T) {
	a := newArena(t, nil)
	q := newQueue[queueTicket](t, a, "q", 2)
	ctx := context.Background()
	var one [1]queueTicket
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		q.Put(one[0])
		q.Get()
		q.TryPut(one[0])
		q.TryGet()
		q.PutBatchContext(ctx, one[:])
		q.GetBatchContext(ctx, one[:])
		q.Put(one[0])
		l, _ := q.LeaseContext(ctx)
		l.Nack()
		l, _ = q.TryLease()
		l.Ack()
	}))
	if race.Enabled {
		return // sync.Pool may drop its contents
	}
	// Once calls have waited before, a wait does not allocate either.
	turn := make(chan struct{})
	defer close(turn)
	go func() {
		for range turn {
			q.Get()
			q.Put(one[0])
			q.Put(one[0])
			q.Put(one[0])
		}
	}()
	waits := func() {
		turn <- struct{}{}
		for !q.State().Getting {
			runtime.Gosched()
		}
		q.Put(one[0])
		for !q.State().Putting {
			runtime.Gosched()
		}
		for range 3 {
			q.Get()
		}
	}
	for range 100 {
		waits()
	}
	require.Less(t, testing.AllocsPerRun(200, waits), 0.5)
}

// TestQueueHostileShape overwrites the capacity and the item size of a Queue, as a peer may do. These words say where
// the slots are. A call that opens the Queue checks them before it uses them.
func TestQueueHostileShape(t *testing.T) {
	for off, values := range map[arena.Offset][]uint64{
		64: {0, 1 << 20, 1 << 40, ^uint64(0)},              // capacity
		72: {0, 47, 1 << 16, 1 << 17, 1 << 63, ^uint64(0)}, // bytes of an item
	} {
		for _, v := range values {
			a := newArena(t, nil)
			q := newQueue[queueTicket](t, a, "q", 4)
			queueFill(t, q, 1, 2)
			arena.At[atomic.Uint64](a, q.Object().Body+off).Store(v)
			require.Equal(t, []uint64{1, 2}, queueDrain(t, q), "a process that has it open does not check again")
			o := q.Object()
			require.NoError(t, q.Close())
			_, err := prims.AttachQueue[queueTicket](a, "q", nil)
			require.ErrorIs(t, err, shmsync.ErrCorrupt, "%d at %d", v, off)
			_, err = prims.QueueAt[queueTicket](a, o.Offset)
			require.ErrorIs(t, err, shmsync.ErrCorrupt)
			_ = prims.Describe(a, o)
			require.NoError(t, a.Delete("q"), "a failed opening leaves nothing open")
		}
	}
}

// TestQueueHostileSlots writes an impossible state into a slot, as a peer may do. Check reports the state, a periodic
// check frees the slot, and no call hangs meanwhile.
func TestQueueHostileSlots(t *testing.T) {
	for _, v := range []uint64{7 << 29, 1<<29 | 1<<33, 2 << 29, 1<<29 | 1<<40 | 5, ^uint64(0)} {
		a := newArena(t, nil)
		q := newQueue[queueTicket](t, a, "q", 4)
		queueFill(t, q, 1, 2)
		q.SetSlot(1, v)
		require.ErrorIs(t, a.Check(), shmsync.ErrCorrupt)
		require.Equal(t, []uint64{2}, queueDrain(t, q), "the item of that slot is lost")
		for id := uint64(3); id < 40; id++ {
			require.NoError(t, q.Put(ticket(id)))
			require.Equal(t, []uint64{id}, queueDrain(t, q))
		}
		q.Look()
		require.NoError(t, a.Check())
		require.True(t, q.Consistent())
	}
}

// TestQueueHostileRing overwrites hints and cells, as a peer may do. No call loops for ever, and later calls find the
// right hints again.
func TestQueueHostileRing(t *testing.T) {
	a := newArena(t, &arena.Options{Size: 1 << 20}) // small, because each check reads all of it
	q := newQueue[queueTicket](t, a, "q", 4)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	id := uint64(0)
	for range 3 {
		for _, d := range []int64{0, 1, 3, 5, 100, -1, -7, -100, 1 << 40, -1 << 62} {
			for _, e := range []int64{0, 2, 9, 70, -2, -9, 1 << 50} {
				for k := range uint64(3) {
					require.True(t, q.TryPut(ticket(id+k+1)), "%d, %d: %v", d, e, q)
				}
				head, tail := q.Hints()
				q.SetHints(head+uint64(d), tail+uint64(e))
				if d > 0 && d <= 3 { // the hint is after some items, as if they had been taken
					q.Look()
					q.Look()
				}
				require.NoError(t, q.Put(ticket(id+4)), "%d, %d", d, e)
				for k := range uint64(4) {
					v, err := q.Get()
					require.NoError(t, err, "%d, %d", d, e)
					require.Equal(t, ticket(id+k+1), v, "%d, %d", d, e)
				}
				id += 4
			}
		}
	}
	require.True(t, q.Consistent())
	for n := range 2000 {
		r := rand.New(rand.NewPCG(uint64(n), 7))
		for range 1 + r.IntN(4) {
			switch v := r.Uint64(); r.IntN(4) {
			case 0:
				q.SetCell(r.Uint64(), v)
			case 1:
				q.SetCell(r.Uint64(), v%64<<32|v>>32%20)
			case 2:
				q.SetSlot(1+uint32(r.IntN(q.Slots())), v)
			default:
				q.SetHints(v, r.Uint64())
			}
		}
		for range 6 { // each call returns, with or without an error
			q.PutContext(ended, ticket(1))
			q.GetContext(ended)
			q.TryPut(ticket(2))
			q.TryGet()
			if l, ok := q.TryLease(); ok {
				func() {
					defer func() { recover() }()
					l.Nack()
				}()
			}
			q.Len()
		}
		q.Look()
		q.State()
		_ = prims.Describe(a, q.Object())
		_ = a.Check()
	}
}

// TestQueueCrowd: thousands of goroutines of one process can wait, on few threads.
func TestQueueCrowd(t *testing.T) {
	a := newArena(t, nil)
	q := newQueue[queueTicket](t, a, "q", 4)
	each := 5000
	if race.Enabled {
		each = 300
	}
	var sum atomic.Uint64
	var wg sync.WaitGroup
	for i := range each {
		wg.Go(func() {
			v, err := q.Get()
			if err != nil || !v.whole() {
				t.Error(v, err)
			}
			sum.Add(v.ID)
		})
		if i == each/2 {
			queueWaits(t, a, q, each/2+1, 0)
		}
	}
	queueWaits(t, a, q, each, 0)
	for i := range uint64(2 * each) {
		wg.Go(func() {
			if err := q.Put(ticket(i)); err != nil {
				t.Error(err)
			}
		})
	}
	for range each {
		v, err := q.Get()
		require.NoError(t, err)
		sum.Add(v.ID)
	}
	wg.Wait()
	require.EqualValues(t, 2*each*(2*each-1)/2, sum.Load())
	require.Zero(t, q.Len())
}

func init() {
	// queue/race runs two goroutines. The first writes a variable and then puts an item; the second gets the
	// item and then reads the variable.
	proctest.Register("queue/race", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		a, err := arena.Attach(name, nil)
		if err != nil {
			c.Fatal(err)
		}
		q, err := prims.OpenQueue[int](a, "q", 2, nil)
		if err != nil {
			c.Fatal(err)
		}
		var plain [4000]int
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				for i := g * 1000; i < g*1000+1000; i++ {
					plain[i]++
					q.Put(i)
				}
			})
			wg.Go(func() {
				for i := range 1000 {
					if i%2 == 0 {
						v, _ := q.Get()
						plain[v]++
						continue
					}
					l, _ := q.Lease()
					plain[l.Item]++
					l.Ack()
				}
			})
		}
		wg.Wait()
		for i, n := range plain {
			if n != 2 {
				c.Fatal(fmt.Sprintf("item %d: %d", i, n))
			}
		}
	})
}

// TestQueueRace: the race detector knows that the Put of an item synchronizes before the Get of that item.
func TestQueueRace(t *testing.T) {
	a := newArena(t, nil)
	proctest.Start(t, "queue/race", proctest.Params(nameOf(a))).WaitExit(t)
}

// TestLeaseOutlivesItsHandle checks that a lease can be ended after Close of its handle, even if this process has no
// handle left. After Close of the arena, the item is in the Queue again.
func TestLeaseOutlivesItsHandle(t *testing.T) {
	name := arenaName(t)
	a, err := arena.Create(name, nil)
	require.NoError(t, err)
	q, err := prims.OpenQueue[uint64](a, "q", 4, nil)
	require.NoError(t, err)
	var leases []prims.Lease[uint64]
	for i := range uint64(3) {
		require.NoError(t, q.Put(i))
		l, ok := q.TryLease()
		require.True(t, ok)
		leases = append(leases, l)
	}
	require.NoError(t, q.Close())
	require.Error(t, a.Delete("q"), "a living process has leases")
	leases[0].Ack()
	leases[1].Nack()
	require.Panics(t, leases[1].Ack, "it has ended")
	require.Panics(t, leases[0].Nack, "it has ended")
	q, err = prims.OpenQueue[uint64](a, "q", 4, nil)
	require.NoError(t, err)
	require.Equal(t, prims.QueueState{Capacity: 4, Queued: 1, Out: 1}, q.State())
	v, ok := q.TryGet()
	require.True(t, ok)
	require.EqualValues(t, 1, v)
	require.NoError(t, a.Close())
	var refusal error
	func() {
		defer func() { refusal, _ = recover().(error) }()
		leases[2].Ack()
	}()
	require.ErrorIs(t, refusal, shmsync.ErrClosed)
	a, err = arena.Attach(name, nil)
	require.NoError(t, err)
	defer a.Close()
	q, err = prims.AttachQueue[uint64](a, "q", nil)
	require.NoError(t, err)
	v, ok = q.TryGet()
	require.True(t, ok)
	require.EqualValues(t, 2, v)
}

// TestCloseWaitsForALeaseThatIsBeingTaken: between the two steps of a Lease, Close regards the Lease as a call that works
// with its slot, and so waits for the second step. After that, the lease may last for any time.
func TestCloseWaitsForALeaseThatIsBeingTaken(t *testing.T) {
	q := newQueue[int64](t, newArena(t, nil), "q", 4)
	for range 2 { // the item is leased for the first time, and again
		if q.Len() == 0 {
			require.NoError(t, q.Put(7))
		}
		note, ok := q.TakeWithoutNote()
		require.True(t, ok)
		require.Equal(t, 1, q.Calls())
		l := note()
		require.Zero(t, q.Calls())
		l.Nack()
		require.Zero(t, q.Calls())
	}
	require.NoError(t, q.Close())
}
