//go:build linux

package prims_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/prims"
)

// guardedClaim runs f. It accepts the panic of a Release that does not find the claim, and the panic of a call that
// cannot return its error.
func guardedClaim(what string, words func() string, f func()) error {
	return guardedBy(func(r any) bool {
		switch r := r.(type) {
		case error:
			return errors.Is(r, shmsync.ErrCorrupt) || errors.Is(r, shmsync.ErrNotRecoverable)
		case string:
			return strings.HasSuffix(r, "Release of a claim that this process does not have")
		}
		return false
	}, what, words, f)
}

// TestHostileWaitable: a peer overwrites words of the Waitable, of its slot records, of its blocks, and of its wait
// nodes. All calls return.
func TestHostileWaitable(t *testing.T) {
	hostileLock(t, hostileRounds(), func(a *arena.Arena, s *scribbler, _ func(string, func(context.Context))) {
		x, err := many(a, "")
		require.NoError(t, err)
		s.body, s.size = uint64(x.Object().Body), x.Object().Size
		for e := range int64(9) {
			require.True(t, x.TryWait(e))
		}
		further := append(x.BlockWords(), x.RecordWords()...)
		s.more = func() []arena.Offset { return further }
		try := func(what string, f func(ctx context.Context)) {
			s.scribble()
			ctx, cancel := context.WithTimeout(t.Context(), hostileTimeout)
			defer cancel()
			require.NoError(t, guardedClaim(what, x.String, func() { f(ctx) }))
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for e := range int64(9) {
			wg.Go(func() { x.WaitContext(ctx, e/2) })
		}
		e := s.r.Int64N(9)
		try("WaitContext", func(ctx context.Context) { x.WaitContext(ctx, e) })
		try("TryWait", func(context.Context) { x.TryWait(e + 20) })
		try("Release", func(context.Context) { x.Release(e) })
		try("Update", func(context.Context) { x.Update(func(n *int64) { *n++ }) })
		try("Recover", func(ctx context.Context) { x.RecoverContext(ctx, func(*int64) error { return nil }) })
		try("State", func(context.Context) { _, _, _, _ = x.Err(), x.String(), words(a), a.Check() })
		try("open", func(ctx context.Context) {
			if y, err := prims.WaitableAt(a, x.Offset(), manyRules); err == nil {
				y.WaitContext(ctx, e)
				y.TryWait(e + 30)
				y.Close()
			}
		})
		cancel()
		require.NoError(t, guarded("the end of waits", func() string { return words(a) }, wg.Wait))
		x.Close()
	})
}

// TestWaitableListOfBlocksOverwritten: a peer overwrites a block or the list of the blocks. A handle that had read the
// list before still works. A new handle finds the damage when it looks for a hold.
func TestWaitableListOfBlocksOverwritten(t *testing.T) {
	const next, number = 0, 20 // the offsets of fields in the header of a block; see internal/arenakernel/slotrecord.go
	for what, spoil := range map[string]func(a *arena.Arena, b []arenakernel.Offset){
		"a circle": func(a *arena.Arena, b []arenakernel.Offset) {
			arena.At[atomic.Uint64](a, b[2]+next).Store(uint64(b[0]))
		},
		"itself": func(a *arena.Arena, b []arenakernel.Offset) {
			arena.At[atomic.Uint64](a, b[1]+next).Store(uint64(b[1]))
		},
		"a number that does not fall": func(a *arena.Arena, b []arenakernel.Offset) { arena.At[atomic.Uint32](a, b[1]+number).Add(1) },
		"no number":                   func(a *arena.Arena, b []arenakernel.Offset) { arena.At[atomic.Uint32](a, b[1]+number).Store(0) },
		"out of the arena":            func(a *arena.Arena, b []arenakernel.Offset) { arena.At[atomic.Uint64](a, b[1]+next).Store(1 << 50) },
	} {
		t.Run(what, func(t *testing.T) {
			a := newArena(t, nil)
			x, err := many(a, "x")
			require.NoError(t, err)
			const n = 13
			for e := range int64(n) {
				require.True(t, x.TryWait(e))
			}
			x.Update(func(*int64) {})  // the last record names no hold now, so a new handle does not look for blocks
			early, err := many(a, "x") // has not looked for blocks yet
			require.NoError(t, err)
			blocks := x.Blocks()
			require.Len(t, blocks, 3)
			spoil(a, blocks)

			require.ErrorIs(t, a.Check(), shmsync.ErrCorrupt)
			for e := int64(1); e < n+3; e++ {
				require.NoError(t, guardedClaim("TryWait", x.String, func() { early.TryWait(e) }))
				require.ErrorIs(t, early.Wait(e), shmsync.ErrCorrupt)
				require.NoError(t, guardedClaim("Release", x.String, func() { early.Release(e) }))
			}
			require.NoError(t, guardedClaim("State", x.String, func() { _, _, _ = early.State(), early.String(), words(a) }))
			require.NoError(t, early.Wait(0), "its hold is in the slot record")
			early.Release(0)
			require.NoError(t, guardedClaim("a death", x.String, func() {
				lockActor(t, a, "dies").proc.Kill(t)
				alone(t, a, 1)
			}))

			for e := range int64(n) {
				require.NoError(t, x.Wait(e))
				x.Release(e)
				x.Release(e)
			}
			require.Zero(t, x.State())
			require.NoError(t, early.Close())
			require.NoError(t, x.Close())
			require.NoError(t, a.Delete("x"))
		})
	}
}

// TestWaitableTextOverwritten: each block has a field that says to which slot the text of the block belongs. A peer
// overwrites this field. No process reads memory behind a block that has no text.
func TestWaitableTextOverwritten(t *testing.T) {
	a := newArena(t, nil)
	k, err := openStocked(a)
	require.NoError(t, err)
	k.x.Update(func(s *stock) { s.Free = 5 })
	for e := range int32(5) {
		require.True(t, k.x.TryWait(100+e))
	}
	plain := k.x.Blocks()[0]
	behind, err := a.Alloc(256, 0)
	require.NoError(t, err)
	for i := range arena.Offset(256 / 8) {
		arena.At[atomic.Uint64](a, behind+8*i).Store(0x7465726365732061)
	}
	require.PanicsWithValue(t, "this claim fails", func() { k.x.TryWait(panicsInClaim) })
	text := k.x.Blocks()[0]
	require.NotEqual(t, plain, text)
	slot := *k.x.BlockText(text)
	for _, v := range []uint32{0, slot + 1, 1 << 31, 1<<32 - 1} {
		atomic.StoreUint32(k.x.BlockText(text), v)
		atomic.StoreUint32(k.x.BlockText(plain), slot)
		late, err := openStocked(a)
		require.NoError(t, err)
		require.ErrorContains(t, late.x.Err(), "the text of its panic was not stored", "%d", v)
		require.ErrorContains(t, k.x.Err(), "this claim fails", "this handle knew the block")
		require.NoError(t, late.x.Close())
	}
}

// TestWaitableHoldOfAnotherSlot: a peer writes another participant into the hold of a slot record. The check of the arena
// reports it.
func TestWaitableHoldOfAnotherSlot(t *testing.T) {
	a := newArena(t, nil)
	x, err := many(a, "x")
	require.NoError(t, err)
	require.True(t, x.TryWait(1))
	require.NoError(t, a.Check())
	w, added := x.HoldOf(1)
	require.False(t, added)
	w.Name.Add(1 << 32) // another slot: the high half of the word is an ID, whose low bits are the slot
	require.ErrorIs(t, a.Check(), shmsync.ErrCorrupt)
	require.NoError(t, guardedClaim("Release", x.String, func() { x.Release(1) }))
	require.ErrorContains(t, a.Check(), "counts claims of slot")
}
