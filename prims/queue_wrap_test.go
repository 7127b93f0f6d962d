//go:build linux

package prims_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// heal makes a process compute the hints of q again, as a periodic check does if nothing has changed since the last
// check. If who is "late", heal first stores old hints, as a call may do after it was stopped for a long time.
func heal(t *testing.T, q *prims.Queue[queueTicket], other *proctest.Proc, who string) {
	for range 2 {
		switch who {
		case "late":
			late(q)
			q.Look()
		case "here":
			q.Look()
		case "by another":
			require.True(t, queueDo(t, other, queueOrder{Verb: "look"}).OK)
		}
	}
}

// late stores hints of about 2^32 laps ago, as a call may do after it was stopped all that time.
func late(q *prims.Queue[queueTicket]) {
	cells := uint64(q.Cells())
	all := cells << 32
	head, tail := q.Hints()
	move := func(hint uint64) uint64 {
		switch {
		case hint < all:
			return hint + all
		case hint < all+cells:
			return hint - all + cells // no position has lap 0
		}
		return hint - all
	}
	q.SetHints(move(head), move(tail))
	q.Len()
	q.SetHints(head, move(tail))
}

// TestQueueLapsWrap: laps have 32 bits, and tags have 31. When they wrap to 0, the queue works as before, even
// if this process or another computes the hints again at that moment.
func TestQueueLapsWrap(t *testing.T) {
	for _, capacity := range []int{1, 4, 64} {
		for _, healed := range []string{"never", "here", "by another", "late"} {
			t.Run(fmt.Sprintf("%d/%s", capacity, healed), func(t *testing.T) {
				a := newArena(t, nil)
				q := newQueue[queueTicket](t, a, "q", capacity)
				other := queueOther(t, a)
				cells := uint64(q.Cells())
				for _, lap := range []uint64{1<<31/cells - 2, 1<<31 - 2, 1<<32 - 2} {
					for j := range cells {
						q.SetCell(j, lap<<32)
					}
					q.SetHints((lap+1)*cells, (lap+1)*cells)
					in, out := uint64(0), uint64(0)
					get := func() {
						v, ok := q.TryGet()
						require.True(t, ok, "lap %#x, item %d: %v", lap, out, q)
						out++
						require.Equal(t, ticket(out), v, "lap %#x: %v", lap, q)
					}
					for n := uint64(0); in < 4*cells; n++ {
						for in < out+uint64(capacity) {
							require.True(t, q.TryPut(ticket(in+1)), "lap %#x, item %d: %v", lap, in, q)
							in++
							heal(t, q, other, healed)
						}
						require.False(t, q.TryPut(ticket(0)), "lap %#x, after %d items: %v", lap, in, q)
						require.Equal(t, capacity, q.Len())
						for range 1 + n%uint64(capacity) {
							get()
							heal(t, q, other, healed)
						}
					}
					for out < in {
						get()
					}
					_, ok := q.TryGet()
					require.False(t, ok)
					require.True(t, q.Consistent())
				}
			})
		}
	}
}

// TestQueueReturnedInOrderAfterManyPuts checks that items that come back have their old order, even if there were
// more than 2^30 Puts between them, and even if the hints of the ring are old.
func TestQueueReturnedInOrderAfterManyPuts(t *testing.T) {
	for _, distance := range []uint64{1, 1<<30 + 5, 2e9} {
		for _, firstBack := range []int{0, 1} {
			t.Run(fmt.Sprintf("%d/%d", distance, firstBack), func(t *testing.T) {
				q := newQueue[queueTicket](t, newArena(t, nil), "q", 64)
				cells := uint64(q.Cells())
				lease := func(n uint64) prims.Lease[queueTicket] {
					require.True(t, q.TryPut(ticket(n)))
					l, ok := q.TryLease()
					require.True(t, ok)
					return l
				}
				first := lease(1)
				_, old := q.Hints()
				if distance > cells {
					lap := (old + distance) / cells
					for j := range cells {
						q.SetCell(j, lap<<32)
					}
					q.SetHints((lap+1)*cells, (lap+1)*cells)
					lease(2).Ack()
					lease(3).Ack()
				}
				second := lease(4)
				for _, l := range [][]prims.Lease[queueTicket]{{first, second}, {second, first}}[firstBack] {
					l.Nack()
				}
				head, _ := q.Hints()
				q.SetHints(head, old)
				for _, n := range []uint64{1, 4} {
					v, ok := q.TryGet()
					require.True(t, ok)
					require.Equal(t, ticket(n), v)
				}
			})
		}
	}
}
