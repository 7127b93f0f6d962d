//go:build linux

package park

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/proctest"
)

// sleeper starts a thread that sleeps with the given bitset. When the thread is woken, it sends the
// bitset on woken.
func sleeper(t *testing.T, l *WaitList, bits uint32, woken chan<- uint32) {
	tid := make(chan int, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		tid <- unix.Gettid()
		for {
			if o, _ := shmsync.WaitBitset(l.Raw, 0, bits, 0); o == shmsync.Woken {
				woken <- bits
				return
			}
		}
	}()
	task := fmt.Sprintf("/proc/self/task/%d", <-tid)
	for limit := time.Now().Add(proctest.Scale(proctest.DefaultTimeout)); !waitsForBits(t, task); runtime.Gosched() {
		require.True(t, time.Now().Before(limit), "it does not go to sleep")
	}
}

// waitsForBits reports whether a thread sleeps in FUTEX_WAIT_BITSET. A thread that the Go runtime
// has put to sleep is in another system call.
func waitsForBits(t *testing.T, task string) bool {
	if b, err := os.ReadFile(task + "/syscall"); err == nil {
		f := strings.Fields(string(b))     // the number of the system call and its arguments
		return len(f) > 2 && f[2] == "0x9" // the operation is FUTEX_WAIT_BITSET
	}
	b, err := os.ReadFile(task + "/stat") // used if the machine does not show system calls
	require.NoError(t, err)
	_, state, ok := strings.Cut(string(b), ") ")
	return ok && state[0] == 'S'
}

// TestWakeOneNear checks that every sleeper is woken, and that those on this NUMA node are woken first. One wake in 64
// goes to the first sleeper in the queue.
func TestWakeOneNear(t *testing.T) {
	old := NodeNow
	defer func() { NodeNow = old }()
	node, known := uint32(5), true
	NodeNow = func() (uint32, bool) { return node, known }
	l := &heapWakeWord().WaitList
	l.Near = true
	woken := make(chan uint32, 1)
	order := func(turn uint32, bits ...uint32) (got []uint32) {
		for _, b := range bits {
			sleeper(t, l, b, woken)
		}
		for range bits {
			require.Equal(t, 1, l.wakeOne(turn))
			got = append(got, <-woken)
		}
		require.Zero(t, l.wakeOne(turn))
		return got
	}
	near, far := nearBits(5), nearBits(6)
	require.Equal(t, []uint32{near, near, far, far}, order(0, far, near, far, near))
	require.Equal(t, []uint32{shmsync.MatchAny, far}, order(2, far, shmsync.MatchAny), "a sleeper that says no node can be woken from every node")
	require.Equal(t, []uint32{far, near}, order(2*(anyEvery-1), far, near), "this wake ignores the node, so it wakes the first sleeper")
	require.Equal(t, []uint32{far, near}, order(2*(3*anyEvery-1)+1, far, near))
	node = 5 + 32
	require.Equal(t, []uint32{near, far}, order(0, far, near))
	known = false
	require.Equal(t, []uint32{far, near}, order(0, far, near), "the node of the caller is not known")
	known, l.Near = true, false
	require.Equal(t, []uint32{far, near}, order(0, far, near), "a WaitList without Near ignores the node")
}

// TestNodeNow checks that NodeNow returns a NUMA node that exists.
func TestNodeNow(t *testing.T) {
	node, ok := NodeNow()
	if !ok {
		t.Skip("needs a CPU that tells its node without a system call")
	}
	b, err := os.ReadFile("/sys/devices/system/node/online")
	if err != nil {
		t.Skipf("needs a kernel that lists its nodes in /sys: %v", err)
	}
	if strings.TrimSpace(string(b)) == "0" {
		require.Zero(t, node)
	}
}
