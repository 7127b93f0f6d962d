//go:build linux

package prims_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// These tests show that no operation trusts the bytes of a peer: with any values in the words of an
// object, an operation ends with success or an error, no later than its context.

// guardedBy runs f and returns an error if f does not end, or if it panics with a value that
// mayPanic does not accept.
func guardedBy(mayPanic func(r any) bool, what string, words func() string, f func()) error {
	done := make(chan error, 1)
	go func() {
		defer func() {
			var err error
			if r := recover(); r != nil && !mayPanic(r) {
				err = fmt.Errorf("%s panics: %v", what, r)
			}
			done <- err
		}()
		f()
	}()
	select {
	case err := <-done:
		return err
	case <-after(timeout()):
		return fmt.Errorf("%s hangs: %s", what, words())
	}
}

// guarded runs f. It accepts the panics of an Unlock that finds an impossible word, and those of a
// Lock, which cannot return an error.
func guarded(what string, words func() string, f func()) error {
	return guardedBy(func(r any) bool {
		switch r := r.(type) {
		case error:
			return errors.Is(r, shmsync.ErrCorrupt) || errors.Is(r, shmsync.ErrOwnerDead) || errors.Is(r, shmsync.ErrNotRecoverable)
		case string:
			return strings.Contains(r, "does not hold")
		}
		return false
	}, what, words, f)
}

// underScribbles lets goroutines use an object, with contexts that end soon, while scribble
// overwrites the words of the object all the time.
func underScribbles(t *testing.T, words func() string, use func(i int, ctx context.Context), scribble func()) {
	t.Helper()
	var stop atomic.Bool
	var wg sync.WaitGroup
	errs := make(chan error, 100)
	for i := range 18 { // more waiters than may sleep in the kernel
		wg.Go(func() {
			for !stop.Load() {
				err := guarded("a lock", words, func() {
					ctx, cancel := context.WithTimeout(context.Background(), hostileTimeout)
					defer cancel()
					use(i, ctx)
				})
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	d := proctest.Rounds(proctest.Scale(time.Second)/5, proctest.Scale(time.Second))
	for end := time.Now().Add(d); time.Now().Before(end); {
		scribble()
	}
	stop.Store(true)
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
}

// hostile has the two arenas in which the tests try hostile bytes. In the first arena a waiter sleeps in the kernel.
// In the second arena so many waiters sleep in the kernel already that a further waiter parks instead.
type hostile struct {
	arenas [2]*arena.Arena
	round  int
	close  []func()
}

func (h *hostile) renew(t testing.TB) {
	h.end()
	for i := range h.arenas {
		name := fmt.Sprintf("shmsync-test-hostile-%s", randomName())
		a, err := arena.Create(name, &arena.Options{Size: 4 << 20})
		require.NoError(t, err)
		removeArena(name)
		h.arenas[i] = a
		if i == 0 {
			h.close = append(h.close, func() { a.Close() })
			continue
		}
		m, err := prims.OpenMutex(a, "", nil)
		require.NoError(t, err)
		m.Lock()
		var wg sync.WaitGroup
		for range 14 {
			wg.Go(func() {
				m.Lock()
				m.Unlock()
			})
		}
		eventually(t, "threads are taken", m.String, func() bool { return m.Waiters() == 14 })
		h.close = append(h.close, func() {
			m.Unlock()
			wg.Wait()
			a.Close()
		})
	}
}

func (h *hostile) end() {
	for _, f := range h.close {
		f()
	}
	h.close = nil
}

// next returns the arena in which the next bytes are tried.
func (h *hostile) next(t testing.TB) *arena.Arena {
	if h.round%200 == 0 {
		h.renew(t)
	}
	h.round++
	return h.arenas[h.round%2]
}

const hostileTimeout = 3 * time.Millisecond

func hostileMutex(t testing.TB, h *hostile, bytes []byte) {
	a := h.next(t)
	m, err := prims.OpenMutex(a, "", nil)
	require.NoError(t, err)
	off, o := m.Offset(), m.Object()
	prims.Rewrite(a, o, bytes)
	require.NoError(t, m.Close())
	m, err = prims.MutexAt(a, off)
	if errors.Is(err, shmsync.ErrCorrupt) { // the bytes say PolicyRollback, and there is no room for a log
		return
	}
	require.NoError(t, err)
	words := func() string { return prims.Describe(a, o) }
	try := func(what string, f func(ctx context.Context)) {
		prims.Rewrite(a, o, bytes)
		ctx, cancel := context.WithTimeout(context.Background(), hostileTimeout)
		defer cancel()
		require.NoError(t, guarded(what, words, func() { f(ctx) }), "%x", bytes)
	}
	try("LockContext", func(ctx context.Context) {
		if m.LockContext(ctx) == nil {
			m.Unlock()
		}
	})
	try("LockContext of two", func(ctx context.Context) {
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if m.LockContext(ctx) == nil {
					defer func() { recover() }() // two processes may believe that they hold the lock, so Unlock may panic
					m.Unlock()
				}
			})
		}
		wg.Wait()
	})
	try("TryLock", func(context.Context) {
		if m.TryLock() {
			m.Unlock()
		}
	})
	try("Unlock", func(context.Context) {
		// Unlock must not change a word that does not name this process. The test does not require this for the
		// invalid word of all ones: a peer that writes it could as well have written 0, which frees the lock.
		if was := m.OwnerWord(); !m.HeldByUs() && was != ^uint32(0) {
			defer func() {
				if is := m.OwnerWord(); is != was {
					panic(fmt.Errorf("the owner word was %#x and is %#x", was, is))
				}
			}()
		}
		m.Unlock()
	})
	try("Recover", func(ctx context.Context) { m.RecoverContext(ctx, func() error { return nil }) })
	try("Recover fails", func(ctx context.Context) { m.RecoverContext(ctx, func() error { return errRepair }) })
	try("State", func(context.Context) {
		_ = m.State()
		_ = m.String()
		_ = m.Spin()
		_ = words()
		_ = a.Check()
	})
	// With correct bytes the lock can be used again.
	prims.Rewrite(a, o, make([]byte, 48))
	ctx, cancel := context.WithTimeout(context.Background(), timeout())
	defer cancel()
	require.NoError(t, m.LockContext(ctx), "%x", bytes)
	m.Unlock()
	m.Close()
}

func hostileFutex(t testing.TB, h *hostile, bytes []byte) {
	a := h.next(t)
	f, err := prims.OpenFutex(a, "", nil)
	require.NoError(t, err)
	o := f.Object()
	words := func() string { return prims.Describe(a, o) }
	try := func(what string, do func(ctx context.Context)) {
		prims.Rewrite(a, o, bytes)
		ctx, cancel := context.WithTimeout(context.Background(), hostileTimeout)
		defer cancel()
		require.NoError(t, guarded(what, words, func() { do(ctx) }), "%x", bytes)
	}
	try("WaitContext", func(ctx context.Context) { f.WaitContext(ctx, (f.Get()+1)&(1<<62-1)) })
	try("WaitContext of the last", func(ctx context.Context) { f.WaitContext(ctx, 1<<62-1) })
	try("Post", func(context.Context) { f.Post() })
	try("Post beside a waiter", func(ctx context.Context) {
		done := make(chan struct{})
		go func() { f.WaitContext(ctx, (f.Get()+1)&(1<<62-1)); close(done) }()
		f.Post()
		<-done
	})
	try("Stop", func(ctx context.Context) { f.Stop(); f.WaitContext(ctx, 1<<62-1) })
	try("Get", func(context.Context) { _, _, _ = f.Get(), f.String(), words(); _ = a.Check() })
	prims.Rewrite(a, o, make([]byte, 28))
	f.Close()
}

// hostileSeeds returns contents for the first words of a Mutex. They include owner words of every kind.
func hostileSeeds() (seeds [][]byte) {
	names := []uint32{0, 1, 1 | 1<<11, 2 | 1<<11, 1 | 2<<11, 2047 | 1<<11, 1<<29 - 1, 129 | 1<<11}
	for kind := range uint32(8) {
		for _, name := range names {
			b := make([]byte, 0, 44)
			for _, v := range []uint32{kind<<29 | name, 1, name, 7, name & 0x1ff, name, 100, 3, 1 << 31} {
				b = binary.LittleEndian.AppendUint32(b, v)
			}
			seeds = append(seeds, b, append(b[:len(b):len(b)], 64, 0, 0, 0, 0, 0, 0, 0), append(b[:len(b):len(b)], 0, 0, 85, 0, 0, 0, 0, 0))
		}
	}
	all := make([]byte, 44)
	for i := range all {
		all[i] = 0xff
	}
	return append(seeds, all)
}

func TestHostileMutex(t *testing.T) {
	var h hostile
	defer h.end()
	for _, b := range hostileSeeds() {
		hostileMutex(t, &h, b)
	}
}

func TestHostileFutex(t *testing.T) {
	var h hostile
	defer h.end()
	for _, b := range hostileSeeds() {
		hostileFutex(t, &h, b)
	}
}

// TestHostileWipe: a peer clears the bytes of a Mutex, including the list through which releasers
// find parked waiters. The Mutex is free then, and all waiters still get it.
func TestHostileWipe(t *testing.T) {
	a := newArena(t, nil)
	m := newMutex(t, a, nil)
	m.Lock()
	var wg sync.WaitGroup
	for range 20 { // more goroutines than may sleep in the kernel
		wg.Go(func() {
			m.Lock()
			m.Unlock()
		})
	}
	eventually(t, "all wait", m.String, func() bool { return m.Waiters() == 20 })
	prims.Rewrite(a, m.Object(), make([]byte, m.Object().Size))
	over := make(chan struct{})
	go func() { wg.Wait(); close(over) }()
	select {
	case <-over:
	case <-after(timeout()):
		t.Fatalf("some waiters do not get the lock: %v", m)
	}
}

func FuzzMutexWord(f *testing.F) {
	for _, b := range hostileSeeds()[:24] {
		f.Add(b)
	}
	var h hostile
	f.Cleanup(h.end)
	f.Fuzz(func(t *testing.T, b []byte) { hostileMutex(t, &h, b) })
}

func FuzzFutexWord(f *testing.F) {
	for _, b := range hostileSeeds()[:24] {
		f.Add(b)
	}
	var h hostile
	f.Cleanup(h.end)
	f.Fuzz(func(t *testing.T, b []byte) { hostileFutex(t, &h, b) })
}

// TestScribbledMutex: the bytes change all the time while processes lock, and then become correct.
// After that the lock works as before.
func TestScribbledMutex(t *testing.T) {
	a := newArena(t, nil)
	m := newMutex(t, a, nil)
	seeds := hostileSeeds()
	underScribbles(t, func() string { return prims.Describe(a, m.Object()) }, func(_ int, ctx context.Context) {
		if m.LockContext(ctx) == nil {
			m.Unlock()
		}
	}, func() {
		b := seeds[rand.IntN(len(seeds))]
		prims.Rewrite(a, m.Object(), b[:4*(1+rand.IntN(9))])
	})
	prims.Rewrite(a, m.Object(), make([]byte, 36))
	require.NoError(t, m.LockContext(t.Context()))
	m.Unlock()
	sound(t, a)
}
