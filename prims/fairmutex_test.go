//go:build linux

package prims_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/prims"
)

func newFairMutex(t testing.TB, opts *prims.FairMutexOptions) *prims.FairMutex {
	t.Helper()
	f, err := prims.OpenFairMutex(newArena(t, nil), "", opts)
	require.NoError(t, err)
	return f
}

func BenchmarkFairMutex(b *testing.B) {
	f := newFairMutex(b, nil)
	b.ReportAllocs()
	for b.Loop() {
		f.Lock()
		f.Unlock()
	}
}

func BenchmarkFairMutexContended(b *testing.B) {
	f := newFairMutex(b, nil)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			f.Lock()
			f.Unlock()
		}
	})
}
