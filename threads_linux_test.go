package shmsync

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDetachedWalkThatMissesThreads: a walk through the threads of an ending process may stop
// before the last thread. The threads that the walk missed may still have memory.
func TestDetachedWalkThatMissesThreads(t *testing.T) {
	for _, c := range []struct {
		first, second []string
		count         int
		all           bool
	}{
		{[]string{"7"}, []string{"7"}, 1, true},
		{[]string{"7", "8", "9"}, []string{"7"}, 1, true},            // two have ended
		{[]string{"7", "8", "9"}, []string{"7", "9"}, 2, true},       // one has
		{[]string{"7"}, []string{"7", "8"}, 2, false},                // the first walk missed 8
		{[]string{"7", "8"}, []string{"7", "9"}, 2, false},           // 8 has ended, and the first walk missed 9
		{[]string{"7", "8"}, []string{"7"}, 2, false},                // the second one stopped early
		{[]string{"7", "8"}, []string{"7"}, 3, false},                // both did
		{[]string{"7", "8", "8"}, []string{"7", "8", "8"}, 3, false}, // both walks returned 8 twice, and missed 9
		{nil, []string{"7"}, 1, false},
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
	_, start, ok := d.stat(fmt.Sprint(os.Getpid()))
	require.True(t, ok)
	require.False(t, Detached(os.Getpid(), start))
	for _, pid := range []int{0, -1, 1, os.Getppid(), 1 << 30} {
		require.False(t, Detached(pid, start), pid)
	}
}

// TestOnlyPID: the PIDs of a /proc can be used only if this process has exactly one PID there,
// which is its own.
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
