//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

func newMultiLock(t testing.TB, opts *prims.MultiLockOptions) *prims.MultiLock {
	t.Helper()
	x, err := prims.OpenMultiLock(newArena(t, nil), "", opts)
	require.NoError(t, err)
	return x
}

func BenchmarkMultiLock(b *testing.B) {
	b.Run("one key", func(b *testing.B) {
		x := newMultiLock(b, nil)
		b.ReportAllocs()
		for b.Loop() {
			x.Lock(7).Unlock()
		}
	})
	b.Run("keys in turn", func(b *testing.B) {
		x := newMultiLock(b, nil)
		b.ReportAllocs()
		key := uint64(0)
		for b.Loop() {
			x.Lock(key).Unlock()
			key++
		}
	})
	b.Run("beside 5 held", func(b *testing.B) {
		x := newMultiLock(b, &prims.MultiLockOptions{Buckets: 1})
		for key := range uint64(5) {
			x.Lock(key)
		}
		b.ReportAllocs()
		for b.Loop() {
			x.Lock(7).Unlock()
		}
	})
	for _, keys := range []uint64{0, 200_000} {
		b.Run(fmt.Sprintf("8 keys after %d held keys", keys), func(b *testing.B) {
			x, err := prims.OpenMultiLock(newArena(b, &arena.Options{Size: 64 << 20}), "", nil)
			require.NoError(b, err)
			var holds prims.Holds
			for key := range keys {
				holds = append(holds, x.Lock(1000+key))
			}
			holds.Unlock()
			key := uint64(0)
			for b.Loop() {
				x.Lock(1 + key%8).Unlock()
				key++
			}
		})
	}
	b.Run("beside 1000 who wait for another key of the bucket", func(b *testing.B) {
		x := newMultiLock(b, &prims.MultiLockOptions{Buckets: 1})
		h := x.Lock(1)
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() { x.LockContext(ctx, 1) })
		}
		eventually(b, "all wait", x.String, func() bool { return x.Queued(1) == 1000 })
		b.ReportAllocs()
		for b.Loop() {
			x.Lock(7).Unlock()
		}
		b.StopTimer()
		cancel()
		wg.Wait()
		h.Unlock()
	})
	b.Run("handed on", func(b *testing.B) {
		x := newMultiLock(b, nil)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				x.Lock(7).Unlock()
			}
		})
	})
}
