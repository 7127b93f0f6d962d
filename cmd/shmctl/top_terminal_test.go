//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/diagnose"
)

// terminal is a real terminal, provided by tmux, in which a command runs.
type terminal struct {
	t      *testing.T
	socket string
}

// newTerminal runs shmctl in a terminal. env has environment variables for shmctl.
func newTerminal(t *testing.T, env string, args ...string) *terminal {
	if _, err := exec.LookPath("tmux"); err != nil {
		require.Empty(t, os.Getenv("SHMSYNC_NEED_SHELLS"), err)
		t.Skip("needs tmux:", err)
	}
	self, err := os.Executable()
	require.NoError(t, err)
	x := &terminal{t, fmt.Sprintf("shmctl-test-%d-%x", os.Getpid(), rand.Uint32())}
	command := "exec env " + env + " SHMCTL_TEST_MAIN=1 " + diagnose.Quote(self)
	for _, arg := range args {
		command += " " + diagnose.Quote(arg)
	}
	x.tmux("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "20", command)
	t.Cleanup(func() { x.command("kill-server").Run() })
	return x
}

func (x *terminal) command(args ...string) *exec.Cmd {
	cmd := exec.Command("tmux", append([]string{"-L", x.socket}, args...)...)
	cmd.Env = append(os.Environ(), "TMUX=", "TERM=xterm")
	return cmd
}

func (x *terminal) tmux(args ...string) string {
	x.t.Helper()
	out, err := x.command(args...).CombinedOutput()
	require.NoError(x.t, err, "%v: %s", args, out)
	return string(out)
}

// shows waits until the screen contains a text. It returns the screen.
func (x *terminal) shows(text string) (screen string) {
	x.t.Helper()
	require.Eventually(x.t, func() bool {
		out, err := x.command("capture-pane", "-p").CombinedOutput()
		screen = string(out)
		return err == nil && strings.Contains(screen, text)
	}, limit, 20*time.Millisecond, "the screen does not show %q:\n%v", text, stringer{&screen})
	return screen
}

// In a terminal, top sorts, filters and pauses when the user presses keys. It follows the size of the screen, and
// ends when the user presses q.
func TestTopInTerminal(t *testing.T) {
	name := testArena(t)
	alice, bob := newAgent(t, name, "alice"), newAgent(t, name, "bob")
	for _, object := range []string{"ledger", "index"} {
		alice.does("lock mutex", object)
	}
	bob.begins("lock mutex", "ledger")
	awaitWaits(t, name, 1)
	x := newTerminal(t, "-u NO_COLOR", "top", "-d", "100ms", name)
	x.shows("sort: contention")
	x.shows("\nledger ")
	x.tmux("send-keys", "s")
	x.shows("sort: waits")
	x.tmux("send-keys", "/", "indq", "BSpace")
	x.shows("filter: ind_")
	x.tmux("send-keys", "Enter")
	x.shows("filter: ind  ")
	eventually(t, "the screen is drawn, and the filter lets pass index alone", func() bool {
		screen := x.tmux("capture-pane", "-p")
		return strings.Contains(screen, "\nindex ") && !strings.Contains(screen, "\nledger ")
	})
	x.tmux("send-keys", "Space")
	x.shows("PAUSED")
	alice.does("lock mutex", "industry")
	// Each key makes top draw the screen with the time of day. The loop ends after the time has changed twice, so after at
	// least a second. If top were not paused, it would have read the arena ten times in this second.
	clock := regexp.MustCompile(` \d\d:\d\d:\d\d `)
	for range 2 {
		before := clock.FindString(x.tmux("capture-pane", "-p"))
		eventually(t, "the time of day changes", func() bool {
			x.tmux("send-keys", "s")
			now := clock.FindString(x.tmux("capture-pane", "-p"))
			return now != "" && now != before
		})
	}
	x.shows("PAUSED")
	require.NotContains(t, x.tmux("capture-pane", "-p"), "industry")
	x.tmux("send-keys", "Space")
	x.shows("\nindustry ")

	x.tmux("resize-window", "-x", "40", "-y", "12")
	continued := regexp.MustCompile(`\n(/: )?filter, space: pause, q: quit\)`) // the place of the line break depends on the sort order
	eventually(t, "the first line continues on the second", func() bool {
		return continued.MatchString(x.tmux("capture-pane", "-p"))
	})

	alice.Stop(t)
	x.shows("STOPPED-HOLDER")
	eventually(t, "the finding is red", func() bool { return strings.Contains(x.tmux("capture-pane", "-p", "-e"), "\x1b[31m") })
	plain := newTerminal(t, "NO_COLOR=1", "top", "-d", "100ms", "--sort=name", "--filter=Mutex", name)
	plain.shows("STOPPED-HOLDER")
	require.NotContains(t, plain.tmux("capture-pane", "-p", "-e"), "\x1b[31m")
	alice.Cont(t)
	for _, x := range []*terminal{x, plain} {
		x.tmux("send-keys", "q")
		eventually(t, "top has ended", func() bool { return x.command("has-session").Run() != nil })
	}
}

// --sort and --filter also work without a terminal.
func TestTopSortsAndFilters(t *testing.T) {
	name := testArena(t)
	alice, bob := newAgent(t, name, "alice"), newAgent(t, name, "bob")
	for _, object := range []string{"b", "c", "a"} {
		alice.does("lock mutex", object)
	}
	bob.begins("lock mutex", "c")
	awaitWaits(t, name, 1)
	order := func(args ...string) (names string) {
		_, table, _ := strings.Cut(soon(t, exitOK, append([]string{"top", "-n", "1", name}, args...)...), "\n\n")
		for _, line := range strings.Split(strings.TrimSpace(table), "\n")[1:] {
			names += line[:1]
		}
		return names
	}
	require.Equal(t, "abc", order("--sort=name"))
	require.Equal(t, "c", order("--sort=waits")[:1])
	require.Equal(t, "c", order("--sort=longest")[:1])
	require.Equal(t, "b", order("--filter=b"))
	require.Len(t, order("--filter=Mutex"), 3)
}
