//go:build linux

package prims_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/prims"
)

// TestSemaphoreLinksOverwritten: a peer overwrites the links of the queue of a Semaphore in which two
// goroutines wait. All calls, the reap of a death, and Close still return. Each wait ends when its context ends,
// or earlier.
func TestSemaphoreLinksOverwritten(t *testing.T) {
	const tag = 1<<32 - 1
	for name, damage := range map[string]func(first, second *arenakernel.Node, at uint64){
		"the queue is a circle":        func(_, second *arenakernel.Node, at uint64) { second.Next().Store(at<<32 | second.Next().Load()&tag) },
		"a wait follows itself":        func(first, _ *arenakernel.Node, at uint64) { first.Next().Store(at<<32 | first.Next().Load()&tag) },
		"a link leads nowhere":         func(first, _ *arenakernel.Node, _ uint64) { first.Next().Store(1 << 63) },
		"the first wait has left":      func(first, _ *arenakernel.Node, _ uint64) { first.Next().Store(arenakernel.RecordedLeft << 32) },
		"the first wait is granted":    func(first, _ *arenakernel.Node, _ uint64) { first.Next().Store(arenakernel.RecordedGranted << 32) },
		"the first wait is about to":   func(first, _ *arenakernel.Node, _ uint64) { first.Next().Store(0) },
		"the second wait has no first": func(_, second *arenakernel.Node, _ uint64) { second.Extra().Store(0) },
		"a wait is of another object":  func(first, _ *arenakernel.Node, _ uint64) { first.SetObject(64) },
		"a wait is resolved": func(first, _ *arenakernel.Node, _ uint64) {
			first.Swap(first.Load(), first.Load().With(arenakernel.NodeResolved))
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newArena(t, nil)
			s := newSemaphore(t, a, "s", 1, nil)
			require.True(t, s.TryAcquire(1))
			other := semOther(t, a)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var waits sync.WaitGroup
			wait := func() {
				if s.AcquireContext(ctx, 1) == nil {
					defer func() { recover() }() // Release may panic, because the Semaphore is damaged
					s.Release(1)
				}
			}
			waits.Go(wait)
			semQueued(t, a, s, 1)
			at, first := s.Head()
			waits.Go(wait)
			semQueued(t, a, s, 2)
			second, err := (*arenakernel.Arena)(a).NodeAt(arenakernel.Offset(first.Next().Load() >> 32 * 64))
			require.NoError(t, err)

			damage(first, second, uint64(at)/64)
			returns := func(what string, f func()) {
				require.NoError(t, guarded(what, func() string { return words(a) }, f))
			}
			returns("TryAcquire", func() { s.TryAcquire(1) })
			other.Kill(t)
			returns("reap", func() { alone(t, a, 1) })
			returns("State", func() { _, _ = s.State(), s.String() })
			returns("Release", func() { defer func() { recover() }(); s.Release(1) })
			cancel()
			returns("the waits", waits.Wait)
			returns("Close", func() { s.Close() })
		})
	}
}

// TestSemaphoreTornJoinKeepsNoNode: a peer damages the last link of the queue, so that calls cannot queue a
// wait. These calls free their wait nodes.
func TestSemaphoreTornJoinKeepsNoNode(t *testing.T) {
	a, s, _ := semTorn(t)
	before := a.Stats().Nodes
	for range 20 {
		require.ErrorIs(t, s.AcquireContext(t.Context(), 1), shmsync.ErrCorrupt)
	}
	require.LessOrEqual(t, a.Stats().Nodes, before+1)
}

// TestSemaphoreForgottenWaits: a damaged Semaphore that had a wait is deleted. A new Semaphore at the same offset
// does not have this wait.
func TestSemaphoreForgottenWaits(t *testing.T) {
	a, s, end := semTorn(t)
	end()
	off := s.Offset()
	func() {
		defer func() { recover() }()
		s.Release(1)
	}()
	require.NoError(t, s.Close())
	require.NoError(t, a.Delete("s"))
	next, err := prims.OpenSemaphore(a, "next", 1, nil)
	require.NoError(t, err)
	require.Equal(t, off, next.Offset())
	o, err := objectNamed(a, "next")
	require.NoError(t, err)
	require.Empty(t, (*arenakernel.Arena)(a).WaitsOf(o))
	require.Zero(t, ownNodes(a))
}

// semTorn returns a Semaphore whose only permit is held, with one wait, whose link a peer has overwritten. end
// makes the wait give up.
func semTorn(t *testing.T) (a *arena.Arena, s *prims.Semaphore, end func()) {
	a = newArena(t, nil)
	s = newSemaphore(t, a, "s", 1, nil)
	require.True(t, s.TryAcquire(1))
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	wait.Go(func() { s.AcquireContext(ctx, 1) })
	semQueued(t, a, s, 1)
	at, first := s.Head()
	first.Next().Store(uint64(at)/64<<32 | first.Next().Load()&(1<<32-1))
	return a, s, func() {
		cancel()
		wait.Wait()
	}
}
