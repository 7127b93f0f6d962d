//go:build linux

package prims_test

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// hostileRWSeeds returns contents for RewriteRWMutex, with a gate of each kind.
func hostileRWSeeds() (seeds [][]byte) {
	names := []uint32{0, 1 | 1<<11, 2 | 1<<11, 1 | 2<<11, 1<<29 - 1}
	for kind := range uint32(8) {
		for _, name := range names {
			for _, owner := range []uint32{0, 1 | 1<<11, 3<<29 | 5, 5 << 29, 7 << 29} {
				b := make([]byte, 0, 100)
				for _, v := range []uint32{kind<<29 | name, owner, 1, 3, 1, 1, name, 7, 100, 1 << 31} {
					b = binary.LittleEndian.AppendUint32(b, v)
				}
				seeds = append(seeds, b)
				for _, line := range []uint64{1, 1 | 3<<41, 1 | 5<<18, 2 | 1<<41 | 1<<18, ^uint64(0), 1 | (1<<23-1)<<41} {
					l := binary.LittleEndian.AppendUint64(b[:len(b):len(b)], line)
					seeds = append(seeds, binary.LittleEndian.AppendUint64(l, line^1))
				}
			}
		}
	}
	all := make([]byte, 200)
	for i := range all {
		all[i] = 0xff
	}
	return append(seeds, all)
}

const hostileRWTimeout = time.Millisecond

func hostileRWMutex(t testing.TB, h *hostile, bytes []byte) {
	a := h.next(t)
	m, err := prims.OpenRWMutex(a, "", nil)
	require.NoError(t, err)
	off, o := m.Offset(), m.Object()
	prims.RewriteRWMutex(a, o, bytes)
	require.NoError(t, m.Close())
	m, err = prims.RWMutexAt(a, off)
	require.NoError(t, err)
	words := func() string { return prims.Describe(a, o) }
	try := func(what string, f func(ctx context.Context)) {
		t.Helper()
		prims.ResetRWMutex(a, o)
		prims.RewriteRWMutex(a, o, bytes)
		ctx, cancel := context.WithTimeout(context.Background(), hostileRWTimeout)
		defer cancel()
		require.NoError(t, guarded(what, words, func() { f(ctx) }), "%x", bytes)
	}
	mistake := func(f func()) {
		defer func() { recover() }() // several goroutines may believe that they hold the lock, so an Unlock may panic
		f()
	}
	try("LockContext", func(ctx context.Context) {
		if m.LockContext(ctx) == nil {
			mistake(m.Unlock)
		}
	})
	try("RLockContext", func(ctx context.Context) {
		if m.RLockContext(ctx) == nil {
			mistake(m.RUnlock)
		}
	})
	try("LockUpgradableContext", func(ctx context.Context) {
		if m.LockUpgradableContext(ctx) == nil {
			mistake(m.UnlockUpgradable)
		}
	})
	try("UpgradeContext", func(ctx context.Context) {
		if m.TryLockUpgradable() {
			if m.TryUpgrade() {
				mistake(m.DowngradeToUpgradable)
			}
			if m.UpgradeContext(ctx) == nil {
				mistake(m.Unlock)
			} else {
				mistake(m.DowngradeToRead)
			}
		}
	})
	try("UnlockUpgradable", func(context.Context) { m.UnlockUpgradable() })
	try("some of each", func(ctx context.Context) {
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				lock, unlock := m.LockContext, m.Unlock
				if i%2 == 0 {
					lock, unlock = m.RLockContext, m.RUnlock
				} else if i == 3 {
					lock, unlock = m.LockUpgradableContext, m.UnlockUpgradable
				}
				if lock(ctx) == nil {
					mistake(unlock)
				}
			})
		}
		wg.Wait()
	})
	try("TryLock", func(context.Context) {
		if m.TryLock() {
			mistake(m.Unlock)
		}
	})
	try("TryRLock", func(context.Context) {
		if m.TryRLock() {
			mistake(m.RUnlock)
		}
	})
	try("Unlock", func(context.Context) { m.Unlock() })
	try("RUnlock", func(context.Context) { m.RUnlock() })
	try("Downgrade", func(context.Context) { m.Downgrade() })
	try("Recover", func(ctx context.Context) { m.RecoverContext(ctx, func() error { return nil }) })
	try("Recover fails", func(ctx context.Context) { m.RecoverContext(ctx, func() error { return errRepair }) })
	try("State", func(context.Context) {
		_, _, _ = m.State(), m.String(), m.Spin()
		_ = words()
		_ = a.Check()
	})
	// After a reset, the RWMutex works again.
	prims.ResetRWMutex(a, o)
	prims.ForgetRWMutex(m)
	ctx, cancel := context.WithTimeout(context.Background(), timeout())
	defer cancel()
	require.NoError(t, m.LockContext(ctx), "%x", bytes)
	m.DowngradeToUpgradable()
	m.UnlockUpgradable()
	require.NoError(t, m.RLockContext(ctx), "%x", bytes)
	m.RUnlock()
	m.Close()
}

func TestHostileRWMutex(t *testing.T) {
	var h hostile
	defer h.end()
	seeds := hostileRWSeeds()
	if testing.Short() {
		rand.Shuffle(len(seeds), func(i, k int) { seeds[i], seeds[k] = seeds[k], seeds[i] })
		seeds = seeds[:100]
	}
	for _, b := range proctest.Sample(seeds, 100) {
		hostileRWMutex(t, &h, b)
	}
}

func FuzzRWMutexWord(f *testing.F) {
	for _, b := range proctest.Sample(hostileRWSeeds()[:24], 6) {
		f.Add(b)
	}
	var h hostile
	f.Cleanup(h.end)
	f.Fuzz(func(t *testing.T, b []byte) { hostileRWMutex(t, &h, b) })
}

// TestScribbledRWMutex: a peer overwrites the words all the time while processes lock. When the words are valid
// again, the lock works as before.
func TestScribbledRWMutex(t *testing.T) {
	a := newArena(t, &arena.Options{MaxParticipants: 4})
	m := newRWMutex(t, a, nil)
	seeds := hostileRWSeeds()
	underScribbles(t, func() string { return prims.Describe(a, m.Object()) }, func(i int, ctx context.Context) {
		lock, unlock := m.LockContext, m.Unlock
		switch i % 6 {
		case 1, 2, 4:
			lock, unlock = m.RLockContext, m.RUnlock
		case 5:
			lock = m.LockUpgradableContext
			unlock = func() {
				if m.UpgradeContext(ctx) == nil {
					m.DowngradeToUpgradable()
				}
				m.UnlockUpgradable()
			}
		}
		if lock(ctx) == nil {
			defer func() { recover() }()
			unlock()
		}
	}, func() {
		b := seeds[rand.IntN(len(seeds))]
		prims.RewriteRWMutex(a, m.Object(), b[:min(len(b), 4*(1+rand.IntN(14)))])
	})
	prims.ResetRWMutex(a, m.Object())
	prims.ForgetRWMutex(m)
	require.NoError(t, m.LockContext(t.Context()))
	m.Unlock()
	require.NoError(t, m.RLockContext(t.Context()))
	m.RUnlock()
	sound(t, a)
}
