package park

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/proctest"
)

// TestWaitsAfterAFilterForbidsWaitV checks that a wait with a context parks if the program has installed a filter that
// forbids futex_waitv after it opened the arena. The wait must not call futex_waitv again and again. A process cannot
// remove its filter, so each case runs in a process of its own.
func TestWaitsAfterAFilterForbidsWaitV(t *testing.T) {
	const chosen = "SHMSYNC_TEST_FILTER"
	if os.Getenv("SHMSYNC_EXEC_WRAP") != "" {
		t.Skip("needs seccomp: SHMSYNC_EXEC_WRAP is set, and an emulator has none")
	}
	cases := map[string]func(*testing.T){"queue": queueAfterAFilter, "wait node": waitNodeAfterAFilter}
	if f := cases[os.Getenv(chosen)]; f != nil {
		f(t)
		return
	}
	for name := range cases {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestWaitsAfterAFilterForbidsWaitV$", "-test.v", "-test.timeout=1m")
			cmd.Env = append(os.Environ(), chosen+"="+name)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			if bytes.Contains(out, []byte("--- SKIP")) {
				t.Skipf("needs futex_waitv and seccomp, and the process with the filter was skipped:\n%s", out)
			}
		})
	}
}

// forbidWaitV makes the kernel refuse futex_waitv to this process from now on.
func forbidWaitV(t *testing.T) {
	t.Helper()
	if !shmsync.FeatureWaitV.Have() {
		t.Skip("needs futex_waitv")
	}
	err := proctest.Filter([]unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_FUTEX_WAITV, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	})
	if err != nil {
		t.Skip("needs seccomp: " + err.Error())
	}
}

func queueAfterAFilter(t *testing.T) {
	b := newNodePool(t)
	p := b.place(b.object())
	forbidWaitV(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	require.True(t, p.Enter())
	go func() {
		defer close(done)
		defer p.Exit()
		c := CancelBy(ctx)
		defer c.Stop()
		for p.Sleep(uint32(p.wakeWord.Announce()), SleepSpec{}, &c) != Canceled {
		}
	}()
	until(t, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.count == 1 })
	require.ErrorIs(t, shmsync.FeatureWaitV.Check(), shmsync.ErrNotSupported)
	cancel()
	p.await("the end of the context", done)
}

func waitNodeAfterAFilter(t *testing.T) {
	b := newNodePool(t)
	o := b.object()
	p := b.place(o)
	s := b.waitNode(o, 1)
	forbidWaitV(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := p.sleeps(s, ctx)
	p.comes(s, arenakernel.NodeParked)
	require.ErrorIs(t, shmsync.FeatureWaitV.Check(), shmsync.ErrNotSupported)
	cancel()
	require.Equal(t, Canceled, <-done)
}
