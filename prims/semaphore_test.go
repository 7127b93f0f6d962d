//go:build linux

package prims_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/prims"
)

func BenchmarkSemaphore(b *testing.B) {
	a := newArena(b, nil)
	s, err := prims.OpenSemaphore(a, "", 10, nil)
	require.NoError(b, err)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		s.AcquireContext(ctx, 1)
		s.Release(1)
	}
}

func BenchmarkSemaphoreLatch(b *testing.B) {
	m := newMutex(b, newArena(b, nil), nil)
	b.ReportAllocs()
	for b.Loop() {
		m.Lock()
		m.Unlock()
	}
}
