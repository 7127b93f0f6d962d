//go:build linux

package prims_test

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
	"github.com/shmsync/shmsync/shm"
)

// newArena makes an arena with a name that only this test uses.
func newArena(t testing.TB, opts *arena.Options) *arena.Arena {
	t.Helper()
	name := fmt.Sprintf("shmsync-test-%d-%s", os.Getpid(), randomName())
	a, err := arena.Create(name, opts)
	require.NoError(t, err)
	t.Cleanup(func() {
		shm.Remove(name)
		a.Close()
	})
	return a
}

func newMutex(t testing.TB, a *arena.Arena, opts *prims.MutexOptions) *prims.Mutex {
	t.Helper()
	m, err := prims.OpenMutex(a, "", opts)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}

func TestMutexHammer(t *testing.T) {
	for _, goroutines := range []int{1, 2, 8, 64} {
		t.Run(fmt.Sprint(goroutines), func(t *testing.T) {
			m := newMutex(t, newArena(t, nil), nil)
			const each = 2000
			counter := 0
			var wg sync.WaitGroup
			for range goroutines {
				wg.Go(func() {
					for range each {
						m.Lock()
						counter++
						m.Unlock()
					}
				})
			}
			wg.Wait()
			require.Equal(t, goroutines*each, counter)
			require.False(t, m.State().Held)
		})
	}
}

func BenchmarkMutexUncontended(b *testing.B) {
	b.Run("shmsync", func(b *testing.B) {
		m := newMutex(b, newArena(b, nil), nil)
		warmBias(m)
		b.ResetTimer()
		for b.Loop() {
			m.Lock()
			m.Unlock()
		}
	})
	b.Run("sync", func(b *testing.B) {
		var m sync.Mutex
		for b.Loop() {
			m.Lock()
			m.Unlock()
		}
	})
}

// warmBias locks and unlocks until the holds are biased.
func warmBias(m *prims.Mutex) {
	for range 5_000_000 {
		m.Lock()
		m.Unlock()
	}
}
