//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

func init() {
	open := func(c *proctest.Child) (name string, a *arena.Arena, m *prims.RWMutex) {
		c.Params(&name)
		a, err := arena.Attach(name, &arena.Options{KernelIO: arena.KernelIOAsynchronous})
		if err != nil {
			c.Fatal(err)
		}
		if m, err = prims.OpenRWMutex(a, "m", &prims.RWMutexOptions{Policy: prims.PolicyRelease}); err != nil {
			c.Fatal(err)
		}
		return name, a, m
	}
	proctest.Register("rwmutex/lingering", func(c *proctest.Child) {
		name, a, m := open(c)
		m.Lock()
		for !a.Fenced() { // otherwise this process is not marked dead before it has ended
			<-after(time.Millisecond)
		}
		heir := exec.Command("sleep", "1000")
		var err error
		if heir.ExtraFiles, err = filesOf(name); err != nil {
			c.Fatal(err)
		}
		if err := heir.Start(); err != nil {
			c.Fatal(err)
		}
		c.Say(heir.Process.Pid)
		c.Await()
	})
	proctest.Register("rwmutex/awaits gone", func(c *proctest.Child) {
		_, _, m := open(c)
		go m.Lock()
		for !m.AwaitsGone() {
			<-after(time.Millisecond)
		}
		c.Say(true)
		c.Await()
	})
}

// TestRWMutexStoppedWriterThatAwaitsTheDead: a writer that waits until a dead holder is gone does not have the
// writers' mutex meanwhile. So if the process of the writer is stopped, other writers can go on as soon as the
// dead holder is gone.
func TestRWMutexStoppedWriterThatAwaitsTheDead(t *testing.T) {
	a := newArena(t, nil)
	m, err := prims.OpenRWMutex(a, "m", &prims.RWMutexOptions{Policy: prims.PolicyRelease})
	require.NoError(t, err)
	dump := proctest.Dump(func() string { return words(a) })
	dead := proctest.Start(t, "rwmutex/lingering", proctest.Params(nameOf(a)), dump)
	var heir int
	dead.Recv(t, &heir)
	t.Cleanup(func() { syscall.Kill(heir, syscall.SIGKILL) })
	dead.Signal(t, os.Kill)
	dead.WaitSignal(t, syscall.SIGKILL)
	describe := func() string { return fmt.Sprint(m, "\n", words(a)) }
	eventually(t, "the death is seen", describe, m.Kept)
	waits := proctest.Start(t, "rwmutex/awaits gone", proctest.Params(nameOf(a)), dump)
	var in bool
	waits.Recv(t, &in)
	waits.Stop(t)
	// The writer may have the mutex for a moment, before it finds that it has to wait.
	eventually(t, "it gives the writers' mutex back", describe, func() bool {
		if !m.WritersHeld() {
			return true
		}
		waits.Cont(t)
		<-after(5 * time.Millisecond)
		waits.Stop(t)
		return false
	})
	require.NoError(t, syscall.Kill(heir, syscall.SIGKILL))
	ctx, cancel := context.WithTimeout(t.Context(), timeout())
	defer cancel()
	require.NoError(t, m.LockContext(ctx), "beside a stopped waiter: %s", describe())
	m.Unlock()
	waits.Cont(t)
	waits.Kill(t)
}
