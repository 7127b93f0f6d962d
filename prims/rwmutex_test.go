//go:build linux

package prims_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

func newRWMutex(t testing.TB, a *arena.Arena, opts *prims.RWMutexOptions) *prims.RWMutex {
	t.Helper()
	m, err := prims.OpenRWMutex(a, "", opts)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}

// TestRWMutexHammer is like the test of sync.RWMutex. It checks that there is never a reader or a second writer
// beside a writer.
func TestRWMutexHammer(t *testing.T) {
	for _, n := range []int{1, 3, 10, 40} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			m := newRWMutex(t, newArena(t, nil), nil)
			var activity atomic.Int32
			var wg sync.WaitGroup
			turns := proctest.Rounds(100, 500)
			reader := func(lock func() bool, unlock func()) {
				for range turns {
					for !lock() {
						runtime.Gosched()
					}
					if n := activity.Add(1); n < 1 || n >= 10000 {
						panic(fmt.Sprintf("a reader sees %d", n))
					}
					for range 100 {
					}
					activity.Add(-1)
					unlock()
				}
			}
			writer := func(lock func() bool, unlock func()) {
				for range turns {
					for !lock() {
						runtime.Gosched()
					}
					if n := activity.Add(10000); n != 10000 {
						panic(fmt.Sprintf("a writer sees %d", n))
					}
					for range 100 {
					}
					activity.Add(-10000)
					unlock()
				}
			}
			plain := func(f func()) func() bool { return func() bool { f(); return true } }
			for i := range n {
				wg.Go(func() { reader(plain(m.RLock), m.RUnlock) })
				wg.Go(func() { reader(m.TryRLock, m.RLocker().Unlock) })
				if i%4 == 0 {
					wg.Go(func() { writer(plain(m.Lock), m.Unlock) })
					wg.Go(func() { writer(m.TryLock, m.Unlock) })
					wg.Go(func() {
						writer(plain(m.Lock), func() {
							activity.Add(1) // the other goroutines see that this goroutine reads
							m.Downgrade()
							activity.Add(-1)
							m.RUnlock()
						})
					})
				}
			}
			wg.Wait()
			require.Equal(t, prims.RWMutexState{Word: "open", Queued: m.State().Queued}, m.State())
		})
	}
}

func BenchmarkRWMutexRead(b *testing.B) {
	b.Run("shmsync", func(b *testing.B) {
		m := newRWMutex(b, newArena(b, nil), nil)
		for b.Loop() {
			m.RLock()
			m.RUnlock()
		}
	})
	b.Run("sync", func(b *testing.B) {
		var m sync.RWMutex
		for b.Loop() {
			m.RLock()
			m.RUnlock()
		}
	})
}

func BenchmarkRWMutexWrite(b *testing.B) {
	b.Run("shmsync", func(b *testing.B) {
		m := newRWMutex(b, newArena(b, nil), nil)
		for b.Loop() {
			m.Lock()
			m.Unlock()
		}
	})
	b.Run("sync", func(b *testing.B) {
		var m sync.RWMutex
		for b.Loop() {
			m.Lock()
			m.Unlock()
		}
	})
}

// TestRWMutexOwesNoWakeToAWriterBehindAReader: while a reader has the lock, Close of an arena does not wake a waiting
// writer. The writer could not go on, and the reader wakes it in the end.
func TestRWMutexOwesNoWakeToAWriterBehindAReader(t *testing.T) {
	a := newArena(t, nil)
	m, err := prims.OpenRWMutex(a, "x", nil)
	require.NoError(t, err)
	m.RLock()
	wrote := make(chan bool)
	go func() {
		m.Lock()
		m.Unlock()
		close(wrote)
	}()
	waiting(t, a, "x", 1)
	before, after := m.WakeOwed()
	require.True(t, park.Word(before).Announced())
	require.Equal(t, before, after)
	m.RUnlock()
	<-wrote
}

// TestRWMutexWriterFindsItsGateOpen checks that a waiting writer closes the gate again if another process has opened
// the gate and has not woken the writer. All the time, a reader has the lock.
func TestRWMutexWriterFindsItsGateOpen(t *testing.T) {
	a := newArena(t, nil)
	m, err := prims.OpenRWMutex(a, "x", nil)
	require.NoError(t, err)
	m.RLock()
	wrote := make(chan error, 1)
	go func() { wrote <- m.LockContext(t.Context()) }()
	waiting(t, a, "x", 1)
	require.True(t, m.State().Closed)
	require.True(t, m.OpenGate())
	eventually(t, "the writer closes the gate again", m.String, func() bool { return m.State().Closed })
	m.RUnlock()
	require.NoError(t, <-wrote)
	m.Unlock()
}
