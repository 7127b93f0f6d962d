//go:build linux

package arenakernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/shm"
)

func init() {
	// "path" returns the state of the arena's path, and the state that the metrics report.
	agentOrders["path"] = func(s *agent, o order, a *answer) error {
		a.Text = string(s.arena.PathState()) + " " + string(s.arena.Metrics().Path)
		return nil
	}
}

// TestMemberNoticesThatItsPathIsGone: a participant can find out that the file of its arena was
// removed, and later that another file is at the path.
func TestMemberNoticesThatItsPathIsGone(t *testing.T) {
	ta := newTestArena(t, 4)
	r := ta.join(t, "member")
	require.Equal(t, "there there", r.must(t, order{Do: "path"}).Text)
	i, err := Inspect(ta.name)
	require.NoError(t, err)
	defer i.Close()
	require.False(t, i.Removed())
	require.NoError(t, shm.Remove(ta.name))
	require.Equal(t, "removed removed", r.must(t, order{Do: "path"}).Text)
	require.True(t, i.Removed())
	a, err := Open(ta.name, &ta.opts)
	require.NoError(t, err)
	defer a.Close()
	require.Equal(t, PathThere, a.PathState())
	require.Equal(t, "replaced replaced", r.must(t, order{Do: "path"}).Text)
}

// TestMemfdHasNoPath: an arena in a memfd has no path, so it is never reported as removed.
func TestMemfdHasNoPath(t *testing.T) {
	a := newMemfdArena(t, 4)
	require.Equal(t, PathNone, a.PathState())
	f, err := a.Segment().Reopen()
	require.NoError(t, err)
	i, err := InspectFile(f)
	require.NoError(t, err)
	defer i.Close()
	require.False(t, i.Removed())
}

// TestRelativePathOutlivesChdir: a process opens an arena by a relative path, and then changes its working
// directory, as a daemon does. The path still counts as the path of the arena, and the last Close removes
// the file of an ephemeral arena.
func TestRelativePathOutlivesChdir(t *testing.T) {
	dir := t.TempDir()
	for _, lifetime := range []Lifetime{LifetimeDurable, LifetimeDurable, LifetimeEphemeral} { // the second Open finds the file
		t.Chdir(dir)
		a, err := Open("./jobs", &Options{Size: 2 << 20, MaxParticipants: 4, Lifetime: lifetime})
		require.NoError(t, err)
		t.Chdir("/")
		require.Equal(t, PathThere, a.PathState())
		require.False(t, a.moved(), "OnDetached would be called")
		require.NoError(t, a.Close())
		if lifetime == LifetimeDurable {
			require.FileExists(t, dir+"/jobs")
		} else {
			require.NoFileExists(t, dir+"/jobs")
		}
	}
}
