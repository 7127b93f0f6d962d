//go:build linux

package prims_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

func init() {
	proctest.Register("mutex/lingering", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		// With asynchronous I/O, this process counts as gone only when its byte lock is free. Its child process
		// inherits the byte lock. So no other process gets the data before the child has ended.
		a, err := arena.Attach(name, &arena.Options{KernelIO: arena.KernelIOAsynchronous})
		if err != nil {
			c.Fatal(err)
		}
		m, err := prims.OpenMutex(a, "m", nil)
		if err != nil {
			c.Fatal(err)
		}
		m.Lock()
		for !a.Fenced() { // so that other processes see the death before the process is gone
			<-after(time.Millisecond)
		}
		heir := exec.Command("sleep", "1000")
		if heir.ExtraFiles, err = filesOf(name); err != nil {
			c.Fatal(err)
		}
		if err := heir.Start(); err != nil {
			c.Fatal(err)
		}
		c.Say(heir.Process.Pid)
		c.Await()
	})
}

// filesOf returns the files that this process has open on an arena.
func filesOf(name string) (files []*os.File, err error) {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	for _, e := range fds {
		if to, _ := os.Readlink("/proc/self/fd/" + e.Name()); strings.Contains(to, name) {
			fd, err := strconv.Atoi(e.Name())
			if err != nil {
				return nil, err
			}
			files = append(files, os.NewFile(uintptr(fd), to))
		}
	}
	return files, nil
}

// TestMutexHandsOverToWhoWaitsForTheDead: a goroutine that waits until a dead owner is gone may be
// granted the lock, like any other waiter. It must notice the grant and end the handover. Otherwise
// every later handover would fail.
func TestMutexHandsOverToWhoWaitsForTheDead(t *testing.T) {
	a := newArena(t, nil)
	m, err := prims.OpenMutex(a, "m", &prims.MutexOptions{Repair: func() error { return nil }})
	require.NoError(t, err)
	v := proctest.Start(t, "mutex/lingering", proctest.Params(nameOf(a)), proctest.Dump(func() string { return words(a) }))
	var heir int
	v.Recv(t, &heir)
	t.Cleanup(func() { syscall.Kill(heir, syscall.SIGKILL) })
	const waiters = 32
	var all sync.WaitGroup
	for range waiters {
		all.Go(func() {
			m.NextIsLocal()
			m.Lock()
			m.NextIsLocal()
			m.Unlock()
		})
	}
	defer all.Wait()
	describe := func() string { return fmt.Sprint(m, ", parked ", m.Parked(), ", granted ", m.Granted()) }
	eventually(t, "most of them park", describe, func() bool { return m.Parked() > waiters/2 })
	v.Signal(t, os.Kill)
	v.WaitSignal(t, syscall.SIGKILL)
	died := func() bool { return errors.Is(m.State().Err, shmsync.ErrOwnerDead) }
	eventually(t, "the death is seen", describe, died)
	eventually(t, "they wait for its end", describe, func() bool { return m.Parked() > waiters/2 })
	require.NoError(t, syscall.Kill(heir, syscall.SIGKILL))
	all.Wait()
	require.Zero(t, m.Granted(), describe())
}
