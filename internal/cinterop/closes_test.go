//go:build linux

package cinterop

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// A close of the arena waits for each call that still needs the arena. That is so from before the call enqueues
// its wait until it has accepted its grant or has undone what it did.
func TestCloseWaitsForCalls(t *testing.T) {
	bin := program(t, "closes.c")
	out, err := exec.Command(bin, "count").Output()
	require.NoError(t, err)
	count, err := strconv.Atoi(string(out))
	require.NoError(t, err)
	require.NotZero(t, count)
	for i := range count {
		name := coreArena(t, 2<<20)
		out, err := exec.Command(bin, strconv.Itoa(i), name).CombinedOutput()
		if err != nil {
			t.Errorf("scene %d: %v: %s", i, err, out)
			continue
		}
		sound(t, name)
	}
}

// A call in C that begins while the arena is being closed is refused. Only a call of a thread that is inside
// another call proceeds, because the close waits for that other call. A refused call leaves no object that nobody
// can find, and writes nothing on behalf of the participant that has left.
func TestCallsWhileTheArenaIsBeingClosed(t *testing.T) {
	bin := program(t, "ending.c")
	out, err := exec.Command(bin, "count").Output()
	require.NoError(t, err)
	for i, scene := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		t.Run(scene, func(t *testing.T) {
			name := coreArena(t, 2<<20)
			out, err := exec.Command(bin, strconv.Itoa(i), name).CombinedOutput()
			require.NoError(t, err, "%s", out)
			sound(t, name)
			a, err := arena.Attach(name, nil)
			require.NoError(t, err)
			defer a.Close()
			for o := range a.Objects() {
				require.NotEmpty(t, o.Name, "a %v without a name is left at %v", o.Kind, o.Offset)
			}
			require.Zero(t, a.Stats().Claimed)
		})
	}
}

// A C program that takes the slot of a dead participant records the wakes that the dead participant owed. The
// record stays until the program has made these wakes.
func TestSuccessorInCOwesWhatTheDeadOwed(t *testing.T) {
	name := unusedName(t)
	a, err := arena.Create(name, &arena.Options{Size: 2 << 20, MaxParticipants: 1})
	require.NoError(t, err)
	require.NoError(t, a.Close())
	runC(t, "heir.c", name)
	sound(t, name)
}

// A call in C that has to wait, and is refused because the arena is being closed, changes nothing, and keeps no lock of
// its process.
func TestRefusedCallChangesNothing(t *testing.T) {
	name := coreArena(t, 2<<20)
	runC(t, "refused.c", name)
	sound(t, name)
	a, err := arena.Attach(name, nil)
	require.NoError(t, err)
	defer a.Close()
	m, err := prims.OpenMultiLock(a, "multi", nil)
	require.NoError(t, err)
	_, locked := m.TryLock(1)
	require.False(t, locked, "the program left the arena with the key held")
	require.ErrorIs(t, m.State(1).Err, shmsync.ErrOwnerDead)
}

// A process in C that frees the slot records of an object does not free a block that a peer has allocated
// meanwhile. Its loop over the records ends, whatever a peer writes.
func TestPeerChangesSlotRecordsThatCFrees(t *testing.T) {
	name := unusedName(t)
	a, err := arena.Create(name, &arena.Options{Size: 4 << 20, MaxParticipants: 64})
	require.NoError(t, err)
	require.NoError(t, a.Close())
	runC(t, "records.c", name)
}

// A close of an arena in C frees the memory of handles that are still open.
func TestCloseFreesHandles(t *testing.T) {
	name := coreArena(t, 2<<20)
	runC(t, "unclosed.c", name)
	sound(t, name)
}

// A handle in C remembers the slot records of an object. It uses them in a call that comes after the handle was
// closed, and when a peer changes the list of the records.
func TestCKeepsKnownRecords(t *testing.T) {
	name := coreArena(t, 2<<20)
	runC(t, "shares.c", name)
}

// A process in C asks a transferable Semaphore for more permits than there are. The refused call changes nothing,
// even while others acquire and release permits.
func TestCRefusalLeavesThePool(t *testing.T) {
	name := coreArena(t, 2<<20)
	path := program(t, "pool.c", "-DSHMSYNC_IMPLEMENTATION")
	asks, asked, stderr := core(t, path, name, "asks")
	ready(t, asked, stderr)
	out, err := exec.Command(path, name, "pairs", fmt.Sprint(proctest.Rounds(100_000, 1_000_000))).CombinedOutput()
	require.NoError(t, err, "%s", out)
	tell(t, asks)
	require.NoError(t, asks.Wait(), "%v", stderr)
	a, err := arena.Attach(name, nil)
	require.NoError(t, err)
	defer a.Close()
	s, err := prims.AttachSemaphore(a, "pool", nil)
	require.NoError(t, err)
	require.EqualValues(t, 4, s.State().Free)
}

// The holder of a permit dies. The only other process that notices the death has not opened the Semaphore, so it
// cannot grant the permit. It wakes the waiter instead: a thread in C that sleeps only on its wait node, and
// rarely makes a periodic check.
func TestCWaiterIsToldByStrangers(t *testing.T) {
	name := coreArena(t, 2<<20)
	a, err := arena.Attach(name, nil)
	require.NoError(t, err)
	defer a.Close()
	path := program(t, "permit.c", "-DSHMSYNC_IMPLEMENTATION", "-DSHMI_CHECK_EVERY=INT64_C(3600000000000)")
	holder, held, stderr := core(t, path, name)
	ready(t, held, stderr)
	waiter, got, stderr := core(t, path, name)
	eventually(t, "it sleeps", name, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", waiter.Process.Pid))
		return err == nil && bytes.Contains(stat, []byte(") S ")) && waitAsleep(a)
	})
	require.NoError(t, holder.Process.Kill())
	ready(t, got, stderr)
}

// waitAsleep reports whether some object has a wait whose thread sleeps, or is about to sleep.
func waitAsleep(a *arena.Arena) bool {
	for o := range a.Objects() {
		for _, w := range (*arenakernel.Arena)(a).WaitsOf(arenakernel.Object{Offset: arenakernel.Offset(o.Offset)}) {
			if w.How == arenakernel.WaitAsleep {
				return true
			}
		}
	}
	return false
}
