//go:build linux

package arenakernel

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTransactionWithoutPrims: a program that does not import prims still finds a transaction in the
// undo log of a Mutex.
func TestTransactionWithoutPrims(t *testing.T) {
	_, known := kindOps(rollbackMutexKind, 1)
	require.False(t, known)
	ta := newTestArena(t, 4)
	a, err := Open(ta.name, &ta.opts)
	require.NoError(t, err)
	defer a.Close()
	o, _, err := a.OpenObject(ObjectSpec{Kind: rollbackMutexKind, Version: 1, Name: "m", Size: 512})
	require.NoError(t, err)
	m, err := TryAt[rollbackMutex](a, o.Body)
	require.NoError(t, err)
	self := uint32(a.self)
	require.False(t, a.undoing(a.self))
	for _, c := range []struct {
		owner, policy uint32
		state         uint64
		want          bool
	}{
		{self, 2, 1<<61 | uint64(self)<<32 | 16, true},
		{1<<29 | self, 2, 2<<61 | uint64(self)<<32 | 16, true},
		{4<<29 | self, 2 | 1<<8, 3<<61 | uint64(self)<<32 | 16, true},
		{self, 1, 1<<61 | uint64(self)<<32 | 16, false},
		{self, 2, 0, false},
		{0, 2, 1<<61 | uint64(self)<<32 | 16, false},
		{5 << 29, 2, 1<<61 | uint64(self)<<32 | 16, false},
		{self, 2, 1<<61 | uint64(self+1)<<32 | 16, false},
	} {
		m.owner.Store(c.owner)
		m.policy.Store(c.policy)
		m.state.Store(c.state)
		require.Equal(t, c.want, a.undoing(a.self), c)
		require.Equal(t, c.want, a.repairAll(a.self, false).undoing, c)
	}
}
