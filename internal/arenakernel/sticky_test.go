//go:build linux

package arenakernel

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/proctest"
)

func init() {
	proctest.Register("open/sticky", func(c *proctest.Child) {
		var path string
		c.Params(&path)
		if err := syscall.Setresuid(12345, 12345, 12345); err != nil {
			c.Fatal(err)
		}
		a, err := Open(path, &Options{Lifetime: LifetimeEphemeral})
		if err == nil {
			a.Close()
			c.Fatal("replaced a file that this user may not remove")
		}
		c.Say(err.Error())
	})
}

// TestEphemeralArenaOfAnotherUser: in a directory with the sticky bit, a process cannot replace an ephemeral arena of
// another user. The error says why.
func TestEphemeralArenaOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		proctest.Skip(t, "needs root: its process becomes another user", "open/sticky")
	}
	dir, err := os.MkdirTemp("/dev/shm", "sticky")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	a, err := Create(dir+"/jobs", &Options{Size: 2 << 20, MaxParticipants: 4, Mode: 0o666})
	require.NoError(t, err)
	require.NoError(t, a.Close())
	for mode, why := range map[uint32]string{
		0o1777: "the directory has the sticky bit, and the file belongs to uid 0: only that user may remove it",
		0o755:  "the removal needs write permission for the directory",
	} {
		require.NoError(t, unix.Chmod(dir, mode))
		p := proctest.Start(t, "open/sticky", proctest.Params(dir+"/jobs"))
		var text string
		p.Recv(t, &text)
		require.Contains(t, text, why)
		p.WaitExit(t)
	}
}
