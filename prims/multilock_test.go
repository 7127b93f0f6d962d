//go:build linux

package prims_test

import (
	"testing"

	"github.com/stretchr/testify/require"

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
}
