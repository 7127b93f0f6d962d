//go:build crashpoint && linux

package arenakernel

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
)

// TestStopWhileAFurtherNameIsRemoved checks what an Open does while another process removes a second name of the file
// of a removed arena. The other process opened the arena by the second name, and is stopped or killed during the
// removal. After a death, the next Open by the name makes a new arena. While the process is stopped, an Open fails if
// the name still exists, and otherwise makes a new arena. The stopped process joins the new arena when it continues.
func TestStopWhileAFurtherNameIsRemoved(t *testing.T) {
	for _, point := range []string{"arena.remove.checked", "arena.remove.renamed"} {
		for _, dies := range []bool{false, true} {
			t.Run(map[bool]string{false: "stop/", true: "death/"}[dies]+point, func(t *testing.T) {
				ta := newTestArena(t, 4)
				dir := t.TempDir()
				opts := &Options{Size: 2 << 20, MaxParticipants: 4, Lifetime: LifetimeEphemeral}
				further := dir + "/further"
				a, err := Open(dir+"/jobs", opts)
				require.NoError(t, err)
				require.NoError(t, os.Link(dir+"/jobs", further))
				require.NoError(t, a.Close())
				v := ta.start(t)
				do := order{Do: "open", Arena: further, Opts: opts}
				if dies {
					v.must(t, order{Do: "arm", Text: point})
					v.die(do)
					v.WaitSignal(t, unix.SIGKILL)
				} else {
					v.must(t, order{Do: "arm to stop", Text: point})
					v.Send(do)
					v.AwaitStop(t)
				}
				goesOn := func() {
					var ans answer
					v.Cont(t)
					v.Recv(t, &ans)
					require.Empty(t, ans.Err)
				}
				if !dies && point == "arena.remove.checked" {
					_, err = Open(further, opts)
					require.ErrorIs(t, err, shmsync.ErrIncompatible)
					goesOn()
				}
				b, err := Open(further, opts)
				require.NoError(t, err)
				require.Equal(t, PathThere, b.PathState())
				if !dies && point == "arena.remove.renamed" {
					goesOn()
				}
				if !dies {
					in := 0
					for range b.Participants() {
						in++
					}
					require.Equal(t, 2, in, "both are in the new arena")
					v.close(t)
				}
				require.NoError(t, b.Close())
				left, err := filepath.Glob(dir + "/.*")
				require.NoError(t, err)
				require.Empty(t, left, "private names")
				require.NoFileExists(t, further)
			})
		}
	}
}
