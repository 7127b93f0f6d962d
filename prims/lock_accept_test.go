//go:build linux

package prims_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// handed is a lock that this process holds, and for which others wait in the queue.
type handed struct {
	actor  func(t testing.TB, a *arena.Arena, label string) *actor
	queue  func(x *actor) int // orders x to wait for the lock, and returns the number of this order
	give   order              // makes a waiter that got the lock unlock it
	unlock func()
	lock   func() (func(), error) // locks the lock again, and returns the function that unlocks it
}

func remoteLocker(t testing.TB, a *arena.Arena, label string) *actor { return remoteActor(t, a, label) }

func handedFair(t *testing.T, a *arena.Arena, pending bool) handed {
	f := openFair(t, a, nil)
	f.Lock()
	h := handed{actor: lockActor, give: order{Op: "funlock", Object: "f"}, unlock: f.Unlock}
	h.lock = func() (func(), error) { return f.Unlock, f.LockContext(t.Context()) }
	h.queue = func(x *actor) int { return fairQueued(t, f, x, order{Op: "flock"}) }
	if pending {
		h.queue = func(x *actor) int {
			x.must(t, order{Op: "fasync", Object: "f", N: 1})
			return x.start(order{Op: "fawait", Object: "f", N: 1})
		}
	}
	return h
}

// handedMulti holds several keys of one bucket, so that the entry of the last key may be in a block.
// Others queue for the last key.
func handedMulti(t *testing.T, a *arena.Arena, keys int) handed {
	m := openMulti(t, a, nil)
	var key uint64
	var last prims.Hold
	for _, key = range sameBucket(m, keys) {
		last = m.Lock(key)
	}
	h := handed{actor: lockActor, give: order{Op: "munlock", Object: "m", Token: key}, unlock: last.Unlock}
	h.queue = func(x *actor) int { return multiQueued(t, m, x, key, order{Op: "mlock", Token: key}) }
	h.lock = func() (func(), error) {
		again, err := m.LockContext(t.Context(), key)
		return again.Unlock, err
	}
	return h
}

func handedMutex(t *testing.T, a *arena.Arena) handed {
	m, err := prims.OpenMutex(a, "m", nil)
	require.NoError(t, err)
	m.Lock()
	h := handed{actor: remoteLocker, give: order{Op: "unlock", Object: "m"}, unlock: m.Unlock}
	h.queue = func(x *actor) int { return x.blocked(t, order{Op: "lock", Object: "m"}) }
	h.lock = func() (func(), error) { return m.Unlock, m.LockContext(t.Context()) }
	return h
}

// TestGrantThatNobodyAcceptedPassesOn kills a stopped waiter that was granted the lock and has not
// run since then. The waiter never entered the critical section, so its death is not that of a
// holder: the next waiter gets the lock without an error.
func TestGrantThatNobodyAcceptedPassesOn(t *testing.T) {
	for name, open := range map[string]func(t *testing.T, a *arena.Arena) handed{
		"fair mutex":            func(t *testing.T, a *arena.Arena) handed { return handedFair(t, a, false) },
		"pending":               func(t *testing.T, a *arena.Arena) handed { return handedFair(t, a, true) },
		"multilock":             func(t *testing.T, a *arena.Arena) handed { return handedMulti(t, a, 1) },
		"multilock, in a block": func(t *testing.T, a *arena.Arena) handed { return handedMulti(t, a, 7) },
		"mutex":                 handedMutex,
	} {
		t.Run(name, func(t *testing.T) {
			a := newArena(t, nil)
			h := open(t, a)
			dies, next := h.actor(t, a, "dies"), h.actor(t, a, "next")
			h.queue(dies)
			id := h.queue(next)
			dies.proc.Stop(t)
			h.unlock()
			dies.proc.Kill(t)
			got := next.wait(t, id)
			require.Empty(t, got.Panic+got.Err, "the next waiter got %v", got)
			next.must(t, h.give)
			unlock, err := h.lock()
			require.NoError(t, err)
			unlock()
		})
		t.Run(name+", nobody else waits", func(t *testing.T) {
			a := newArena(t, nil)
			h := open(t, a)
			dies := h.actor(t, a, "dies")
			h.queue(dies)
			dies.proc.Stop(t)
			h.unlock()
			dies.proc.Kill(t)
			unlock, err := h.lock()
			require.NoError(t, err)
			unlock()
		})
	}
}
