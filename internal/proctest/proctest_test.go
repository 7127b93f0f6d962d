package proctest

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type point struct{ X, Y int }

func init() {
	Register("converse", func(c *Child) {
		var by int
		c.Params(&by)
		c.Ready()
		for {
			var in point
			c.Recv(&in)
			if in == (point{}) {
				return
			}
			c.Say(point{in.X * by, in.Y * by})
		}
	})
	Register("idle", idle)
	Register("file", func(c *Child) {
		b, err := io.ReadAll(c.File(1))
		if err != nil {
			c.Fatal(err)
		}
		c.Say(string(b))
	})
	Register("environ", func(c *Child) {
		fmt.Println("printed")
		c.Say([]string{os.Getenv("GIVEN"), os.Getenv("WRAPPED"), os.Getenv(envHelper)})
	})
	Register("exit", func(c *Child) {
		var code int
		c.Params(&code)
		c.Ready()
		os.Exit(code)
	})
	Register("fatal", func(c *Child) { c.Fatalf("no %s", "luck") })
	Register("panic", func(*Child) { panic("out of order") })
	Register("say", func(c *Child) { c.Say(1); c.Say(2) })
}

// idle waits for the parent. A test finds its name in the stacks of the child.
//
//go:noinline
func idle(c *Child) {
	c.Ready()
	c.Await()
}

func TestConversation(t *testing.T) {
	p := Start(t, "converse", Params(10))
	p.Await(t)
	for i := 1; i <= 3; i++ {
		p.Send(point{i, -i})
		var out point
		p.Recv(t, &out)
		require.Equal(t, point{10 * i, -10 * i}, out)
	}
	p.Send(point{})
	p.WaitExit(t)
}

// TestSendAhead checks that a child queues lines that its helper has not asked for yet, and keeps their order.
func TestSendAhead(t *testing.T) {
	p := Start(t, "converse", Params(1))
	const n = 200
	for i := 1; i <= n; i++ {
		p.Send(point{i, 0})
	}
	p.Await(t)
	for i := 1; i <= n; i++ {
		var out point
		p.Recv(t, &out)
		require.Equal(t, i, out.X)
	}
}

func TestFiles(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(name, []byte("content"), 0o600))
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()

	p := Start(t, "file", Files(null, f))
	var s string
	p.Recv(t, &s)
	require.Equal(t, "content", s)
	p.WaitExit(t)
}

func TestEnvironment(t *testing.T) {
	t.Setenv("SHMSYNC_EXEC_WRAP", "env WRAPPED=yes "+os.Getenv("SHMSYNC_EXEC_WRAP"))
	p := Start(t, "environ", Env("GIVEN=too"))
	var env []string
	p.Recv(t, &env)
	require.Equal(t, []string{"too", "yes", ""}, env)
	e := p.Wait(t)
	require.True(t, e.OK())
	require.Equal(t, "printed\n", e.Stderr, "prints belong to the standard error")
}

func TestKill(t *testing.T) {
	p := Start(t, "idle")
	p.Await(t)
	e := p.Kill(t)
	require.Equal(t, Exit{Code: -1, Signal: syscall.SIGKILL}, e)
	p.WaitSignal(t, syscall.SIGKILL)
	require.Equal(t, e, p.Kill(t), "killing twice is killing once")
	select {
	case <-p.Done():
	default:
		t.Fatal("Done is open after Kill")
	}
}

func TestExitStatus(t *testing.T) {
	for _, code := range []int{0, 7} {
		p := Start(t, "exit", Params(code))
		p.Await(t)
		e := p.Wait(t)
		require.Equal(t, Exit{Code: code}, e)
	}
}

// TestRecvAfterExit checks that the lines that a child has sent are not lost when it ends.
func TestRecvAfterExit(t *testing.T) {
	p := Start(t, "say")
	p.WaitExit(t)
	for want := 1; want <= 2; want++ {
		var got int
		p.Recv(t, &got)
		require.Equal(t, want, got)
	}
}

// TestOrphanExits checks that a child ends when its input ends, as it does when the parent has ended.
func TestOrphanExits(t *testing.T) {
	p := Start(t, "converse", Params(1))
	p.Await(t)
	require.NoError(t, p.in.Close())
	require.Equal(t, exitOrphan, p.Wait(t).Code)
}

func TestCleanupKills(t *testing.T) {
	var p *Proc
	tb := runFake(t, func(tb testing.TB) {
		p = Start(tb, "idle")
		p.Await(tb)
	})
	require.False(t, tb.Failed(), tb.output())
	require.Equal(t, syscall.SIGKILL, p.exit.Signal)
}

func TestUnusedHelperFailsTheRun(t *testing.T) {
	const never, leavesOut = "never/started", "leaves out"
	switch os.Getenv(envUnused) {
	case "":
	case leavesOut:
		LeaveOut(t, never)
		return
	default:
		return
	}
	if testing.Short() {
		t.Skip("needs a run without -short: it runs the other tests again")
	}
	for _, run := range []struct {
		says, arg string
		passes    bool
	}{
		{says: "1"},
		{says: "1", arg: "-test.run=TestKill", passes: true},
		{says: leavesOut, passes: true},
	} {
		cmd, err := selfCommand()
		require.NoError(t, err)
		if run.arg != "" {
			cmd.Args = append(cmd.Args, run.arg)
		}
		cmd.Env = append(os.Environ(), envUnused+"="+run.says)
		cmd.WaitDelay = time.Minute
		out, err := cmd.CombinedOutput()
		if run.passes {
			require.NoError(t, err, "%s", out)
			continue
		}
		require.Error(t, err)
		require.Contains(t, string(out), "PASS\nproctest: helpers that no test starts: "+never+"\n")
	}
}

func TestRegisterRefuses(t *testing.T) {
	require.Panics(t, func() { Register("idle", nil) }, "duplicate")
	require.Panics(t, func() { Register("", nil) }, "no name")
}
