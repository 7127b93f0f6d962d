//go:build linux

package prims_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

func newQueue[T any](t testing.TB, a *arena.Arena, name string, capacity int) *prims.Queue[T] {
	t.Helper()
	q, err := prims.OpenQueue[T](a, name, capacity, nil)
	require.NoError(t, err)
	return q
}

// TestQueueAgainstModel makes calls of all kinds in random order, and compares their results with those of a simple
// model, in which the queue is a slice.
func TestQueueAgainstModel(t *testing.T) {
	type item struct {
		n     uint64
		times int
	}
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		capacity := 1 + r.IntN(9)
		q := newQueue[uint64](t, newArena(t, nil), "", capacity)
		var model []item // in order of n
		var leases []prims.Lease[uint64]
		next := uint64(0)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		for range 2000 {
			room := len(model)+len(leases) < capacity
			switch r.IntN(9) {
			case 0, 1:
				require.Equal(t, room, q.TryPut(next+1))
				if room {
					next++
					model = append(model, item{next, 0})
				}
			case 2:
				vs := make([]uint64, r.IntN(4))
				for i := range vs {
					vs[i] = next + 1 + uint64(i)
				}
				want := min(len(vs), capacity-len(model)-len(leases))
				n, err := q.PutBatchContext(ctx, vs)
				require.Equal(t, want, n)
				require.Equal(t, n < len(vs), err == context.Canceled)
				for range n {
					next++
					model = append(model, item{next, 0})
				}
			case 3:
				v, ok := q.TryGet()
				require.Equal(t, len(model) > 0, ok)
				if ok {
					require.Equal(t, model[0].n, v)
					model = model[1:]
				}
			case 4:
				into := make([]uint64, r.IntN(4))
				n, err := q.GetBatchContext(ctx, into)
				require.Equal(t, min(len(into), len(model)), n)
				require.Equal(t, n == 0 && len(into) > 0, err == context.Canceled)
				for i := range n {
					require.Equal(t, model[i].n, into[i])
				}
				model = model[n:]
			case 5, 6:
				l, err := q.LeaseContext(ctx)
				require.Equal(t, len(model) > 0, err == nil)
				if err == nil {
					require.Equal(t, model[0], item{l.Item, l.Attempts})
					model, leases = model[1:], append(leases, l)
				}
			default:
				if len(leases) == 0 {
					continue
				}
				i := r.IntN(len(leases))
				l := leases[i]
				leases = append(leases[:i], leases[i+1:]...)
				if r.IntN(2) == 0 {
					l.Ack()
				} else {
					l.Nack()
					at := 0
					for at < len(model) && model[at].n < l.Item {
						at++
					}
					model = append(model[:at], append([]item{{l.Item, l.Attempts + 1}}, model[at:]...)...)
				}
				require.Panics(t, l.Ack)
				require.Panics(t, l.Nack)
			}
			require.Equal(t, len(model), q.Len())
			require.Equal(t, len(leases), q.State().Out)
			require.True(t, q.Consistent(), "%v", q)
		}
	}
}

func BenchmarkQueue(b *testing.B) {
	b.Run("kind=queue", func(b *testing.B) {
		q := newQueue[uint64](b, newArena(b, nil), "", 64)
		b.ReportAllocs()
		for b.Loop() {
			q.Put(1)
			q.Get()
		}
	})
	b.Run("kind=try", func(b *testing.B) {
		q := newQueue[uint64](b, newArena(b, nil), "", 64)
		for b.Loop() {
			q.TryPut(1)
			q.TryGet()
		}
	})
	b.Run("kind=lease", func(b *testing.B) {
		q := newQueue[uint64](b, newArena(b, nil), "", 64)
		for b.Loop() {
			q.Put(1)
			l, _ := q.Lease()
			l.Ack()
		}
	})
	b.Run("kind=batch64", func(b *testing.B) {
		q := newQueue[uint64](b, newArena(b, nil), "", 64)
		var vs [64]uint64
		for b.Loop() {
			q.PutBatch(vs[:])
			q.GetBatch(vs[:])
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/item")
	})
	b.Run("kind=chan", func(b *testing.B) {
		c := make(chan uint64, 64)
		for b.Loop() {
			c <- 1
			<-c
		}
	})
}
