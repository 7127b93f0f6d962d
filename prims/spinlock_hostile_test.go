//go:build linux

package prims_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// spinSeeds returns words of spin locks of each kind, in the order of RewriteSpin.
func spinSeeds() (seeds [][]byte) {
	names := []uint32{0, 1, 1 | 1<<11, 2 | 1<<11, 1 | 2<<11, 2047 | 1<<11, 1<<29 - 1, 129 | 1<<11}
	for kind := range uint32(8) {
		for _, name := range names {
			b := make([]byte, 0, 144)
			for _, v := range []uint32{kind<<29 | name, 1, 1, 1, name & 0x7ff, name & 0x1ff, name, 100, 3, 1 << 31} {
				b = binary.LittleEndian.AppendUint32(b, v)
			}
			seeds = append(seeds, b)
			for _, poller := range []uint64{0, 64, 85 << 16} {
				b := b[:len(b):len(b)]
				for range 3 {
					b = binary.LittleEndian.AppendUint64(b, poller)
				}
				for _, holds := range []uint64{1, 1<<30 - 1, 1 << 30, 0} {
					b = binary.LittleEndian.AppendUint64(b, uint64(name)<<32|holds|uint64(kind&1)<<63)
				}
				seeds = append(seeds, b)
			}
		}
	}
	all := make([]byte, 144)
	for i := range all {
		all[i] = 0xff
	}
	return append(seeds, all)
}

// cannotMore returns a function that calls f and ignores the panic about too many holds. A damaged word may say that
// this process has the maximum number of holds.
func cannotMore(f func()) func() {
	return func() {
		defer func() {
			r := recover()
			if s, ok := r.(string); r != nil && (!ok || !strings.Contains(s, "cannot more often")) {
				panic(r)
			}
		}()
		f()
	}
}

func hostileSpin(t testing.TB, h *hostile, bytes []byte) {
	a := h.next(t)
	l, err := prims.OpenSpinLock(a, "", nil)
	require.NoError(t, err)
	o := l.Object()
	words := func() string { return prims.Describe(a, o) }
	try := func(what string, f func(ctx context.Context)) {
		prims.RewriteSpin(a, o, bytes)
		ctx, cancel := context.WithTimeout(context.Background(), hostileTimeout)
		defer cancel()
		require.NoError(t, guarded(what, words, func() { f(ctx) }), "%x", bytes)
	}
	try("LockContext", func(ctx context.Context) {
		if l.LockContext(ctx) == nil {
			l.Unlock()
		}
	})
	try("TryLock", func(context.Context) {
		if l.TryLock() {
			l.Unlock()
		}
	})
	try("Unlock", func(context.Context) { l.Unlock() })
	try("Recover", func(ctx context.Context) { l.RecoverContext(ctx, func() error { return nil }) })
	try("Recover fails", func(ctx context.Context) { l.RecoverContext(ctx, func() error { return errRepair }) })
	try("State", func(context.Context) {
		_, _, _, _ = l.State(), l.String(), l.Spin(), words()
		_ = a.Check()
	})
	prims.RewriteSpin(a, o, make([]byte, 64))
	ctx, cancel := context.WithTimeout(context.Background(), timeout())
	defer cancel()
	require.NoError(t, l.LockContext(ctx), "%x", bytes)
	l.Unlock()
	l.Close()
}

func hostileRWSpin(t testing.TB, h *hostile, bytes []byte) {
	a := h.next(t)
	l, err := prims.OpenRWSpinLock(a, "", nil)
	require.NoError(t, err)
	o := l.Object()
	words := func() string { return prims.Describe(a, o) }
	try := func(what string, f func(ctx context.Context)) {
		prims.RewriteSpin(a, o, bytes)
		ctx, cancel := context.WithTimeout(context.Background(), hostileTimeout)
		defer cancel()
		require.NoError(t, guarded(what, words, cannotMore(func() { f(ctx) })), "%x", bytes)
	}
	for what, f := range map[string]func(ctx context.Context){
		"LockContext": func(ctx context.Context) {
			if l.LockContext(ctx) == nil {
				l.Unlock()
			}
		},
		"RLockContext": func(ctx context.Context) {
			if l.RLockContext(ctx) == nil {
				l.RUnlock()
			}
		},
		"LockUpgradableContext": func(ctx context.Context) {
			if l.LockUpgradableContext(ctx) == nil {
				if l.UpgradeContext(ctx) == nil {
					l.Unlock()
				} else {
					l.UnlockUpgradable()
				}
			}
		},
		"tries": func(ctx context.Context) {
			if l.TryLock() {
				l.Downgrade()
			} else if l.TryLockUpgradable() {
				if l.TryUpgrade() {
					l.DowngradeToUpgradable()
				}
				l.DowngradeToRead()
			} else if l.TryRLock() {
				l.RUnlock()
			}
		},
		"Unlock":                func(context.Context) { l.Unlock() },
		"RUnlock":               func(context.Context) { l.RUnlock() },
		"UnlockUpgradable":      func(context.Context) { l.UnlockUpgradable() },
		"Upgrade":               func(ctx context.Context) { l.UpgradeContext(ctx) },
		"TryUpgrade":            func(context.Context) { l.TryUpgrade() },
		"Downgrade":             func(context.Context) { l.Downgrade() },
		"DowngradeToUpgradable": func(context.Context) { l.DowngradeToUpgradable() },
		"DowngradeToRead":       func(context.Context) { l.DowngradeToRead() },
		"Recover":               func(ctx context.Context) { l.RecoverContext(ctx, func() error { return nil }) },
		"Recover fails":         func(ctx context.Context) { l.RecoverContext(ctx, func() error { return errRepair }) },
		"State": func(context.Context) {
			_, _, _, _ = l.State(), l.String(), l.Spin(), words()
			_ = a.Check()
		},
	} {
		try(what, f)
	}
	prims.RewriteSpin(a, o, make([]byte, 64+128*8))
	ctx, cancel := context.WithTimeout(context.Background(), timeout())
	defer cancel()
	require.NoError(t, l.LockContext(ctx), "%x", bytes)
	l.Downgrade()
	l.RUnlock()
	l.Close()
}

func TestHostileSpinLock(t *testing.T) {
	var h hostile
	defer h.end()
	for _, b := range spinSeeds() {
		hostileSpin(t, &h, b)
	}
}

func TestHostileRWSpinLock(t *testing.T) {
	var h hostile
	defer h.end()
	seeds := spinSeeds()
	if testing.Short() {
		rand.Shuffle(len(seeds), func(i, j int) { seeds[i], seeds[j] = seeds[j], seeds[i] })
		seeds = seeds[:40]
	}
	for _, b := range seeds {
		hostileRWSpin(t, &h, b)
	}
}

func FuzzSpinLockWord(f *testing.F) {
	for _, b := range spinSeeds()[:24] {
		f.Add(b)
	}
	var h hostile
	f.Cleanup(h.end)
	f.Fuzz(func(t *testing.T, b []byte) { hostileSpin(t, &h, b) })
}

func FuzzRWSpinLockWord(f *testing.F) {
	for _, b := range spinSeeds()[:24] {
		f.Add(b)
	}
	var h hostile
	f.Cleanup(h.end)
	f.Fuzz(func(t *testing.T, b []byte) { hostileRWSpin(t, &h, b) })
}

// TestScribbledRWSpinLock: a peer keeps changing the bytes while processes lock. When the peer has restored
// valid bytes, the lock works as before.
func TestScribbledRWSpinLock(t *testing.T) {
	a := newArena(t, nil)
	l := newRWSpin(t, a, nil)
	dump := func() string { return prims.Describe(a, l.Object()) }
	seeds := spinSeeds()
	underScribbles(t, dump, func(i int, ctx context.Context) {
		cannotMore(func() {
			switch {
			case i%3 == 0 && l.LockContext(ctx) == nil:
				l.Unlock()
			case i%3 == 1 && l.RLockContext(ctx) == nil:
				l.RUnlock()
			case i%3 == 2 && l.LockUpgradableContext(ctx) == nil:
				if l.UpgradeContext(ctx) == nil {
					l.Downgrade()
					l.RUnlock()
				} else {
					l.UnlockUpgradable()
				}
			}
		})()
	}, func() {
		b := seeds[rand.IntN(len(seeds))]
		prims.RewriteSpin(a, l.Object(), b[:4*(1+rand.IntN(10))])
	})
	prims.RewriteSpin(a, l.Object(), make([]byte, 40))
	own := make([]byte, 64+8*128)
	prims.RewriteSpin(a, l.Object(), own[:40])
	l.SetHolds(1)
	l.RUnlock()
	require.NoError(t, l.LockContext(t.Context()), "%s", dump())
	l.Unlock()
	require.NoError(t, arenaCheck(a))
}

// arenaCheck calls Check until it finds no fault, or for a limited time. It returns the fault that remains, or
// nil.
func arenaCheck(a *arena.Arena) error {
	var err error
	waitUntil(timeout(), func() bool {
		err = a.Check()
		return err == nil
	})
	return err
}

// TestRWSpinLockTriesWithAnImpossibleCount: the reader count of this process has an impossible value. TryRLock
// still returns, and RLockContext fails.
func TestRWSpinLockTriesWithAnImpossibleCount(t *testing.T) {
	a := newArena(t, nil)
	l := newRWSpin(t, a, nil)
	l.SetHolds(0) // now the word names this process with 0 holds; a correct word would be 0
	done := make(chan struct{})
	go func() {
		defer close(done)
		if l.TryRLock() {
			t.Error("it is held")
		}
		if err := l.RLockContext(t.Context()); !errors.Is(err, shmsync.ErrCorrupt) {
			t.Error(err)
		}
	}()
	select {
	case <-done:
	case <-after(timeout()):
		t.Fatalf("it does not end: %v", l)
	}
}
