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
