//go:build crashpoint && linux

package arenakernel

import (
	"io/fs"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
)

// Of two processes that replace one file, the slower one leaves the new file alone.
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

// A file that takes the arena's path in the moment before the removal stays.
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
	a, err := Open(ta.name, nil) // so the removal of the new file is refused
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

// A joiner without byte locks does not get into an arena that is being removed.
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
	v.Recv(t, &ans) // the removal is refused if the joiner has ended the claim
	require.Equal(t, "there there", j.must(t, order{Do: "path"}).Text)
	j.close(t)
}

// If two claimants die one after the other, the next first knows whether the arena is new still.
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
