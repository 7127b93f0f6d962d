//go:build linux

package cinterop

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/race"
)

// fairWord is the owner word of a FairMutex: its kind, the ID of the participant that it names, and its tag.
func fairWord(t *testing.T, arenaName string, off uint64) (kind, name, tag uint32) {
	t.Helper()
	image, _ := body(t, arenaName, off)
	v := binary.LittleEndian.Uint64(image[8:])
	return uint32(v >> 61), uint32(v>>32) & (1<<29 - 1), uint32(v)
}

// The kinds of owner words.
const (
	fairOpenKind  = 1
	fairDeadKind  = 3
	fairWrongKind = 7
)

// A try that fails leaves the owner word open. A wait closes the word, and opens it again when the wait times out.
func TestFairMutexStaysOpen(t *testing.T) {
	if race.Enabled {
		t.Skip("needs a build without the race detector, with which a process in Go opens no owner word")
	}
	forPairs(t, func(t *testing.T, s scene) {
		off := s.a.do(t, "fair.open", "f")
		s.a.do(t, "fair.lock", "f")
		_, holder, tag := fairWord(t, s.arena, off)
		s.b.start(t, "fair.try", "f").fails(t, syscall.EBUSY)
		kind, name, now := fairWord(t, s.arena, off)
		require.Equal(t, []uint32{fairOpenKind, holder, tag}, []uint32{kind, name, now})
		s.b.start(t, "fair.unlock", "f").fails(t, syscall.EPERM)
		s.b.start(t, "fair.lock", "f", 20).fails(t, syscall.ETIMEDOUT)
		kind, name, _ = fairWord(t, s.arena, off)
		require.Equal(t, []uint32{fairOpenKind, holder}, []uint32{kind, name})
		w := s.b.blocked(t, off, 1, "fair.lock", "f")
		s.a.do(t, "fair.unlock", "f")
		w.must(t)
		s.b.do(t, "fair.unlock", "f")
		kind, name, _ = fairWord(t, s.arena, off)
		require.Equal(t, []uint32{fairOpenKind, 0}, []uint32{kind, name})
	})
}

// unlockStopped has a process of one language stop in Unlock after the commit of its record, and before the record is
// carried out. A process of the other language finds the lock free.
func unlockStopped(t *testing.T, lang, other string) {
	name := newArena(t)
	b := newAgent(t, other, name, "tries")
	off := b.do(t, "fair.open", "f")
	b.do(t, "fair.lock", "f")
	// The first record of this agent queues its wait, and the second record unlocks.
	x := newAgent(t, lang, name, "stops", "SHMSYNC_CRASHPOINT_STOP=record.commit.named:2")
	x.mortal = true
	w := x.blocked(t, off, 1, "fair.lock", "f")
	b.do(t, "fair.unlock", "f")
	w.must(t)
	b.start(t, "fair.try", "f").fails(t, syscall.EBUSY)
	w = x.start(t, "fair.unlock", "f")
	x.awaitStop(t)
	b.do(t, "fair.try", "f")
	require.NoError(t, x.cmd.Process.Signal(syscall.SIGCONT))
	w.must(t)
	x.start(t, "fair.try", "f").fails(t, syscall.EBUSY)
	b.do(t, "fair.unlock", "f")
	x.do(t, "fair.try", "f")
}

func TestFairMutexTryLockCompletesUnlock(t *testing.T) {
	for _, other := range []string{"go", "c"} {
		t.Run(other, func(t *testing.T) { unlockStopped(t, "c", other) })
	}
}

// dieGranted has a process die at a crash point of a wait that was granted the lock. The parameter reported says
// whether the next waiter must learn of the death.
func dieGranted(t *testing.T, lang, other, point string, reported bool) {
	name := newArena(t)
	b, c := newAgent(t, other, name, "b"), newAgent(t, other, name, "c")
	off := b.do(t, "fair.open", "f")
	b.do(t, "fair.lock", "f")
	x := newAgent(t, lang, name, "victim", "SHMSYNC_CRASHPOINT="+point)
	x.mortal = true
	x.blocked(t, off, 1, "fair.lock", "f")
	w := c.blocked(t, off, 2, "fair.lock", "f")
	b.do(t, "fair.unlock", "f")
	x.ends(t)
	if reported {
		w.fails(t, syscall.EOWNERDEAD)
		require.EqualValues(t, 1, c.do(t, "fair.recover", "f"))
	} else {
		w.must(t)
		c.do(t, "fair.unlock", "f")
	}
	b.do(t, "fair.lock", "f")
	b.do(t, "fair.unlock", "f")
	sound(t, name)
}

// A process is granted the lock and dies. The death is reported only if the process had accepted the lock before.
func TestFairMutexDiesAroundAccept(t *testing.T) {
	for _, other := range []string{"go", "c"} {
		t.Run("before/"+other, func(t *testing.T) { dieGranted(t, "c", other, "record.await.resolved", false) })
		t.Run("after/"+other, func(t *testing.T) { dieGranted(t, "c", other, "fairmutex.lock.accepted", true) })
	}
}

// A participant accepts a lock, and unlocks it, which grants the lock to another wait of the same participant. It dies
// before it accepts this second grant. Its death is not reported, because it did not hold the lock.
func TestFairMutexDiesBeforeSecondAccept(t *testing.T) {
	for _, other := range []string{"go", "c"} {
		t.Run(other, func(t *testing.T) { dieBeforeSecondAccept(t, "c", other) })
	}
}

func dieBeforeSecondAccept(t *testing.T, lang, other string) {
	name := newArena(t)
	b, c := newAgent(t, other, name, "b"), newAgent(t, other, name, "c")
	off := b.do(t, "fair.open", "f")
	b.do(t, "fair.lock", "f")
	x := newAgent(t, lang, name, "victim", "SHMSYNC_CRASHPOINT=record.await.resolved:2")
	x.mortal = true
	first := x.start(t, "fair.lock", "f")
	eventually(t, "the first wait is queued", name, func() bool { return queuedWaits(t, name, off) == 1 })
	x.start(t, "fair.lock", "f")
	eventually(t, "the second wait is queued", name, func() bool { return queuedWaits(t, name, off) == 2 })
	w := c.start(t, "fair.lock", "f")
	eventually(t, "the last wait is queued", name, func() bool { return queuedWaits(t, name, off) == 3 })
	b.do(t, "fair.unlock", "f")
	first.must(t)
	x.starts("fair.unlock f")
	x.ends(t)
	w.must(t)
	c.do(t, "fair.unlock", "f")
	b.do(t, "fair.lock", "f")
}

// queuedWaits is how many waits the object at off has.
func queuedWaits(t *testing.T, name string, off uint64) int {
	t.Helper()
	a, err := arena.Attach(name, &arena.Options{Label: "counts"})
	require.NoError(t, err)
	defer a.Close()
	return len((*arenakernel.Arena)(a).WaitsOf(arenakernel.Object{Offset: arenakernel.Offset(off)}))
}

// The holder of a lock dies, and only a stranger, a process that has not opened the lock, notices the death. The
// stranger marks the lock owner-dead, or frees it if the policy is PolicyRelease. If the holder got the lock by a
// grant, the owner word is closed, and the stranger changes it by a record. Otherwise the word is open, and a
// compare-and-swap is enough.
func TestFairMutexHolderDiesBesideStrangers(t *testing.T) {
	for _, stranger := range []string{"go", "c"} {
		for _, user := range []string{"go", "c"} {
			for _, policy := range []int{0, release} {
				for _, granted := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/%s/policy %d/granted %v", stranger, user, policy, granted), func(t *testing.T) {
						dieBesideStrangers(t, stranger, user, policy, granted)
					})
				}
			}
		}
	}
}

func dieBesideStrangers(t *testing.T, stranger, user string, policy int, granted bool) {
	name := newArena(t)
	newAgent(t, stranger, name, "stranger")
	x := newAgent(t, "c", name, "holder")
	x.mortal = true
	off := x.do(t, "fair.open", "f", policy)
	if granted {
		first := newAgent(t, "c", name, "first")
		first.do(t, "fair.open", "f", policy)
		first.do(t, "fair.lock", "f")
		wait := x.blocked(t, off, 1, "fair.lock", "f")
		first.do(t, "fair.unlock", "f")
		wait.must(t)
		first.kill(t)
	} else {
		x.do(t, "fair.lock", "f")
	}
	was, dead, _ := fairWord(t, name, off)
	require.Equal(t, !granted, was == fairOpenKind)
	x.kill(t)
	var kind, named uint32
	eventually(t, "the stranger has reaped", name, func() bool {
		kind, named, _ = fairWord(t, name, off)
		return kind != was || named != dead
	})
	u := newAgent(t, user, name, "user")
	if policy == release {
		require.Zero(t, named)
		u.do(t, "fair.lock", "f")
		return
	}
	require.Equal(t, []uint32{fairDeadKind, dead}, []uint32{kind, named})
	u.start(t, "fair.lock", "f").fails(t, syscall.EOWNERDEAD)
	u.start(t, "fair.spoil", "f").fails(t, syscall.ENOTRECOVERABLE)
	require.EqualValues(t, 1, u.do(t, "fair.recover", "f"))
	u.do(t, "fair.lock", "f")
}

// The holder of a lock dies, and only a process that has not opened the lock notices the death. This process wakes the
// waiter, a thread in C that makes a periodic check only once an hour.
func TestCFairWaiterIsToldByStrangers(t *testing.T) {
	for i, policy := range []int{0, release, 0, release} {
		stranger := []string{"go", "go", "c", "c"}[i]
		t.Run(fmt.Sprintf("%s/policy %d", stranger, policy), func(t *testing.T) {
			name := coreArena(t, 2<<20)
			a, err := arena.Attach(name, nil)
			require.NoError(t, err)
			defer a.Close()
			path := program(t, "fairlock.c", "-DSHMSYNC_IMPLEMENTATION", rarely)
			holder, held, stderr := core(t, path, name, fmt.Sprint(policy))
			ready(t, held, stderr)
			waiter, got, stderr := core(t, path, name, fmt.Sprint(policy))
			eventually(t, "it sleeps", name, func() bool {
				stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", waiter.Process.Pid))
				return err == nil && bytes.Contains(stat, []byte(") S ")) && waitAsleep(a)
			})
			if stranger == "c" {
				newAgent(t, "c", name, "stranger")
				require.NoError(t, a.Close())
			}
			require.NoError(t, holder.Process.Kill())
			ready(t, got, stderr)
		})
	}
}

// A wait ends with an error if a repair of the lock fails, or if a peer overwrites the owner word.
func TestFairMutexRefusesWaits(t *testing.T) {
	for _, lang := range []string{"go", "c"} {
		t.Run(lang+"/repair fails", func(t *testing.T) { refuseNotRecoverable(t, "c", lang) })
		t.Run(lang+"/overwritten", func(t *testing.T) {
			name := newArena(t)
			x, b := newAgent(t, "c", name, "holder"), newAgent(t, lang, name, "waits")
			off := x.do(t, "fair.open", "f")
			x.do(t, "fair.lock", "f")
			w := b.blocked(t, off, 1, "fair.lock", "f")
			image, write := body(t, name, off)
			binary.LittleEndian.PutUint64(image[8:], fairWrongKind<<61)
			write(image)
			w.fails(t, syscall.EPROTO)
			b.start(t, "fair.lock", "f").fails(t, syscall.EPROTO)
			b.start(t, "fair.try", "f").wait(t)
			x.start(t, "fair.unlock", "f").fails(t, syscall.EPROTO)
		})
	}
}

func refuseNotRecoverable(t *testing.T, lang, other string) {
	name := newArena(t)
	b, c := newAgent(t, other, name, "b"), newAgent(t, other, name, "c")
	off := b.do(t, "fair.open", "f")
	holder := newAgent(t, "c", name, "holder")
	holder.mortal = true
	holder.do(t, "fair.lock", "f")
	holder.kill(t)
	b.start(t, "fair.lock", "f").fails(t, syscall.EOWNERDEAD)
	x := newAgent(t, lang, name, "recovers", "SHMSYNC_CRASHPOINT_STOP=fairmutex.recover.taken")
	x.mortal = true
	spoils := x.start(t, "fair.spoil", "f")
	x.awaitStop(t)
	b.start(t, "fair.try", "f").fails(t, syscall.EBUSY)
	w := b.blocked(t, off, 1, "fair.lock", "f")
	v := c.blocked(t, off, 2, "fair.lock", "f")
	late := newAgent(t, other, name, "learns of it late")
	u := late.blocked(t, off, 3, "fair.lock", "f")
	late.stop(t)
	require.NoError(t, x.cmd.Process.Signal(syscall.SIGCONT))
	spoils.fails(t, syscall.ENOTRECOVERABLE)
	w.fails(t, syscall.ENOTRECOVERABLE)
	v.fails(t, syscall.ENOTRECOVERABLE)
	require.EqualValues(t, 1, c.do(t, "fair.recover", "f"))
	b.do(t, "fair.lock", "f")
	require.NoError(t, late.cmd.Process.Signal(syscall.SIGCONT))
	u.fails(t, syscall.ENOTRECOVERABLE)
}
