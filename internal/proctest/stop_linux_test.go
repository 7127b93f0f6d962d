package proctest

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func init() {
	Register("stopself", func(c *Child) {
		// A thread that sends SIGSTOP to itself stops at once. If the signal were sent to the process, another thread
		// might receive it so late that this thread ends the process first.
		runtime.LockOSThread()
		if err := unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP); err != nil {
			c.Fatal(err)
		}
		c.Ready()
	})
	Register("pid", func(c *Child) { c.Say(os.Getpid()) })
}

// taskStates returns the state letter of each thread of the process.
func taskStates(t *testing.T, pid int) (states []string) {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	require.NoError(t, err)
	for _, task := range tasks {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/stat", pid, task.Name()))
		require.NoError(t, err)
		_, after, _ := strings.Cut(string(stat), ") ")
		states = append(states, after[:1])
	}
	return states
}

func TestStopAndCont(t *testing.T) {
	p := Start(t, "converse", Params(2))
	p.Await(t)
	for i := 1; i <= 20; i++ {
		p.Stop(t)
		for _, state := range taskStates(t, p.Pid()) {
			require.Equal(t, "T", state)
		}
		p.Send(point{i, 0})
		p.Cont(t)
		var out point
		p.Recv(t, &out)
		require.Equal(t, 2*i, out.X)
	}
}

func TestAwaitStop(t *testing.T) {
	p := Start(t, "stopself")
	p.AwaitStop(t)
	p.Cont(t)
	p.Await(t)
	p.WaitExit(t)
}

func TestAwaitStopOfTheLiving(t *testing.T) {
	log := failure(t, func(tb testing.TB) {
		p := Start(tb, "idle")
		p.Await(tb)
		brief(p)
		p.AwaitStop(tb)
	})
	require.Contains(t, log, "did not stop within "+Scale(300*time.Millisecond).String())
	require.Regexp(t, "State [RSD] ", log) // any state except T; on a busy machine it may still be running
}

func TestAwaitStopOfTheDead(t *testing.T) {
	log := failure(t, func(tb testing.TB) {
		p := Start(tb, "exit", Params(0))
		p.AwaitStop(tb)
	})
	require.Contains(t, log, errEnded.Error())
}

// TestTimeoutOfStoppedChild checks that a stopped child is continued, and prints its stacks, when a wait for it times
// out.
func TestTimeoutOfStoppedChild(t *testing.T) {
	log := failure(t, func(tb testing.TB) {
		p := Start(tb, "idle")
		p.Await(tb)
		brief(p)
		p.Stop(tb)
		p.Wait(tb)
	})
	require.Contains(t, log, "State T (stopped)")
	require.Contains(t, log, "SIGQUIT: quit")
}

func TestAttr(t *testing.T) {
	attr := &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	NeedAttr(t, attr, "a user and a pid namespace", "pid")
	p := Start(t, "pid", Attr(attr))
	var pid int
	p.Recv(t, &pid)
	require.Equal(t, 1, pid)
	p.WaitExit(t)
}

// TestNeedAttr checks that NeedAttr skips a test whose processes cannot start with their attributes.
func TestNeedAttr(t *testing.T) {
	require.Empty(t, skipped(t, func(tb testing.TB) { NeedAttr(tb, &syscall.SysProcAttr{Setpgid: true}, "a process group") }))
	text := skipped(t, func(tb testing.TB) {
		NeedAttr(tb, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_FS}, "a mount namespace", "pid")
	})
	require.Regexp(t, "^needs to make a mount namespace: .", text)
}

// skipped runs f, and returns the reason with which f skips its test, or "" if f skips nothing.
func skipped(t *testing.T, f func(tb testing.TB)) string {
	t.Helper()
	tb := runFake(t, f)
	require.False(t, tb.Failed(), tb.output())
	require.Equal(t, tb.output() != "", tb.Skipped())
	return tb.output()
}
