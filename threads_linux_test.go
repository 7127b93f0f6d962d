package shmsync

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestDetachedWalkThatMissesThreads: a walk through the threads of an ending process may stop
// before the last thread. The threads that the walk missed may still have memory.
func TestDetachedWalkThatMissesThreads(t *testing.T) {
	for _, c := range []struct {
		first, second []int
		count         int
		all           bool
	}{
		{[]int{7}, []int{7}, 1, true},
		{[]int{7, 8, 9}, []int{7}, 1, true},        // two threads have ended
		{[]int{7, 8, 9}, []int{7, 9}, 2, true},     // one thread has ended
		{[]int{7}, []int{7, 8}, 2, false},          // the first walk missed 8
		{[]int{7, 8}, []int{7, 9}, 2, false},       // 8 has ended, and the first walk missed 9
		{[]int{7, 8}, []int{7}, 2, false},          // the second walk stopped early
		{[]int{7, 8}, []int{7}, 3, false},          // both walks stopped early
		{[]int{7, 8, 8}, []int{7, 8, 8}, 3, false}, // both walks returned 8 twice, and missed 9
		{nil, []int{7}, 1, false},
	} {
		require.Equal(t, c.all, missedNone(c.first, c.second, c.count), "%v, %v of %d", c.first, c.second, c.count)
	}
}

// TestDetachedOfTheLiving: a living process is not detached, whatever the arguments are.
func TestDetachedOfTheLiving(t *testing.T) {
	if err := FeatureThreads.Check(); err != nil {
		t.Skipf("needs /proc/PID/task: %v", err)
	}
	d, err := openTasks("self")
	require.NoError(t, err)
	defer d.close()
	stat, err := os.Open("/proc/self/stat")
	require.NoError(t, err)
	defer stat.Close()
	_, start, _, ok := d.stat(int(stat.Fd()))
	require.True(t, ok)
	require.False(t, Detached(os.Getpid(), start))
	for _, pid := range []int{0, -1, 1, os.Getppid(), 1 << 30} {
		require.False(t, Detached(pid, start), pid)
	}
}

// TestOnlyPID checks that onlyPID accepts a /proc/self/status only if it lists the expected PID, and
// no other.
func TestOnlyPID(t *testing.T) {
	for status, own := range map[string]bool{
		"Name:\tx\nNSpid:\t12\nNSpgid:\t12\n": true,
		"NSpid:\t12":                          true,
		"Name:\tx\nNSpid:\t4711\t12\n":        false, // the pid in an outer namespace
		"NSpid:\t13\n":                        false,
		"NSpid:\n":                            false,
		"Name:\tNSpid:\n":                     false,
		"Pid:\t12\n":                          false, // before Linux 4.1
		"":                                    false,
	} {
		require.Equal(t, own, onlyPID([]byte(status), "12"), "%q", status)
	}
}

// TestWalkFindsEveryThread: a walk finds as many threads as the kernel counts, also if the kernel needs several calls
// to list them.
func TestWalkFindsEveryThread(t *testing.T) {
	if err := FeatureThreads.Check(); err != nil {
		t.Skipf("needs /proc/PID/task: %v", err)
	}
	d, err := openTasks("self")
	require.NoError(t, err)
	defer d.close()
	const many = 300 // each takes at least 24 bytes of the buffer
	require.Greater(t, many*24, len(d.buf))
	end, ready := make(chan struct{}), make(chan struct{}, many)
	defer close(end)
	for range many {
		go func() {
			runtime.LockOSThread() // the thread ends with the goroutine
			ready <- struct{}{}
			<-end
		}()
	}
	for range many {
		<-ready
	}
	stat, err := os.Open("/proc/self/stat")
	require.NoError(t, err)
	defer stat.Close()
	for tries := 1; ; tries++ {
		before, _, size, ok := d.stat(int(stat.Fd()))
		require.True(t, ok)
		_, err = unix.Seek(d.fd, 0, 0)
		require.NoError(t, err)
		require.NotZero(t, size)
		threads, ok := d.walk(nil)
		require.True(t, ok)
		// The Go runtime may have started a thread meanwhile, and a signal to this thread may have ended the walk.
		if len(threads) == before {
			require.GreaterOrEqual(t, before, many)
			require.True(t, missedNone(threads, threads, before))
			return
		}
		require.Less(t, tries, 1000, "a walk finds %d of %d threads", len(threads), before)
	}
}
