//go:build linux

package prims_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// heal makes a process (this one, or another) compute the hints of q again, as
// a periodic check does when nothing has moved since the last one. With "late",
// calls that were stopped for long change the hints first.
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

// late has calls that were stopped for about 2^32 laps go on and store the hints that they had then.
func late(q *prims.Queue[queueTicket]) {
	cells := uint64(q.Cells())
	all := cells << 32
	head, tail := q.Hints()
	move := func(hint uint64) uint64 {
		switch {
		case hint < all:
			return hint + all
		case hint < all+cells:
			return hint - all + cells // the lap 0 has no positions
		}
		return hint - all
	}
	q.SetHints(move(head), move(tail))
	q.Len()
	q.SetHints(head, move(tail))
}

// Laps have 32 bits, and tags have 31. When they begin anew, nothing changes: not even if the hints are made anew at
// that moment, by this process or by another one.
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
