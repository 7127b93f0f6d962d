//go:build linux

package arenakernel

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
)

// lastOf opens an ephemeral arena. The test that calls it closes the arena.
func lastOf(t *testing.T, ta *testArena) *Arena {
	t.Helper()
	ta.opts.Lifetime = LifetimeEphemeral
	a, err := Open(ta.name, &ta.opts)
	require.NoError(t, err)
	return a
}

// lockedByte locks a byte of the arena's file, as another process would. The result gives the lock back.
func (ta *testArena) lockedByte(t *testing.T, at int64) (unlock func()) {
	t.Helper()
	f, err := os.OpenFile(ta.path(), os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	locked, err := shmsync.LockByte(f, at)
	require.NoError(t, err)
	require.True(t, locked)
	return func() { require.NoError(t, shmsync.UnlockByte(f, at)) }
}

// onRemovalPause calls f in each pause of a removal, and returns the number of pauses.
func onRemovalPause(t *testing.T, f func()) *atomic.Int64 {
	var n atomic.Int64
	before := pauseRemoval
	t.Cleanup(func() { pauseRemoval = before })
	pauseRemoval = func(d time.Duration) {
		n.Add(1)
		f()
		before(d)
	}
	return &n
}

// TestLastCloseAwaitsTheGate: two processes leave an ephemeral arena at the same time. One process has taken the
// gate, has found that the other process is still in, and still has the gate when the other process wants to remove
// the file. The other process waits for the gate, so that the file does not stay.
func TestLastCloseAwaitsTheGate(t *testing.T) {
	ta := newTestArena(t, 4)
	a := lastOf(t, ta)
	unlock := ta.lockedByte(t, gateByte)
	pauses := onRemovalPause(t, unlock)
	require.NoError(t, a.Close())
	require.NoFileExists(t, ta.path())
	require.EqualValues(t, 1, pauses.Load())
}

// TestLastCloseAwaitsADeath: a participant of an ephemeral arena has died, and its process has not ended
// yet when the last living participant leaves. The file does not stay.
func TestLastCloseAwaitsADeath(t *testing.T) {
	ta := newTestArena(t, 4)
	a := lastOf(t, ta)
	dead := a.slot(3)
	unlock := ta.lockedByte(t, a.lockByte(3))
	a.u32(dead + slotAdmission).Store(admissionIn)
	a.u32(dead + slotState).Store(uint32(makeSlotWord(phaseDead, 1) | heldByte))
	pauses := onRemovalPause(t, unlock)
	require.NoError(t, a.Close())
	require.NoFileExists(t, ta.path())
	require.Positive(t, pauses.Load())
}

// TestLastCloseLeavesTheFileToOthers: another process has the gate, and a participant is in the arena or
// runs OnFirst. A Close does not wait for the gate, because that participant removes the file.
func TestLastCloseLeavesTheFileToOthers(t *testing.T) {
	for _, admission := range []uint32{admissionIn, admissionFirst} {
		ta := newTestArena(t, 4)
		a := lastOf(t, ta)
		other := ta.join(t, "other")
		a.u32(a.slot(other.self.Slot()) + slotAdmission).Store(admission)
		unlock := ta.lockedByte(t, gateByte)
		pauses := onRemovalPause(t, func() {})
		require.NoError(t, a.Close())
		require.Zero(t, pauses.Load())
		require.FileExists(t, ta.path())
		unlock()
		other.close(t)
		require.NoFileExists(t, ta.path())
	}
}

// TestLastCloseGivesUpOnAStoppedProcess: a process is stopped while it has the gate. The last Close of an
// ephemeral arena waits for a bounded time, and leaves the file.
func TestLastCloseGivesUpOnAStoppedProcess(t *testing.T) {
	ta := newTestArena(t, 4)
	a := lastOf(t, ta)
	unlock := ta.lockedByte(t, gateByte)
	pauses := onRemovalPause(t, func() {})
	closed := make(chan error, 1)
	go func() { closed <- a.Close() }()
	select {
	case err := <-closed:
		require.NoError(t, err)
	case <-time.NewTimer(gateTimeout + bound()).C:
		require.Fail(t, "Close waits for the stopped process", "%s", dumpWords(ta.path()))
	}
	require.Positive(t, pauses.Load())
	require.FileExists(t, ta.path())
	unlock()
	require.NoError(t, Remove(ta.name))
}
