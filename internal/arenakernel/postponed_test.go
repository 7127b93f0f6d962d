//go:build linux

package arenakernel

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
)

// TestRegistrationForFencesAfterAShortage: the kernel has no memory for the registration of a process for fences. The
// process tries again until the registration succeeds. Then all arenas of the process use it.
func TestRegistrationForFencesAfterAShortage(t *testing.T) {
	a := newNeighbours(2<<20, 4).join(1)
	registered, pause := fenceRegistered, pauseFencing
	t.Cleanup(func() { fenceRegistered, pauseFencing = registered, pause })
	calls, paused := 0, make(chan struct{}, 2)
	fenceRegistered = &fenceRegistration{register: func() error {
		if calls++; calls <= 2 {
			return syscall.ENOMEM
		}
		return nil
	}}
	pauseFencing = func(time.Duration) { paused <- struct{}{} }
	a.becomeFenceTarget()
	<-paused
	<-paused
	require.NoError(t, fenceRegistered.do())
	require.NoError(t, fenceRegistered.do())
	require.Equal(t, 3, calls)
}

// TestRegistrationWithoutFences: a process remembers that the system has no fences.
func TestRegistrationWithoutFences(t *testing.T) {
	calls := 0
	f := fenceRegistration{register: func() error { calls++; return shmsync.ErrNotSupported }}
	require.ErrorIs(t, f.do(), shmsync.ErrNotSupported)
	require.ErrorIs(t, f.do(), shmsync.ErrNotSupported)
	require.Equal(t, 1, calls)
}
