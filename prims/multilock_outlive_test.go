//go:build linux

package prims_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// TestHoldOutlivesItsHandle: a Hold unlocks its key after the Close of the handle that gave it, also if no handle of this
// process is left, if the entry of the key is in a block, and if another process waits for the key.
func TestHoldOutlivesItsHandle(t *testing.T) {
	a, err := arena.Create(arenaName(t), nil)
	require.NoError(t, err)
	x := openMulti(t, a, &prims.MultiLockOptions{Buckets: 1})
	var holds prims.Holds
	for key := range uint64(20) { // a bucket has room for three keys without a block
		holds = append(holds, x.Lock(key))
	}
	other := lockActor(t, a, "other")
	waits := multiQueued(t, x, other, 19, order{Op: "mlock", Object: "m", Token: 19})
	require.NoError(t, x.Close())
	require.Error(t, a.Delete("m"), "a living process has holds")
	holds[19].Unlock()
	require.Empty(t, other.wait(t, waits).Err)
	require.Panics(t, holds[19].Unlock, "it has ended")
	other.must(t, order{Op: "munlock", Object: "m", Token: 19})
	holds[:18].Unlock()
	x = openMulti(t, a, nil)
	for key := range uint64(20) {
		require.Equal(t, key == 18, x.State(key).Held, "key %d", key)
	}
	require.NoError(t, x.Close())
	require.NoError(t, a.Close())
	var refusal error
	func() {
		defer func() { refusal, _ = recover().(error) }()
		holds[18].Unlock()
	}()
	require.ErrorIs(t, refusal, shmsync.ErrClosed)
}

// TestMultiLockRemembersEntriesInBlocks: a call that has found the entry of a key in an additional block remembers it, so
// that the next call need not search. If the entry gets another key, the next call finds out.
func TestMultiLockRemembersEntriesInBlocks(t *testing.T) {
	a := newArena(t, nil)
	x := openMulti(t, a, &prims.MultiLockOptions{Buckets: 1})
	const keys = 100
	var holds prims.Holds
	for key := range uint64(keys) {
		holds = append(holds, x.Lock(key+1))
	}
	require.Greater(t, x.Entries(0), keys/2)
	holds.Unlock()
	y := openMulti(t, a, nil)
	hinted := 0
	for key := range uint64(keys) {
		h := y.Lock(key + 1)
		_, ok := x.TryLock(key + 1)
		require.False(t, ok, "key %d", key+1)
		h.Unlock()
		if y.Hinted(key + 1) {
			hinted++
		}
	}
	require.Greater(t, hinted, keys/2, "some entries are in the bucket itself")
	for key := range uint64(2 * keys) { // these keys take the entries of the first keys
		x.Lock(1000 + key).Unlock()
	}
	for key := range uint64(keys) {
		h := y.Lock(key + 1)
		require.Contains(t, x.HoldWord(key+1), "held")
		_, ok := x.TryLock(key + 1)
		require.False(t, ok, "key %d", key+1)
		h.Unlock()
	}
	sound(t, a)
}
