//go:build linux

package cinterop

import (
	"encoding/binary"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// A writer in C waits until a dead holder is gone, and holds nothing meanwhile. If the process of the writer is
// stopped, other writers can lock as soon as the dead holder is gone. The same test for Go is
// TestRWMutexStoppedWriterThatAwaitsTheDead of package prims.
func TestStoppedWriterThatAwaitsTheDeadInC(t *testing.T) {
	name := newArena(t)
	x := newAgent(t, "c", name, "survivor")
	h := hand{name: "rw/release", open: verb("rw.open", release), take: verb("rw.lock")}
	victim := h.dying(t, name, x)
	waits := newAgent(t, "c", name, "stops", "SHMSYNC_CRASHPOINT_STOP=rwmutex.lock.queued")
	waits.mortal = true
	off := x.do(t, "rw.open", "x", release)
	body := txMap(t, name, off).b[off+64:]
	mutexHeld := func() bool {
		return binary.LittleEndian.Uint32(body)&uint32(arenakernel.ParticipantIDMask) != 0
	}
	waits.start(t, "rw.lock", "x", forever)
	waits.awaitStop(t)
	require.True(t, mutexHeld(), "it is stopped with the writers' mutex")
	running := false
	eventually(t, "it gives the writers' mutex back", name, func() bool {
		if running = !running; running {
			require.NoError(t, waits.cmd.Process.Signal(syscall.SIGCONT))
			return false
		}
		waits.stop(t)
		return !mutexHeld()
	})
	victim.in.Close() // ends the child that keeps the byte lock, so the victim is gone
	x.do(t, "rw.lock", "x", forever)
	x.do(t, "rw.unlock", "x")
	require.NoError(t, waits.cmd.Process.Signal(os.Kill))
	waits.ends(t)
	x.do(t, "rw.lock", "x", forever)
	sound(t, name)
}
