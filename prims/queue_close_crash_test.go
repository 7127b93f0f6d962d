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
