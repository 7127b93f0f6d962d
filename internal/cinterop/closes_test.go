//go:build linux

package cinterop

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
// accepted a grant, or has withdrawn the wait.
func TestCloseWaitsForCalls(t *testing.T) {
	t.Parallel()
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

// A thread is in a call that puts an item into a Queue, or leases one, and another thread closes the arena. The close
// waits for the call, for a bounded time. Otherwise the call could change an item that a peer has put or leased since.
// If the call has claimed its slot, but has not begun to copy the item, it undoes the claim.
func TestCloseInCWaitsForACallOfAQueue(t *testing.T) {
	for _, verb := range []string{"put", "lease", "put held", "lease held", "put claimed", "lease claimed", "put late", "lease late"} {
		t.Run(verb, func(t *testing.T) {
			name := newArena(t)
			runC(t, "uncounted.c", name, verb)
			sound(t, name)
		})
	}
}

// A close of the arena waits, for a bounded time, for a store or a commit of a Synchronized that has locked and has not
// written yet. Otherwise this write would change the copy that a peer is about to commit. The close does not wait for a
// program that has called begin and is not in a call.
func TestCloseInCWaitsForACallOfASynchronized(t *testing.T) {
	for _, verb := range []string{"store", "commit", "store held", "commit held", "store lent", "commit unfenced"} {
		t.Run(verb, func(t *testing.T) {
			name := newArena(t)
			runC(t, "uncounted.c", name, verb)
			sound(t, name)
		})
	}
}

// A call has a lock, and is about to store to words that the lock guards, or to the owner word. A close of the arena does
// not wait for it, and takes the lock back. When a peer has the lock, the call makes its store. The store reaches no
// memory of the arena.
func TestCloseInCCutsOffTheStoresOfALateCall(t *testing.T) {
	for _, verb := range []string{"unlock held", "save held"} {
		t.Run(verb, func(t *testing.T) {
			name := newArena(t)
			runC(t, "uncounted.c", name, verb)
			sound(t, name)
		})
	}
}

// A process in C is killed while it closes the arena, after it has replaced its mapping. The kernel still finds the alive
// words of the process.
func TestCloseInCKeepsTheAliveWordsOnTheRobustList(t *testing.T) {
	name := newArena(t)
	runC(t, "uncounted.c", name, "death")
	sound(t, name)
}

// A thread of a process in C is about to wake a waiter of a peer when another thread closes the arena. The close then
// sends the wakes that the peer may miss. Until it has sent them, the slot says that they are owed.
func TestCloseInCOwesTheWakesOfALateCall(t *testing.T) {
	name := newArena(t)
	runC(t, "uncounted.c", name, "owed")
	sound(t, name)
}

// The kernel has no room to replace the mapping, and may have left the file mapped. Then a close in C does not treat the
// calls under way as cut off.
func TestCloseInCThatCannotCutOffItsCalls(t *testing.T) {
	name := newArena(t)
	runC(t, "uncounted.c", name, "unknown")
	sound(t, name)
}

// A child of a fork beside a close in C does not inherit the mapping that the close uses.
func TestCloseInCHasAMappingOfItsOwn(t *testing.T) {
	name := newArena(t)
	runC(t, "uncounted.c", name, "fork")
	sound(t, name)
}

// A call in C is preempted at any of its accesses to the arena, and goes on when the close of the arena has replaced the
// mapping under it. The call does not report success. The program tests all functions that return an error, except those
// in the list below.
func TestLateCallInCReportsNoSuccess(t *testing.T) {
	others := map[string]string{
		"shmsync_who_died":                  "reads only memory of the thread",
		"shmsync_nearest_bit":               "calculates",
		"shmsync_arena_remove":              "works with a name",
		"shmsync_arena_open":                "has no arena yet",
		"shmsync_arena_from_fd":             "has no arena yet",
		"shmsync_wait_hook":                 "sets a function of the process",
		"shmsync_cond_wait":                 "always counts itself",
		"shmsync_cond_timedwait":            "always counts itself",
		"shmsync_cond_wait_with":            "always counts itself",
		"shmsync_recover_all":               "always counts itself",
		"shmsync_alloc":                     "always counts itself",
		"shmsync_free":                      "always counts itself",
		"shmsync_delete":                    "always counts itself",
		"shmsync_delete_at":                 "always counts itself",
		"shmsync_arena_on_death":            "always counts itself",
		"shmsync_arena_participants":        "always counts itself",
		"shmsync_futex_stopped":             "returns a state",
		"shmsync_sequencer_stopped":         "returns a state",
		"shmsync_event_is_set":              "returns a state",
		"shmsync_future_is_set":             "returns a state",
		"shmsync_once_done":                 "returns a state",
		"shmsync_signalwaker_signals":       "returns a number of the handle",
		"shmsync_signalwaker_queues":        "returns a number of the handle",
		"shmsync_signalwaker_gate":          "reads only the handle",
		"shmsync_signalwaker_signal":        "reads only the handle",
		"shmsync_signalwaker_sleepers":      "returns a number",
		"shmsync_signalwaker_workers":       "returns a number",
		"shmsync_signalwaker_reserved":      "returns a number",
		"shmsync_signalwaker_leaf_has_work": "returns a state",
	}
	bin := program(t, "cutoff.c")
	out, err := exec.Command(bin, "list").Output()
	require.NoError(t, err)
	tested := strings.Fields(string(out))
	header, err := os.ReadFile(filepath.Join("..", "..", "include", "shmsync.h"))
	require.NoError(t, err)
	opens := regexp.MustCompile(`_(open|create|attach|at|close|abi|open_type|attach_type)$`) // these count themselves, too
	declared := 0
	for _, m := range regexp.MustCompile(`(?m)^int (shmsync_\w+)\(.*\);$`).FindAllSubmatch(header, -1) {
		f := string(m[1])
		declared++
		if !opens.MatchString(f) && others[f] == "" {
			require.Contains(t, tested, f)
		}
	}
	require.Greater(t, declared, len(tested))
	out, err = exec.Command(bin, unusedName(t)).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// A call in C that begins while the arena is being closed fails. It leaves no object without a name, and writes nothing
// on behalf of the participant that has left. A call that another call makes proceeds, because the close waits for the
// outer call.
func TestCallsWhileTheArenaIsBeingClosed(t *testing.T) {
	t.Parallel()
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

// While the arena is being closed, each call in C that would have to wait fails. The call changes nothing, and leaves
// the private lock of its process unlocked.
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

// A handle in C remembers the slot records that it has found. A call still uses them when a peer has changed the list
// of the records, or when another thread closes the handle during the call.
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

// A thread in C waits for a permit, and makes a periodic check only once an hour. The holder of the permit dies, and
// only a process that has not opened the Semaphore notices the death. This process cannot grant the permit. It wakes
// the waiter, which then takes the permit.
func TestCWaiterIsToldByStrangers(t *testing.T) {
	t.Parallel()
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
