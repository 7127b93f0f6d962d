//go:build linux

package stopstorm

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/proctest"
)

// TestThreadState checks that a thread that spins can run and gets CPU time, and that a thread that reads from an empty
// pipe cannot run.
func TestThreadState(t *testing.T) {
	runtime.LockOSThread() // otherwise this goroutine may change to another thread after Gettid
	defer runtime.UnlockOSThread()
	canRun, ran, err := threadState(os.Getpid(), uint32(unix.Gettid()))
	require.NoError(t, err)
	require.True(t, canRun)
	require.Positive(t, ran)

	var ends [2]int
	require.NoError(t, unix.Pipe(ends[:]))
	tid := make(chan uint32)
	done := make(chan struct{})
	onOtherThread(func() {
		tid <- uint32(unix.Gettid())
		unix.Read(ends[0], make([]byte, 1))
		close(done)
	})
	reader := <-tid
	require.Eventually(t, func() bool {
		canRun, _, err = threadState(os.Getpid(), reader)
		return err == nil && !canRun
	}, proctest.Scale(30*time.Second), time.Millisecond)
	unix.Close(ends[1])
	<-done
	unix.Close(ends[0])

	_, _, err = threadState(os.Getpid(), 1<<30)
	require.Error(t, err)
}

// TestCPUWait checks that only time in which a thread could run, but did not run, counts as waiting.
func TestCPUWait(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var c cpuWait
	c.sample(os.Getpid(), uint32(unix.Gettid()), time.Now())
	require.Zero(t, c.waited, "the first sample has no earlier one")
	c = cpuWait{at: time.Now().Add(-time.Hour), ran: 0}
	_, before, err := threadState(os.Getpid(), uint32(unix.Gettid()))
	require.NoError(t, err)
	c.ran = before
	c.sample(os.Getpid(), uint32(unix.Gettid()), c.at.Add(time.Hour))
	require.Greater(t, c.waited, 59*time.Minute)
}
