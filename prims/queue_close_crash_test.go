//go:build linux && crashpoint

package prims_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// TestQueueCallAfterItsEffect checks a call that has taken effect but has not returned when the last handle is closed
// and the Queue is deleted. The rest of the call does not change the next object in the same memory.
func TestQueueCallAfterItsEffect(t *testing.T) {
	get := func(q *prims.Queue[queueTicket]) { q.Get() }
	for _, c := range []struct {
		verb, point string
		there       uint64
		call        func(q *prims.Queue[queueTicket])
	}{
		{"Put", "queue.add.committed", 0, func(q *prims.Queue[queueTicket]) { q.Put(ticket(1)) }},
		{"TryPut", "queue.add.committed", 0, func(q *prims.Queue[queueTicket]) { q.TryPut(ticket(1)) }},
		{"PutBatch", "queue.add.committed", 0, func(q *prims.Queue[queueTicket]) { q.PutBatch([]queueTicket{ticket(1)}) }},
		{"Get", "queue.drop.committed", 1, get},
		{"TryGet", "queue.drop.committed", 1, func(q *prims.Queue[queueTicket]) { q.TryGet() }},
		{"GetBatch", "queue.drop.committed", 1, func(q *prims.Queue[queueTicket]) { q.GetBatch(make([]queueTicket, 1)) }},
	} {
		for _, counted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/counted=%v", c.verb, counted), func(t *testing.T) {
				a := newArena(t, &arena.Options{Counted: counted})
				q := newQueue[queueTicket](t, a, "q", 4)
				queueFill(t, q, 1, c.there)
				o := q.Object()
				words := func() (all []uint64) {
					for off := uint64(0); off < o.Size; off += 8 {
						all = append(all, arena.At[atomic.Uint64](a, o.Body+arena.Offset(off)).Load())
					}
					return all
				}
				var before []uint64
				crashpoint.ArmFunc(c.point, 1, func() {
					require.NoError(t, q.Close())
					require.NoError(t, a.Delete("q"))
					// Set the bits that the rest of the call tests, in the words of the next object.
					next := newQueue[queueTicket](t, a, "next", 4)
					require.Equal(t, o.Body, next.Object().Body)
					next.Shutdown()
					next.Announce()
					before = words()
				})
				defer crashpoint.Disarm()
				c.call(q)
				require.NotNil(t, before)
				require.Equal(t, before, words())
			})
		}
	}
}

// TestQueueCloseWakes checks that a waiter of another process is woken if the handle is closed after a call has taken
// effect, but before the call has made its wake.
func TestQueueCloseWakes(t *testing.T) {
	for _, c := range []struct {
		verb, point string
		there       uint64
		call        func(q *prims.Queue[queueTicket]) error
		other       queueOrder
		waits       [2]int
	}{
		{"put", "queue.add.committed", 0, func(q *prims.Queue[queueTicket]) error { return q.Put(ticket(1)) }, queueOrder{Verb: "get"}, [2]int{1, 0}},
		{"get", "queue.drop.committed", 4, func(q *prims.Queue[queueTicket]) error { _, err := q.Get(); return err },
			queueOrder{Verb: "put", IDs: []uint64{5}}, [2]int{0, 1}},
	} {
		t.Run(c.verb, func(t *testing.T) {
			a := newArena(t, nil)
			q := newQueue[queueTicket](t, a, "q", 4)
			p := queueOther(t, a, proctest.Env("SHMSYNC_CHECK_EVERY=1h")) // a check would wake the waiter
			mine := newQueue[queueTicket](t, a, "q", 4)
			queueFill(t, q, 1, c.there)
			p.Send(c.other)
			queueWaits(t, a, q, c.waits[0], c.waits[1])
			crashpoint.ArmFunc(c.point, 1, func() { require.NoError(t, mine.Close()) })
			defer crashpoint.Disarm()
			require.NoError(t, c.call(mine))
			queueHear(t, p, 0)
			sound(t, a)
		})
	}
}

// TestQueueCloseAwaitsAPut checks that a Close that begins while a Put copies its item waits until the item is in the
// ring. Otherwise Close could not know whether it has to make the wake of the Put.
func TestQueueCloseAwaitsAPut(t *testing.T) {
	a := newArena(t, nil)
	q := newQueue[queueTicket](t, a, "q", 4)
	p := queueOther(t, a, proctest.Env("SHMSYNC_CHECK_EVERY=1h")) // a check would wake the waiter
	mine := newQueue[queueTicket](t, a, "q", 4)
	p.Send(queueOrder{Verb: "get"})
	queueWaits(t, a, q, 1, 0)
	closed, early := make(chan error, 1), false
	crashpoint.ArmFunc("queue.add.claimed", 1, func() {
		go func() { closed <- mine.Close() }()
		eventually(t, "Close waits for the Put", func() string { return words(a) }, func() bool {
			stacks := make([]byte, 1<<20)
			return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), ".awaitCalls")
		})
	})
	crashpoint.ArmFunc("queue.add.written", 1, func() {
		select {
		case err := <-closed:
			early = true
			closed <- err
		case <-after(50 * time.Millisecond):
		}
	})
	defer crashpoint.Disarm()
	require.NoError(t, mine.Put(ticket(1)))
	require.NoError(t, <-closed)
	require.False(t, early, "Close has not waited for the Put")
	queueHear(t, p, 0)
	sound(t, a)
}

// queueLate has calls of a Queue that have found their handle open, and have been preempted before they claim a slot or
// take an item. Each call reports whether it has succeeded. At the point, it has its slot, and has not stored to the
// slot yet.
var queueLate = map[string]struct {
	point string
	call  func(q *prims.Queue[queueTicket]) bool
}{
	"put": {"queue.add.claimed", func(q *prims.Queue[queueTicket]) bool { return q.PutWithoutWake(ticket(7)) }},
	"lease": {"queue.take.committed", func(q *prims.Queue[queueTicket]) bool {
		note, ok := q.TakeWithoutNote()
		if ok {
			note()
		}
		return ok
	}},
	"get": {"queue.take.committed", func(q *prims.Queue[queueTicket]) bool { return q.DropWithoutWake() }},
}

func init() {
	proctest.Register("queue/late", func(c *proctest.Child) {
		var p [2]string // the arena, and the call
		c.Params(&p)
		a, err := arena.Attach(p[0], nil)
		if err != nil {
			c.Fatal(err)
		}
		q, err := prims.AttachQueue[queueTicket](a, "q", nil)
		if err != nil {
			c.Fatal(err)
		}
		late := queueLate[p[1]]
		held, goOn, ended := make(chan bool), make(chan bool), make(chan bool, 1)
		crashpoint.ArmFunc("arena.close.repaired", 1, func() {
			crashpoint.ArmFunc(late.point, 1, func() { held <- true; <-goOn })
			go func() { ended <- late.call(q) }()
			select {
			case <-held:
			case ok := <-ended:
				ended <- ok
			}
		})
		crashpoint.ArmFunc("arena.close.freed", 1, func() {
			c.Ready()
			c.Await()
			close(goOn)
			c.Say(<-ended)
			c.Await()
		})
		if err := a.Close(); err != nil {
			c.Fatal(err)
		}
	})
}

// TestQueueCallBehindTheCloseOfTheArena: a call gets its slot when Close of the arena has already read the slots, and
// this process has left. Then another process takes the slot back and uses it. The call changes neither the item nor the
// lease of that process.
func TestQueueCallBehindTheCloseOfTheArena(t *testing.T) {
	for verb := range queueLate {
		t.Run(verb, func(t *testing.T) {
			a := newArena(t, nil)
			q := newQueue[queueTicket](t, a, "q", 1)
			if verb != "put" {
				queueFill(t, q, 1, 1)
			}
			p := proctest.Start(t, "queue/late", proctest.Params([2]string{nameOf(a), verb}), proctest.Dump(func() string { return words(a) }))
			p.Await(t)
			q.Look() // takes back the slot of the process that has left
			if verb == "put" {
				queueFill(t, q, 1, 1)
			}
			l, ok := q.TryLease()
			require.True(t, ok)
			p.Send(true)
			var made bool
			p.Recv(t, &made)
			require.False(t, made, "the call has succeeded after the end of its participant")
			require.Equal(t, ticket(1), *l.InPlace(), "the item has changed")
			require.NotPanics(t, l.Ack, "the lease has changed")
			p.Send(true)
			p.WaitExit(t)
			require.Empty(t, queueDrain(t, q))
			require.True(t, q.Consistent())
			sound(t, a)
		})
	}
}

// TestQueueCallBehindTheCloseOfItsHandle: a call gets its slot when Close of its handle has already read the slots.
// Close does not wait for the call, and makes no wake for it. So the call changes nothing.
func TestQueueCallBehindTheCloseOfItsHandle(t *testing.T) {
	for verb, late := range queueLate {
		for _, back := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/back=%v", verb, back), func(t *testing.T) {
				a := newArena(t, nil)
				q, mine := newQueue[queueTicket](t, a, "q", 2), newQueue[queueTicket](t, a, "q", 2)
				queueFill(t, q, 1, 1)
				if back {
					l, err := q.Lease()
					require.NoError(t, err)
					l.Nack()
				}
				require.NoError(t, mine.Close())
				require.False(t, late.call(mine))
				require.Equal(t, prims.QueueState{Capacity: 2, Queued: 1}, queueNow(q))
				require.True(t, q.Consistent())
				require.Equal(t, []uint64{1}, queueDrain(t, q))
			})
		}
	}
}
