//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/prims"
)

// TestFairMutexDeathOfAHolderBesideStrangers: the holder dies, and no living process has opened the lock. The reapers
// still take the lock back. They need no record if the owner word is open. The owner word is closed if the holder got
// the lock by a grant; then they need a record.
func TestFairMutexDeathOfAHolderBesideStrangers(t *testing.T) {
	for policy, state := range map[prims.Policy]string{prims.PolicyReport: "owner-dead", prims.PolicyRelease: "free"} {
		for _, granted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/granted %v", policy, granted), func(t *testing.T) {
				a := newArena(t, nil) // a process that does not open the lock
				lockActor(t, a, "another stranger")
				dies := lockActor(t, a, "dies")
				if granted {
					first := lockActor(t, a, "first")
					first.must(t, order{Op: "flock", Object: "f", Policy: policy})
					id := dies.start(order{Op: "flock", Object: "f", Policy: policy})
					eventually(t, "it waits", dies.dump, func() bool { return prims.Queued(a, fairObject(t, a).Offset) == 1 })
					first.must(t, order{Op: "funlock", Object: "f"})
					require.Empty(t, dies.wait(t, id).Panic)
					first.proc.Kill(t)
					alone(t, a, 3)
				} else {
					dies.must(t, order{Op: "flock", Object: "f", Policy: policy})
				}
				dies.proc.Kill(t)
				alone(t, a, 2)
				o := arena.Object(fairObject(t, a))
				eventually(t, "it is taken back", func() string { return a.Inspect(o).State }, func() bool {
					return strings.Contains(a.Inspect(o).State, state)
				})
				f, err := prims.AttachFairMutex(a, "f", nil)
				require.NoError(t, err)
				if policy == prims.PolicyReport {
					err := f.LockContext(t.Context())
					require.ErrorIs(t, err, shmsync.ErrOwnerDead)
					require.ErrorContains(t, err, "dies")
					require.ErrorIs(t, f.Recover(func() error { return errRepair }), shmsync.ErrNotRecoverable)
					require.Equal(t, "dies", f.State().Owner.Label, "the process that recovers has stored the name")
					require.NoError(t, f.Recover(func() error { return nil }))
				}
				f.Lock()
				f.Unlock()
				sound(t, a)
			})
		}
	}
}

// TestFairMutexTakesOpenWordsBack: a reaper without a slot record takes the lock back from a dead holder if the owner
// word is open. If the word is closed, the reaper needs a record. The reaper must see with one load whether the word
// is open and whether it names a dead holder, because another process may open the word in between.
func TestFairMutexTakesOpenWordsBack(t *testing.T) {
	a := newArena(t, nil)
	f := openFair(t, a, nil)
	const held, open, granted, ownerDead, recovering = 0, 1 << 29, 2 << 29, 3 << 29, 4 << 29
	const dead = 1<<11 | 9
	me := uint32(a.Self())
	for _, c := range []struct {
		what       string
		was, is    uint32
		needRecord bool
	}{
		{"free", 0, 0, false},
		{"open, free", open, open, false},
		{"open, held by a dead process", open | dead, ownerDead | dead, false},
		{"held by a dead process", held | dead, held | dead, true},
		{"granted to a dead process", granted | dead, granted | dead, true},
		{"recovered by a dead process", recovering | dead, recovering | dead, true},
		{"owner-dead", ownerDead | dead, ownerDead | dead, false},
		{"open, held by a process that lives", open | me, open | me, false},
		{"held by a process that lives", held | me, held | me, false},
	} {
		f.OverwriteOwner(c.was)
		require.Equal(t, c.needRecord, f.TakeOpenBack(), c.what)
		require.Equal(t, c.is, f.OwnerValue(), c.what)
	}
	f.OverwriteOwner(0)
}

func fairObject(t testing.TB, a *arena.Arena) arenakernel.Object {
	t.Helper()
	o, err := objectNamed(a, "f")
	require.NoError(t, err)
	return o
}

// TestFairMutexOpensAgain: when the last wait has left the queue, the owner word is open again. After a grant it stays
// closed until the Unlock.
func TestFairMutexOpensAgain(t *testing.T) {
	if race.Enabled {
		t.Skip("needs a build without the race detector, with which the owner word is never open")
	}
	f := newFairMutex(t, nil)
	open := func() bool { return f.OwnerValue()>>29 == 1 }
	require.True(t, open())
	f.Lock()
	require.True(t, open())
	require.False(t, f.TryLock())
	require.True(t, open(), "TryLock leaves a lock alone that is held")
	p := f.LockAsync()
	require.False(t, open())
	require.True(t, p.Cancel())
	require.True(t, open(), "the wait that was given up was the only one")
	q := f.LockAsync()
	f.Unlock()
	require.NoError(t, q.Wait())
	require.False(t, open(), "the owner word is open although the lock was granted")
	f.Unlock()
	require.True(t, open())
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	f.Lock()
	require.ErrorIs(t, f.LockContext(ctx), context.DeadlineExceeded)
	require.True(t, open(), "the context of the only wait has ended")
	f.Unlock()
}

// TestFairMutexOpensAfterADeath: the only waiter dies while the lock is held. The reap opens the owner word
// again, without another call.
func TestFairMutexOpensAfterADeath(t *testing.T) {
	if race.Enabled {
		t.Skip("needs a build without the race detector, with which the owner word is never open")
	}
	a := newArena(t, nil)
	f := openFair(t, a, nil)
	dies := lockActor(t, a, "dies")
	f.Lock()
	fairQueued(t, f, dies, order{Op: "flockctx"})
	require.NotEqual(t, uint32(1), f.OwnerValue()>>29)
	dies.proc.Kill(t)
	eventually(t, "the owner word is open", f.String, func() bool { return f.OwnerValue()>>29 == 1 })
	f.Unlock()
}

// TestFairMutexRefusedWaits: a wait that ends because the holder died returns ErrOwnerDead, even if another process
// has recovered the lock before the waiter runs again.
func TestFairMutexRefusedWaits(t *testing.T) {
	a := newArena(t, nil)
	f := openFair(t, a, nil)
	dies, other := lockActor(t, a, "dies"), lockActor(t, a, "other")
	dies.must(t, order{Op: "flock", Object: "f"})
	id := fairQueued(t, f, other, order{Op: "flockctx"})
	other.proc.Stop(t)
	dies.proc.Kill(t)
	eventually(t, "the wait is refused", f.String, func() bool {
		return f.State().Err != nil && f.LockContext(t.Context()) != nil && !f.State().Waiting
	})
	require.NoError(t, f.Recover(func() error { return nil }))
	f.Lock()
	other.proc.Cont(t)
	got := other.wait(t, id)
	require.Contains(t, got.Is, "owner-dead")
	require.Equal(t, "dies", got.Who.Label)
	f.Unlock()
	sound(t, a)
}

// TestFairMutexOverwritten: a peer has overwritten the owner word, or the links of the queue. Calls
// return, with ErrCorrupt if they can detect the damage.
func TestFairMutexOverwritten(t *testing.T) {
	for what, v := range map[string]uint32{
		"a kind that there is not": 7 << 29, "owner-dead without a name": 3 << 29, "not recoverable with a name": 5<<29 | 9,
		"granted to nobody": 2 << 29,
	} {
		t.Run(what, func(t *testing.T) {
			f := newFairMutex(t, nil)
			f.OverwriteOwner(v)
			require.ErrorIs(t, f.LockContext(t.Context()), shmsync.ErrCorrupt)
			require.ErrorIs(t, f.LockAsync().Wait(), shmsync.ErrCorrupt)
			require.False(t, f.TryLock())
			require.Panics(t, f.Unlock)
			require.ErrorIs(t, f.State().Err, shmsync.ErrCorrupt)
			require.ErrorIs(t, f.RecoverContext(t.Context(), func() error { return nil }), shmsync.ErrCorrupt)
		})
	}
	for what, overwrite := range map[string]func(first, second *arenakernel.Node){
		"the first wait has left":    func(first, _ *arenakernel.Node) { first.Next().Store(arenakernel.RecordedLeft << 32) },
		"the first wait is refused":  func(first, _ *arenakernel.Node) { first.Next().Store(arenakernel.RecordedRefused << 32) },
		"no node follows":            func(first, _ *arenakernel.Node) { first.Next().Store(1 << 63) },
		"a node of nobody is before": func(_, second *arenakernel.Node) { second.Extra().Store(1 << 63) },
	} {
		t.Run(what, func(t *testing.T) {
			f := newFairMutex(t, nil)
			f.Lock()
			ctx, cancel := context.WithCancel(t.Context())
			p, ended := f.LockAsync(), make(chan error, 1)
			go func() { ended <- f.LockContext(ctx) }()
			eventually(t, "two wait", f.String, func() bool { return f.Queued() == 2 })
			nodes := f.QueuedNodes()
			overwrite(nodes[0], nodes[1])
			require.NoError(t, guarded("Unlock", f.String, f.Unlock))
			require.NoError(t, guarded("Cancel", f.String, func() { p.Cancel() }))
			cancel()
			require.NoError(t, guarded("the end of the context", f.String, func() { <-ended }))
			require.NoError(t, guarded("TryLock", f.String, func() { f.TryLock() }))
		})
	}
}
