//go:build crashpoint && linux

package arenakernel

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

// TestRecreateRemovesOnlyTheFileItJudged: two processes replace the same file. The slower process must
// not remove the new file.
func TestRecreateRemovesOnlyTheFileItJudged(t *testing.T) {
	ta := newTestArena(t, 4)
	ta.join(t, "old").close(t)
	v := ta.start(t)
	v.must(t, order{Do: "arm to stop", Text: "arena.remove.judged"})
	ta.opts.Size, ta.opts.Recreate = 4<<20, RecreateIncompatible
	v.Send(order{Do: "open", Arena: ta.name, Opts: &ta.opts})
	v.AwaitStop(t)
	n := ta.join(t, "new")
	n.must(t, order{Do: "count"})
	n.close(t)
	before, err := os.Stat(ta.path())
	require.NoError(t, err)
	v.Cont(t)
	var ans answer
	v.Recv(t, &ans)
	require.Empty(t, ans.Err)
	after, err := os.Stat(ta.path())
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "the new file was removed")
	require.EqualValues(t, 2, v.must(t, order{Do: "count"}).N)
	v.close(t)
}

// TestRemoveLeavesAFileThatTookThePath: another file takes the arena's path just before the removal.
// The removal leaves that file in place.
func TestRemoveLeavesAFileThatTookThePath(t *testing.T) {
	ta, other := newTestArena(t, 4), newTestArena(t, 4)
	ta.join(t, "old").close(t)
	other.join(t, "other").close(t)
	want, err := os.Stat(other.path())
	require.NoError(t, err)
	v := ta.start(t)
	v.must(t, order{Do: "arm to stop", Text: "arena.remove.checked"})
	v.Send(order{Do: "remove", Arena: ta.name})
	v.AwaitStop(t)
	require.NoError(t, os.Rename(other.path(), ta.path()))
	a, err := Open(ta.name, nil) // makes the removal of the new file fail
	require.NoError(t, err)
	v.Cont(t)
	var ans answer
	v.Recv(t, &ans)
	require.Contains(t, ans.Err, "is in")
	got, err := os.Stat(ta.path())
	require.NoError(t, err)
	require.True(t, os.SameFile(want, got))
	require.NoError(t, a.Close())
	require.NoError(t, Remove(ta.name))
	require.ErrorIs(t, Remove(ta.name), fs.ErrNotExist)
}

// TestJoinerWithoutByteLocksMeetsARemoval: a process without byte locks opens an arena that is being
// removed. It must not end up in the removed arena.
func TestJoinerWithoutByteLocksMeetsARemoval(t *testing.T) {
	if !shmsync.FeatureRobustList.Have() {
		t.Skip("needs robust lists to notice a death without byte locks")
	}
	ta := newTestArena(t, 4)
	ta.join(t, "old").close(t)
	v := ta.start(t)
	v.must(t, order{Do: "arm to stop", Text: "arena.remove.checked"})
	v.Send(order{Do: "remove", Arena: ta.name})
	v.AwaitStop(t)
	j := ta.start(t, without("ofd"))
	j.Send(order{Do: "open", Arena: ta.name, Opts: &ta.opts})
	a, err := peek(ta.name)
	require.NoError(t, err)
	pollUntil(func() bool {
		a, err = peek(ta.name)
		return err == nil && a.slotState(1).phase() == phaseLive
	})
	v.Cont(t)
	var ans answer
	j.Recv(t, &ans)
	require.Empty(t, ans.Err)
	v.Recv(t, &ans) // if the joiner has ended the claim, the removal is refused
	require.Equal(t, "there there", j.must(t, order{Do: "path"}).Text)
	j.close(t)
}

// TestArenaIsNotNewAfterTheDeathOfAFirst: two processes claim the epoch and die, one after the other.
// The second may die while it records the death of the first. The next claimant still learns whether
// the arena is new.
func TestArenaIsNotNewAfterTheDeathOfAFirst(t *testing.T) {
	for _, c := range []struct {
		point    string
		replaced bool
	}{{"arena.gate.begun", true}, {"arena.gate.claiming", false}} {
		t.Run(c.point, func(t *testing.T) {
			ta := newTestArena(t, 4)
			ta.opts.Lifetime = LifetimeEphemeral
			for _, point := range []string{c.point, "arena.gate.claiming"} {
				v := ta.start(t)
				v.must(t, order{Do: "arm", Text: point})
				v.die(order{Do: "open", Arena: ta.name, Opts: &ta.opts})
				v.WaitSignal(t, unix.SIGKILL)
			}
			ta.peek(t).u64(hdrDeathRecordsTotal).Add(1)
			f, err := os.Open(ta.path())
			require.NoError(t, err)
			defer f.Close()
			a, err := Open(ta.name, &ta.opts)
			require.NoError(t, err)
			require.NotEqual(t, c.replaced, sameFile(f, a.seg.File()))
			require.NoError(t, a.Close())
		})
	}
}

// remover starts a process that can remove an arena. If renames is false, the process cannot use RENAME_NOREPLACE.
func remover(t *testing.T, ta *testArena, renames bool) *remote {
	v := ta.start(t)
	if !renames {
		v.must(t, order{Do: "take renameat2 away"})
	}
	return v
}

// privateName returns the private name that the file of the arena has while it is removed.
func privateName(t *testing.T, ta *testArena) string {
	st, err := os.Stat(ta.path())
	require.NoError(t, err)
	return filepath.Join(filepath.Dir(ta.path()), fmt.Sprint(removedPrefix(ta.path()), inode(st), removedSuffix))
}

// TestRemoveReplacesNoForeignFile: a file of another program has the private name that the removal
// needs. The removal does not replace the file, and its error names the file.
func TestRemoveReplacesNoForeignFile(t *testing.T) {
	for _, renames := range []bool{true, false} {
		ta := newTestArena(t, 4)
		ta.join(t, "old").close(t)
		private := privateName(t, ta)
		require.NoError(t, os.WriteFile(private, []byte("mine"), 0o600))
		t.Cleanup(func() { os.Remove(private) })
		v := remover(t, ta, renames)
		ans := v.try(t, order{Do: "remove", Arena: ta.name})
		require.Contains(t, ans.Err, "another program has a file at "+strconv.Quote(private))
		require.Contains(t, ans.Is, "exists")
		b, err := os.ReadFile(private)
		require.NoError(t, err)
		require.Equal(t, "mine", string(b))
		require.FileExists(t, ta.path())
		ta.join(t, "goes on").close(t)
		require.NoError(t, os.Remove(private))
		v.must(t, order{Do: "remove", Arena: ta.name})
		require.NoFileExists(t, ta.path())
	}
}

// TestRemoveAfterADeadRemover checks that a file can be removed after a process died while it removed
// the file. At the private name, the dead process has left a hard link to the file, or the symbolic
// link that it creates on systems where rename always replaces.
func TestRemoveAfterADeadRemover(t *testing.T) {
	for _, renames := range []bool{true, false} {
		ta := newTestArena(t, 4)
		ta.join(t, "old").close(t)
		private := privateName(t, ta)
		require.NoError(t, os.Link(ta.path(), private))
		remover(t, ta, renames).must(t, order{Do: "remove", Arena: ta.name})
		require.NoFileExists(t, ta.path())
		require.NoFileExists(t, private)

		ta.join(t, "old").close(t)
		private = privateName(t, ta)
		v := remover(t, ta, false)
		v.must(t, order{Do: "arm", Text: "arena.remove.placed"})
		v.die(order{Do: "remove", Arena: ta.name})
		v.WaitSignal(t, unix.SIGKILL)
		_, err := os.Readlink(private)
		require.NoError(t, err)
		ta.join(t, "goes on").close(t)
		remover(t, ta, renames).must(t, order{Do: "remove", Arena: ta.name})
		require.NoFileExists(t, ta.path())
		_, err = os.Lstat(private)
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
}

// TestRemoveByPlaceholderLeavesAFileThatTookThePath: RENAME_NOREPLACE is not available, and another
// file takes the arena's path just before the removal. The removal leaves that file in place.
func TestRemoveByPlaceholderLeavesAFileThatTookThePath(t *testing.T) {
	ta, other := newTestArena(t, 4), newTestArena(t, 4)
	ta.join(t, "old").close(t)
	other.join(t, "other").close(t)
	private := privateName(t, ta)
	want, err := os.Stat(other.path())
	require.NoError(t, err)
	v := remover(t, ta, false)
	v.must(t, order{Do: "arm to stop", Text: "arena.remove.placed"})
	v.Send(order{Do: "remove", Arena: ta.name})
	v.AwaitStop(t)
	require.NoError(t, os.Rename(other.path(), ta.path()))
	a, err := Open(ta.name, nil) // makes the removal of the new file fail
	require.NoError(t, err)
	v.Cont(t)
	var ans answer
	v.Recv(t, &ans)
	require.Contains(t, ans.Err, "is in")
	got, err := os.Stat(ta.path())
	require.NoError(t, err)
	require.True(t, os.SameFile(want, got))
	_, err = os.Lstat(private)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, a.Close())
}

// TestRemoveOfAPathThatKeepsChanging: a peer puts another arena at the path during each attempt to remove the file. The
// removal gives up.
func TestRemoveOfAPathThatKeepsChanging(t *testing.T) {
	ta, other := newTestArena(t, 4), newTestArena(t, 4)
	ta.join(t, "one").close(t)
	other.join(t, "two").close(t)
	before := pauseRemoval
	t.Cleanup(func() { pauseRemoval = before })
	pauses := 0
	pauseRemoval = func(time.Duration) {
		if pauses++; pauses > 2*maxMoves {
			panic("the removal does not give up")
		}
	}
	defer crashpoint.Disarm()
	var exchange func()
	exchange = func() {
		aside := ta.path() + ".aside"
		require.NoError(t, os.Rename(ta.path(), aside))
		require.NoError(t, os.Rename(other.path(), ta.path()))
		require.NoError(t, os.Rename(aside, other.path()))
		crashpoint.ArmFunc("arena.remove.checked", 1, exchange)
	}
	crashpoint.ArmFunc("arena.remove.checked", 1, exchange)
	err := Remove(ta.name)
	require.ErrorIs(t, err, syscall.EBUSY)
	require.ErrorContains(t, err, "leads to another file each time")
	crashpoint.Disarm()
	require.NoError(t, Remove(ta.name))
	require.NoError(t, Remove(other.name))
}

// TestLastCloseLeavesADirectoryThatTookThePath: another program renames the file of an arena and makes a directory at the
// path, before or during the removal by the last Close. The removal leaves the directory in place, and is no failure.
func TestLastCloseLeavesADirectoryThatTookThePath(t *testing.T) {
	for _, point := range []string{"", "arena.remove.checked", "arena.remove.placed"} {
		t.Run(point, func(t *testing.T) {
			ta := newTestArena(t, 4)
			ta.join(t, "one").close(t)
			own, err := os.Stat(ta.path())
			require.NoError(t, err)
			swap := func() {
				require.NoError(t, os.Rename(ta.path(), ta.path()+".aside"))
				require.NoError(t, os.Mkdir(ta.path(), 0o700))
			}
			t.Cleanup(func() { os.Remove(ta.path() + ".aside") })
			if point == "" {
				swap()
			} else {
				before := renameat2
				t.Cleanup(func() { renameat2 = before })
				renameat2 = func(int, string, int, string, uint) error { return unix.EINVAL }
				defer crashpoint.Disarm()
				crashpoint.ArmFunc(point, 1, swap)
			}
			require.NoError(t, removeUnused(ta.path(), own, nil))
			require.DirExists(t, ta.path())
			require.NoError(t, os.Remove(ta.path()))
		})
	}
}

// sameFile reports whether two open files are the same file.
func sameFile(f, g *os.File) bool {
	one, err := f.Stat()
	if err != nil {
		return false
	}
	two, err := g.Stat()
	return err == nil && os.SameFile(one, two)
}
