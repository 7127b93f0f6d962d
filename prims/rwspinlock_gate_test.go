//go:build linux

package prims_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/prims"
)

// TestRWSpinLockChecksAnnounceReadersAgain: a process releases an RWSpinLock, and is stopped after it has cleared the
// announcement of the waiting readers and before it has woken them. Another process may hold the lock at each periodic
// check, so the checks cannot let the readers in. Instead they announce the readers again, and the next release wakes
// them.
func TestRWSpinLockChecksAnnounceReadersAgain(t *testing.T) {
	a := newArena(t, nil)
	l, err := prims.OpenRWSpinLock(a, "rw", nil)
	require.NoError(t, err)
	l.Lock()
	done := make(chan error, 1)
	go func() { done <- l.RLockContext(t.Context()) }()
	describe := func() string { return prims.Describe(a, l.Object()) }
	// In the first rounds the reader may be about to sleep, and then announces itself again.
	for range 4 {
		eventually(t, "the readers are announced", describe, l.GateAnnounced)
		l.LoseGateWake()
	}
	eventually(t, "the readers are announced again", describe, l.GateAnnounced)
	l.Unlock()
	require.NoError(t, <-done)
	l.RUnlock()
}
