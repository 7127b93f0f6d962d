//go:build linux

package prims_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// BenchmarkMultiLockCheck measures a periodic check of a bucket with 10,000 held keys, while one goroutine waits.
func BenchmarkMultiLockCheck(b *testing.B) {
	x, stop := waitedBeside(b, 10_000)
	defer stop()
	for b.Loop() {
		x.Check()
	}
}

// waitedBeside returns a MultiLock with one bucket. This process holds as many keys as the parameter keys says, and one
// goroutine waits for one of them. The function stop ends the wait.
func waitedBeside(t testing.TB, keys int) (x *prims.MultiLock, stop func()) {
	t.Helper()
	a := newArena(t, &arena.Options{Size: 16 << 20})
	x, err := prims.OpenMultiLock(a, "x", &prims.MultiLockOptions{Buckets: 1})
	require.NoError(t, err)
	holds := make([]prims.Hold, keys)
	for i := range holds {
		holds[i] = x.Lock(uint64(i))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.Lock(1).Unlock()
	}()
	eventually(t, "queued", func() string { return words(a) }, func() bool { return x.Queued(1) == 1 })
	return x, func() {
		for _, h := range holds {
			h.Unlock()
		}
		<-done
	}
}

// TestMultiLockCheckIsCheapBesideHeldKeys: a bucket has thousands of held keys. Goroutines that wait check ten times a
// second. The check takes time for the keys that are waited for, not for those that are held.
func TestMultiLockCheckIsCheapBesideHeldKeys(t *testing.T) {
	least := func(keys int) time.Duration {
		x, stop := waitedBeside(t, keys)
		defer stop()
		least := time.Hour
		for range proctest.Rounds(100, 1000) {
			start := time.Now()
			for range 10 {
				x.Check()
			}
			least = min(least, time.Since(start))
		}
		return least / 10
	}
	few, many := least(10), least(10_000)
	t.Logf("10 held keys: %v, 10,000 held keys: %v", few, many)
	require.Less(t, many, 30*few)
}
