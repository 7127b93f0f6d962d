//go:build linux

package cinterop

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
)

// recordUse has the calls by which agents use an object with slot records.
type recordUse struct {
	open       string   // opens the object, and takes a part of it
	back       []string // gives that part back
	take, give []string // takes and gives back the whole
}

func (u recordUse) do(t *testing.T, x *agent, calls ...string) {
	t.Helper()
	for _, c := range calls {
		f := strings.Fields(c)
		args := make([]any, 0, len(f))
		for _, arg := range f[2:] {
			args = append(args, arg)
		}
		x.start(t, f[0], f[1], args...).must(t)
	}
}

var recordUses = map[string]recordUse{
	"rw":   {"rw.rlock x", []string{"rw.runlock x"}, []string{"rw.lock x"}, []string{"rw.unlock x"}},
	"auto": {"event.open x 1", nil, []string{"event.open x 1", "event.set x", "event.wait x"}, []string{"event.set x", "event.reset x"}},
	"sem":  {"sem.open x 4 0", nil, []string{"sem.open x 4 0", "sem.acquire x 4 9999999"}, []string{"sem.release x 4"}},
}

// A C program is killed while it makes its slot record of an object, or while it frees the slot records of a deleted
// object. Another participant uses and deletes the object, and no block leaks. The parameter first says whether the
// slot record is the first one of the object.
func TestKillRecord(t *testing.T) {
	t.Parallel()
	for _, point := range points(t) {
		if elsewhere[prefixOf(point)] != "TestKillRecord" {
			continue
		}
		for _, lang := range []string{"go", "c"} {
			for kind, use := range recordUses {
				for _, first := range []bool{false, true} {
					freeing := strings.HasSuffix(point, ".freeing")
					if first && freeing {
						continue
					}
					t.Run(fmt.Sprintf("%s/%s/%s/first %v", point, lang, kind, first), func(t *testing.T) {
						killRecord(t, point, lang, use, freeing, first)
					})
				}
			}
		}
	}
}

func killRecord(t *testing.T, point, lang string, use recordUse, freeing, first bool) {
	name := newArena(t)
	x := newAgent(t, lang, name, "stays")
	x.do(t, "mutex.open", "m", 1)
	x.do(t, "churn", "before", 7)
	a, err := arena.Attach(name, nil)
	require.NoError(t, err)
	defer a.Close()
	before := a.Stats().Objects

	other := newAgent(t, lang, name, "has a record, too")
	if !first {
		use.do(t, other, use.open)
		use.do(t, other, use.back...)
	}
	victim := newAgent(t, "c", name, "victim", "SHMSYNC_CRASHPOINT="+point)
	victim.mortal = true
	if freeing {
		other.leaves(t)
		victim.starts("gone.delete x")
		victim.ends(t)
	} else {
		victim.starts(use.open)
		victim.ends(t)
		for _, y := range []*agent{newAgent(t, lang, name, "has none yet"), other} {
			use.do(t, y, use.take...)
			use.do(t, y, use.give...)
			y.leaves(t)
		}
		eventually(t, "nobody has it open", name, func() bool { return x.start(t, "gone.delete", "x").wait(t).err == 0 })
	}
	sound(t, name)
	leftovers(t, name, x)
	require.Equal(t, before, a.Stats().Objects)
	require.Zero(t, a.Stats().SlotRecords)
}

// A first program opens a Semaphore. It is stopped when it has claimed a block for its slot record, but has not made
// the block a slot record yet. A second program, in C, grants permits, and dies after it has committed the grant and
// before it has woken the waiter.
func TestKillGranterBesideClaimedRecord(t *testing.T) {
	for _, lang := range []string{"go", "c"} {
		for _, moves := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s/transferable %d", lang, moves), func(t *testing.T) {
				name := newArena(t)
				stops := newAgent(t, "c", name, "stops", "SHMSYNC_CRASHPOINT_STOP=arena.slotrecord.pushed")
				stops.mortal = true
				stops.starts(fmt.Sprintf("sem.open x 2 %d", moves))
				stops.awaitStop(t)
				waits := newAgent(t, lang, name, "waits")
				off := waits.do(t, "sem.open", "x", 2, moves)
				victim := newAgent(t, "c", name, "victim", "SHMSYNC_CRASHPOINT=record.tell.resolved")
				victim.mortal = true
				victim.do(t, "sem.acquire", "x", 2, 9999999)
				w := waits.asleep(t, off, 1, "sem.acquire", "x", 1, 9999999)
				victim.starts("sem.release x 2")
				victim.ends(t)
				w.must(t)
				waits.do(t, "sem.release", "x", 1)
				require.EqualValues(t, 2, waits.do(t, "sem.free", "x"))
				stops.kill(t)
				sound(t, name)
			})
		}
	}
}

// A first program opens an auto-reset Event. It is stopped when it has claimed a block for its slot record, but has not
// made the block a slot record yet. A second program, in C, dies after it has set the Event and before it has woken a
// waiter, or at each step of a wait.
func TestKillEventBesideClaimedRecord(t *testing.T) {
	for _, lang := range []string{"go", "c"} {
		for point, dies := range map[string]func(t *testing.T, victim, waits *agent, off uint64) (left int){
			"event.set.before_wake": func(t *testing.T, victim, waits *agent, off uint64) int {
				w := waits.asleep(t, off, 1, "event.wait", "x")
				victim.starts("event.set x")
				victim.ends(t)
				w.must(t)
				return 0
			},
			"event.wait.counted":   dieWaiting,
			"event.wait.announced": dieWaiting,
			"event.wait.woken": func(t *testing.T, victim, waits *agent, off uint64) int {
				victim.asleep(t, off, 1, "event.wait", "x")
				w := waits.asleep(t, off, 2, "event.wait", "x")
				waits.do(t, "event.set", "x")
				waits.do(t, "event.set", "x")
				victim.ends(t)
				w.must(t)
				return 1
			},
			"event.wait.ended": func(t *testing.T, victim, waits *agent, off uint64) int {
				w := waits.asleep(t, off, 1, "event.wait", "x")
				waits.stop(t) // the Set of the victim gives the token to this wait, and the wait of the victim takes it
				victim.do(t, "event.set", "x")
				victim.starts("event.wait x")
				victim.ends(t)
				require.NoError(t, waits.cmd.Process.Signal(syscall.SIGCONT))
				waits.do(t, "event.set", "x")
				w.must(t)
				return 0
			},
			"event.wait.before_pass": func(t *testing.T, victim, waits *agent, off uint64) int {
				victim.asleep(t, off, 1, "event.wait", "x")
				w := waits.asleep(t, off, 2, "event.wait", "x")
				sets := newAgent(t, "c", victim.arena, "sets")
				victim.stop(t)
				waits.stop(t) // or it would take one of the tokens
				sets.do(t, "event.set", "x")
				sets.do(t, "event.set", "x")
				require.NoError(t, victim.cmd.Process.Signal(syscall.SIGCONT))
				victim.ends(t)
				require.NoError(t, waits.cmd.Process.Signal(syscall.SIGCONT))
				w.must(t)
				return 0
			},
		} {
			t.Run(point+"/"+lang, func(t *testing.T) {
				name := newArena(t)
				stops := newAgent(t, "c", name, "stops", "SHMSYNC_CRASHPOINT_STOP=arena.slotrecord.pushed")
				stops.mortal = true
				stops.starts("event.open x 1")
				stops.awaitStop(t)
				waits := newAgent(t, lang, name, "waits")
				off := waits.do(t, "event.open", "x", 1)
				victim := newAgent(t, "c", name, "victim", "SHMSYNC_CRASHPOINT="+point)
				victim.mortal = true
				victim.do(t, "event.open", "x", 1)
				left := dies(t, victim, waits, off)
				for range left {
					eventually(t, "a token of the dead is there for others", name, func() bool { return waits.start(t, "event.try", "x").wait(t).err == 0 })
				}
				waits.start(t, "event.try", "x").fails(t, syscall.EBUSY)
				waits.do(t, "event.set", "x")
				waits.do(t, "event.wait", "x")
				stops.kill(t)
				sound(t, name)
			})
		}
	}
}

// dieWaiting has the victim die in a wait that has taken nothing.
func dieWaiting(t *testing.T, victim, waits *agent, off uint64) (left int) {
	w := waits.asleep(t, off, 1, "event.wait", "x")
	victim.starts("event.wait x")
	victim.ends(t)
	waits.do(t, "event.set", "x")
	w.must(t)
	return 0
}

// A C program is killed after it has put its slot record on the list. A peer has damaged the list, so the reaper, in C,
// does not find the record there. The reaper does not free the block of the record, because handles may remember it.
func TestKillRecordBehindADamagedPlace(t *testing.T) {
	for kind, use := range recordUses {
		t.Run(kind, func(t *testing.T) {
			name := newArena(t)
			x := newAgent(t, "c", name, "reaps")
			off := x.do(t, strings.Fields(use.open)[0], "x", openArgs(use)...)
			victim := newAgent(t, "c", name, "victim", "SHMSYNC_CRASHPOINT_STOP=arena.slotrecord.pushed")
			victim.mortal = true
			victim.starts(use.open)
			victim.awaitStop(t)
			other := newAgent(t, "c", name, "has a record, too")
			use.do(t, other, use.open)
			f, err := os.OpenFile("/dev/shm/"+name, os.O_RDWR, 0)
			require.NoError(t, err)
			defer f.Close()
			const objRecords = 56
			var head [4]byte
			_, err = f.ReadAt(head[:], int64(off)+objRecords)
			require.NoError(t, err)
			_, err = f.WriteAt([]byte{1, 0, 0, 0}, int64(off)+objRecords)
			require.NoError(t, err)
			victim.kill(t)
			eventually(t, "the slot is free", name, func() bool { return x.do(t, "gone.slot", "x", 2) == 0 })
			_, err = f.WriteAt(head[:], int64(off)+objRecords)
			require.NoError(t, err)
			sound(t, name)
			a, err := arena.Attach(name, nil)
			require.NoError(t, err)
			defer a.Close()
			require.EqualValues(t, 3, a.Stats().SlotRecords)
		})
	}
}

// openArgs returns the arguments of the call that opens the object.
func openArgs(u recordUse) (args []any) {
	for _, arg := range strings.Fields(u.open)[2:] {
		args = append(args, arg)
	}
	return args
}

// leaves makes an agent close its arena and end.
func (x *agent) leaves(t *testing.T) {
	t.Helper()
	x.do(t, "close", "-")
	x.ends(t)
}
