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

// A close of the arena waits for a call until the call no longer needs the arena: from before it
// queues its wait until it has accepted what it was granted, or has undone what it did.
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

// A call in C that comes while the arena is being closed is refused, unless its thread is in another call, for which the
// close waits. It leaves no object that nobody can find, and writes nothing for the participant that has left.
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
				require.NotEmpty(t, o.Name, "a %v is left at %v", o.Kind, o.Offset)
			}
			require.Zero(t, a.Stats().Claimed)
		})
	}
}

// A C program that takes the slot of a dead participant records the wakes that the dead one owed,
// until it has made them.
func TestSuccessorInCOwesWhatTheDeadOwed(t *testing.T) {
	name := unusedName(t)
	a, err := arena.Create(name, &arena.Options{Size: 2 << 20, MaxParticipants: 1})
	require.NoError(t, err)
	require.NoError(t, a.Close())
	out, err := exec.Command(program(t, "heir.c"), name).CombinedOutput()
	require.NoError(t, err, "%s", out)
	sound(t, name)
}

// A call in C that has to wait, and is refused since the arena is being closed, has not taken the queue
// lock. It could not give that back: the arena may be gone.
func TestRefusedCallTakesNoQueueLock(t *testing.T) {
	name := coreArena(t, 2<<20)
	out, err := exec.Command(program(t, "refused.c"), name).CombinedOutput()
	require.NoError(t, err, "%s", out)
	sound(t, name)
	a, err := arena.Attach(name, nil)
	require.NoError(t, err)
	defer a.Close()
	f, err := prims.OpenFairMutex(a, "fair", nil)
	require.NoError(t, err)
	require.False(t, f.TryLock(), "the program left the arena with the lock held")
	require.ErrorIs(t, f.State().Err, shmsync.ErrOwnerDead)
}

// A process in C that frees the slot records of an object frees no block that a peer got meanwhile, and its loop ends
// whatever a peer writes.
func TestPeerChangesSlotRecordsThatCFrees(t *testing.T) {
	name := unusedName(t)
	a, err := arena.Create(name, &arena.Options{Size: 4 << 20, MaxParticipants: 64})
	require.NoError(t, err)
	require.NoError(t, a.Close())
	out, err := exec.Command(program(t, "records.c"), name).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// A close of an arena in C frees what its open handles own.
func TestCloseFreesHandles(t *testing.T) {
	name := coreArena(t, 2<<20)
	out, err := exec.Command(program(t, "unclosed.c"), name).CombinedOutput()
	require.NoError(t, err, "%s", out)
	sound(t, name)
}

// A handle in C keeps what it knows of the slot records of an object: for a call that is late, and when a peer
// changes the list of the records.
func TestCKeepsKnownRecords(t *testing.T) {
	name := coreArena(t, 2<<20)
	out, err := exec.Command(program(t, "shares.c"), name).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// A process in C that asks a transferable Semaphore for more permits than there are changes nothing, while others take
// permits and give them back without the queue lock.
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

// The holder of a permit dies. The only other process that notices it has not opened the Semaphore, so it cannot make a
// change. It wakes the waiter, a thread in C that sleeps on nothing but its wait node and looks for the dead seldom.
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

// waitAsleep reports whether an object has a wait whose thread sleeps, or is about to.
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
