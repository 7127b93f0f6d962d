//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/shm"
)

// TestArenaOfAnotherLayout checks that ls shows the layout version of an arena that this shmctl cannot read, and that
// rm removes such an arena only if no process has it open.
func TestArenaOfAnotherLayout(t *testing.T) {
	name := testArena(t)
	f, err := os.OpenFile(filepath.Join(shm.Dir, name), os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	const layout = arenakernel.LayoutVersion - 1
	_, err = f.WriteAt(binary.LittleEndian.AppendUint32(nil, layout), 12)
	require.NoError(t, err)
	listed := func() arenaInfo {
		code, d := shmctlJSON(t, "ls")
		require.Contains(t, []int{exitOK, exitTrouble}, code) // other arenas of this host may be in trouble
		for _, a := range d.Arenas {
			if a.Name == name {
				return a
			}
		}
		t.Fatal("not listed")
		return arenaInfo{}
	}
	a := listed()
	require.EqualValues(t, layout, a.Layout)
	require.Equal(t, fmt.Sprintf("layout %d, this shmctl reads %d", layout, arenakernel.LayoutVersion), a.Health)
	_, out, _ := shmctl("ls")
	require.Regexp(t, name+` +1 MiB +- +none `, out)

	member, err := os.OpenFile(f.Name(), os.O_RDWR, 0)
	require.NoError(t, err)
	ok, err := shmsync.LockByte(member, 1) // as a participant locks its byte
	require.NoError(t, err)
	require.True(t, ok)
	_, out, _ = shmctl("ls")
	require.Regexp(t, name+` +1 MiB +- +some `, out)
	code, _, errs := shmctl("rm", name)
	require.Equal(t, exitRefused, code)
	require.Contains(t, errs, fmt.Sprintf("a process has it open, with layout %d", layout))
	require.NoError(t, member.Close())
	require.Contains(t, soon(t, exitOK, "rm", name), "removed")
	require.NoFileExists(t, f.Name())
}

// TestDeleteObject checks that delete refuses an object that a process has open or holds, and deletes any other object.
func TestDeleteObject(t *testing.T) {
	name := testArena(t)
	alice := newAgent(t, name, "alice")
	alice.does("lock mutex", "ledger")
	code, _, errs := shmctl("delete", name, "ledger")
	require.Equal(t, exitRefused, code)
	require.Contains(t, errs, "alice")
	alice.does("unlock mutex", "ledger")
	code, _, errs = shmctl("delete", name, "ledger")
	require.Equal(t, exitRefused, code)
	require.Contains(t, errs, "alice")
	alice.Kill(t)
	require.Contains(t, soon(t, exitOK, "delete", name, "ledger"), "deleted Mutex ledger, ")
	code, _, _ = shmctl("delete", name, "ledger")
	require.Equal(t, exitMissing, code)
}

func TestUsage(t *testing.T) {
	name := testArena(t)
	alice := newAgent(t, name, "alice")
	for _, n := range []string{"a", "b"} {
		alice.does("lock mutex", n)
	}
	alice.does("lock semaphore", "permits", 1)
	newAgent(t, name, "bob").does("rlock rw", "shared")
	alice.does("rlock rw", "shared")
	newAgent(t, name, "carol").begins("lock semaphore", "permits", 3) // her wait takes a wait node
	awaitWaits(t, name, 1)
	a, err := arena.Attach(name, nil)
	require.NoError(t, err)
	defer a.Close()
	_, err = a.Alloc(1000, 0)
	require.NoError(t, err)
	_, objects := shmctlJSON(t, "objects", name)
	want := map[string]usage{}
	for _, o := range objects.Objects {
		u := want[o.Type]
		u.Type, u.Objects, u.Bytes = o.Type, u.Objects+1, u.Bytes+o.Memory
		if o.Memory > u.Most {
			u.Most, u.Largest = o.Memory, o.Name
		}
		want[o.Type] = u
		require.Greater(t, o.Memory, o.Size, "%v has a header", o.Name)
	}
	require.Len(t, want, 3)
	require.EqualValues(t, 256+2*128, want["RWMutex"].Bytes, "two slots have used it")
	_, d := shmctlJSON(t, "du", name)
	sum := uint64(0)
	for i, u := range d.Usage {
		if u.Objects > 0 {
			require.Equal(t, want[u.Type], u)
		}
		require.True(t, i == 0 || d.Usage[i-1].Bytes >= u.Bytes)
		sum += u.Bytes
	}
	require.Equal(t, (*arenakernel.Arena)(a).Stats().BytesUsed, sum, "%+v", d.Usage)
	out := soon(t, exitOK, "du", name)
	require.Contains(t, out, "4 objects; ")
	require.Contains(t, out, "wait nodes")
	require.Contains(t, out, "blocks of Alloc")
}

func TestVersion(t *testing.T) {
	code, out, _ := shmctl("--version")
	require.Equal(t, exitOK, code)
	require.Regexp(t, `^shmctl \S+, commit \S+, memory layout 10\n$`, out)
}

// TestRecoverAll checks that recover --all makes every lock and key usable again that a death has left unusable. The
// locks of living processes do not change.
func TestRecoverAll(t *testing.T) {
	name := testArena(t)
	a, b := newAgent(t, name, "alice"), newAgent(t, name, "bob") // bob reaps
	locks := []string{"mutex", "fair", "cohort", "rw", "spin", "rwspin"}
	for _, lock := range locks {
		a.does("lock "+lock, lock+" 1")
	}
	a.does("lock multi", "keys", 7)
	a.does("lock multi", "keys", 9)
	b.does("lock mutex", "other")
	require.Contains(t, soon(t, exitOK, "recover", "--all", name), "no lock needs it")
	a.Kill(t)
	eventually(t, "reaped", func() bool {
		_, d := shmctlJSON(t, "ps", "--gone", name)
		return len(d.Gone) == 2 // alice, and the participant of the first recover --all
	})
	soon(t, exitTrouble, "waits", name)
	out := soon(t, exitOK, "recover", "--all", name)
	require.Equal(t, len(locks)+2, strings.Count(out, " can be locked again\n"), out)
	require.Contains(t, out, "keys (7) can")
	require.Contains(t, out, "keys (9) can")
	require.NotContains(t, out, "other")
	soon(t, exitOK, "waits", name)
	require.Contains(t, soon(t, exitOK, "recover", "--all", name), "no lock needs it")
	for _, args := range [][]string{{"recover", name}, {"recover", "--all", name, "keys"}, {"recover", "--all", "--key=7", name}} {
		code, _, _ := shmctl(args...)
		require.Equal(t, exitError, code, args)
	}
}

// TestRecoverAllGoesOnAfterAFailure checks that recover --all goes on with the remaining locks and keys after it has
// failed to recover one of them. It reports each failure, and ends with the status of a refusal.
func TestRecoverAllGoesOnAfterAFailure(t *testing.T) {
	name := testArena(t)
	alice, bob := newAgent(t, name, "alice"), newAgent(t, name, "bob") // bob reaps
	for _, lock := range []string{"rw first", "mutex second", "rw third", "mutex fourth"} {
		alice.does("lock "+strings.Fields(lock)[0], lock)
	}
	for _, key := range []int64{7, 8, 9} {
		alice.does("lock multi", "keys", key)
	}
	alice.Kill(t)
	eventually(t, "reaped", func() bool {
		_, d := shmctlJSON(t, "waits", name)
		return len(d.Findings) == 5
	})
	// The owner words of "rw first" and of one key now name bob as their dead holder. But bob lives, so a recovery waits
	// for the end of bob.
	replaceDead(t, name, "rw first", alice.name, bob.name)
	replaceDead(t, name, "keys", alice.name, bob.name)

	code, out, errs := shmctl("recover", "--all", "--wait=50ms", name)
	require.Equal(t, exitRefused, code, out+errs)
	require.ElementsMatch(t, []string{"mutex second can be locked again", "rw third can be locked again", "mutex fourth can be locked again",
		"keys (8) can be locked again", "keys (9) can be locked again"}, strings.Split(strings.TrimSpace(out), "\n"))
	require.Equal(t, []string{fmt.Sprintf("shmctl: a process has rw first: see shmctl show %s 'rw first'", name),
		fmt.Sprintf("a process has keys (7): see shmctl show %s keys", name), "not recovered: 2 of 7"}, strings.Split(strings.TrimSpace(errs), "\n"))

	code, d := shmctlJSON(t, "recover", "--all", "--wait=50ms", name)
	require.Equal(t, exitRefused, code)
	require.Empty(t, d.Done)
	require.Len(t, d.Failed, 2)
	require.Contains(t, d.Failed[0], "rw first")
}

// replaceDead changes the first word of an object that names a given participant as its dead holder. The parameter from
// is this participant, and the parameter to is the participant that the word names afterwards.
func replaceDead(t *testing.T, name, object, from, to string) {
	const ownerDead = 3 << 29
	ins, err := arenakernel.Inspect(name)
	require.NoError(t, err)
	defer ins.Close()
	i := slices.IndexFunc(ins.Objects(), func(o arenakernel.ObjectInfo) bool { return o.Name == object })
	require.GreaterOrEqual(t, i, 0)
	o := ins.Objects()[i]
	word := func(participant string) []byte {
		n, err := arenakernel.ParseParticipantID(participant)
		require.NoError(t, err)
		return binary.LittleEndian.AppendUint32(nil, ownerDead|uint32(n))
	}
	f, err := os.OpenFile(filepath.Join(shm.Dir, name), os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	b := make([]byte, uint64(o.Body)+o.Size-uint64(o.Offset))
	_, err = f.ReadAt(b, int64(o.Offset))
	require.NoError(t, err)
	at := bytes.Index(b, word(from))
	require.GreaterOrEqual(t, at, 0)
	_, err = f.WriteAt(word(to), int64(o.Offset)+int64(at))
	require.NoError(t, err)
}

// TestDeleteLeavesAnotherObjectAlone checks that delete leaves an object alone that was created at the same offset
// after the snapshot.
func TestDeleteLeavesAnotherObjectAlone(t *testing.T) {
	name := testArena(t)
	a, err := arena.Attach(name, nil)
	require.NoError(t, err)
	defer a.Close()
	src, err := open(name)
	require.NoError(t, err)
	defer src.Close()
	k := (*arenakernel.Arena)(a)
	create := func(object string) arenakernel.Object {
		o, created, err := k.OpenObject(arenakernel.ObjectSpec{Kind: arenakernel.KindValue, Version: 1, Name: object, Size: 8})
		require.NoError(t, err)
		require.True(t, created)
		k.CloseObject(o)
		return o
	}
	before := create("before")
	snap, err := src.again()
	require.NoError(t, err)
	found, err := find(snap, "before")
	require.NoError(t, err)
	require.NoError(t, a.Delete("before"))
	require.Equal(t, before.Offset, create("after").Offset)
	require.ErrorAs(t, deleteObject(a, found), &missing{})
	require.NoError(t, a.Delete("after"), "it is still there")
}
