//go:build linux

package arena_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/shm"
)

// TestCallsReachTheKernel checks that each call of this package passes its arguments to package
// arenakernel, and returns the result.
func TestCallsReachTheKernel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "arena")
	ctx := t.Context()
	canceled, cancel := context.WithCancel(ctx)
	cancel()

	_, err := arena.AttachContext(ctx, path, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	a, err := arena.OpenContext(ctx, path, &arena.Options{Size: 1 << 20, MaxParticipants: 3, Label: "first"})
	require.NoError(t, err)
	defer a.Close()
	again, err := arena.AttachContext(ctx, path, nil)
	require.NoError(t, err)
	require.NoError(t, again.Close())
	for _, open := range []func(context.Context, string, *arena.Options) (*arena.Arena, error){arena.OpenContext, arena.AttachContext} {
		if b, err := open(canceled, path, nil); err == nil { // a call that need not wait succeeds
			require.NoError(t, b.Close())
		} else {
			require.ErrorIs(t, err, shmsync.ErrCanceled)
		}
	}

	require.EqualValues(t, 1<<20, a.Size())
	require.Equal(t, a.Size(), a.Segment().Size())
	require.Equal(t, 3, a.MaxParticipants())
	require.Equal(t, path, a.Path())
	require.Equal(t, arena.PathThere, a.PathState())

	// Participants.
	var seen []arena.Participant
	for p := range a.Participants() {
		seen = append(seen, p)
		break
	}
	require.Len(t, seen, 1)
	require.Equal(t, a.Self(), seen[0].ID())
	require.Equal(t, "first", a.Who(a.Self()).Label)
	require.True(t, a.Current(a.Self()))
	require.False(t, a.Gone(a.Self()))
	_ = a.Fenced() // true or false: this process registers for the fence in the background
	a.OnDeath(func(p arena.Participant) { panic(fmt.Sprint("nobody has died: ", p)) })

	// Memory.
	s, err := arena.Slice[uint32](a, "numbers", 5)
	require.NoError(t, err)
	s[4] = 7
	s, err = arena.AttachSlice[uint32](a, "numbers", 5)
	require.NoError(t, err)
	require.Equal(t, []uint32{0, 0, 0, 0, 7}, s)
	_, err = arena.AttachSlice[uint32](a, "numbers", 6)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	off, err := a.Alloc(8, 8)
	require.NoError(t, err)
	word, err := arena.TryAt[uint64](a, off)
	require.NoError(t, err)
	require.Same(t, arena.At[uint64](a, off), word)
	_, err = arena.TryAt[uint64](a, off+1)
	require.ErrorIs(t, err, shmsync.ErrCorrupt)
	_, err = arena.TryAt[uint64](a, arena.Offset(a.Size()))
	require.ErrorIs(t, err, shmsync.ErrCorrupt)
	_, err = a.Object(off)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	page := uint64(os.Getpagesize())
	placed, err := a.Alloc(page, page)
	require.NoError(t, err)
	at := a.Place(placed, page, shm.Policy{})
	require.NoError(t, at.Err)
	require.EqualValues(t, placed, at.Off)
	where, err := a.Where(placed, page)
	require.NoError(t, err)
	require.NotEmpty(t, where)
	same, err := arena.LayoutOf[struct{ A, B uint32 }]()
	require.NoError(t, err)
	other, err := arena.LayoutOf[struct{ C, D uint32 }]()
	require.NoError(t, err)
	require.Equal(t, same, other)
	_, err = arena.LayoutOf[*uint32]()
	require.Error(t, err)

	// From outside.
	f, err := os.Open(path)
	require.NoError(t, err)
	i, err := arena.InspectFile(f)
	require.NoError(t, err)
	require.Equal(t, "first", i.Who(a.Self()).Label)
	found, err := i.Diagnose(0)
	require.NoError(t, err)
	require.Empty(t, found)
	require.NoError(t, i.Close())

	require.NoError(t, os.Remove(path))
	require.Equal(t, arena.PathRemoved, a.PathState())
}

func TestEventSaysWhatWentWrong(t *testing.T) {
	key := uint64(4)
	e := arena.Event{Kind: arena.EventCorrupt, Key: &key, Err: errors.New("a\nb"), Missed: 2}
	require.Regexp(t, `^\S+.* key 4: a\S*b \(2 events were dropped before\)$`, e.String())
}
