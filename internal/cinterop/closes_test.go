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

// A close of the arena waits for each call that has begun to enqueue a wait. The close goes on only when the call has
// accepted its grant, or has undone what it did.
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

// A call of a Queue that does not wait has claimed a slot, or has taken an item on a lease, and has not stored to the
// slot yet. A close of the arena waits for it, for a bounded time. Otherwise the store would change what a peer has put
// or leased meanwhile. If the call has not begun to store when the close begins to wait, it undoes the claim.
func TestCloseInCWaitsForACallOfAQueue(t *testing.T) {
	for _, verb := range []string{"put", "lease", "put held", "lease held", "put claimed", "lease claimed", "put late", "lease late"} {
		t.Run(verb, func(t *testing.T) {
			name := newArena(t)
			runC(t, "uncounted.c", name, verb)
			sound(t, name)
		})
	}
}

// A store or a commit of a Synchronized has the lock, and has not stored yet. A close of the arena waits for it, for a
// bounded time. Otherwise the store would change the copy that a peer is about to commit. The close does not wait for a
// program that is between a begin and a commit.
func TestCloseInCWaitsForACallOfASynchronized(t *testing.T) {
	for _, verb := range []string{"store", "commit", "store held", "commit held", "store lent"} {
		t.Run(verb, func(t *testing.T) {
			name := newArena(t)
			runC(t, "uncounted.c", name, verb)
			sound(t, name)
		})
	}
}

// A call in C that begins while the arena is being closed fails. It leaves no object without a name, and writes nothing
// on behalf of the participant that has left. A call inside another call proceeds, because the close waits for the
// outer call.
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

// A C program takes the slot of a participant that died while it owed wakes. The program records that it owes these
// wakes, and keeps the record until it has made them.
func TestSuccessorInCOwesWhatTheDeadOwed(t *testing.T) {
	name := unusedName(t)
	a, err := arena.Create(name, &arena.Options{Size: 2 << 20, MaxParticipants: 1})
	require.NoError(t, err)
	require.NoError(t, a.Close())
	runC(t, "heir.c", name)
	sound(t, name)
}

// A call in C that has to wait fails while the arena is being closed. The call changes nothing, and does not leave the
// private lock of its process locked.
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

// A process in C frees the slot records of an object while a peer changes their list. The process does not free a block
// that the peer has allocated, and its loop over the records ends.
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

// A handle in C remembers the slot records that it has found. Calls use them after a peer has changed the list of the
// records, and when another thread closes the handle during the call.
func TestCKeepsKnownRecords(t *testing.T) {
	name := coreArena(t, 2<<20)
	runC(t, "shares.c", name)
}

// A process in C asks a transferable Semaphore for more permits than it has in total. The call fails, and all permits
// stay, even while another process acquires and releases permits.
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

// The holder of a permit dies, and only a process that has not opened the Semaphore notices the death. This process
// cannot grant the permit, but it wakes the waiter, which then takes the permit. The waiter is a thread in C that makes
// a periodic check only once an hour.
func TestCWaiterIsToldByStrangers(t *testing.T) {
	name := coreArena(t, 2<<20)
	a, err := arena.Attach(name, nil)
	require.NoError(t, err)
	defer a.Close()
	path := program(t, "permit.c", "-DSHMSYNC_IMPLEMENTATION", rarely)
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
