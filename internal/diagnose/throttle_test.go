package diagnose

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestThrottler checks which quota throttles a process, in both versions of control groups. The quota may belong to a
// group above that of the process. A quota that the process does not use up throttles nothing.
func TestThrottler(t *testing.T) {
	proc, groups := t.TempDir(), t.TempDir()
	write(t, proc, map[string]string{
		"self/mountinfo": fmt.Sprintf("30 24 0:26 / %[1]s/one rw - cgroup cgroup rw,cpu,cpuacct\n31 24 0:27 / %[1]s/two rw - cgroup2 cgroup2 rw\n", groups),
		"1/cgroup":       "4:cpu,cpuacct:/jobs\n0::/\n",
		"2/cgroup":       "0::/pod/app\n",
		"3/cgroup":       "0::/idle\n",
		"4/cgroup":       "0::/free\n",
	})
	write(t, groups, map[string]string{
		"one/jobs/cpu.cfs_quota_us":  "1000\n",
		"one/jobs/cpu.cfs_period_us": "1000000\n",
		"one/jobs/cpu.stat":          "nr_periods 5\nnr_throttled 5\n",
		"two/pod/cpu.max":            "150000 1000000\n",
		"two/pod/cpu.stat":           "usage_usec 1\nnr_periods 5\nnr_throttled 5\n",
		"two/pod/app/cpu.max":        "max 100000\n",
		"two/pod/app/cpu.stat":       "usage_usec 1\nnr_periods 0\nnr_throttled 0\n",
		"two/idle/cpu.max":           "1000 10000\n",
		"two/idle/cpu.stat":          "nr_throttled 7\n",
		"two/free/cpu.max":           "max 100000\n",
		"two/free/cpu.stat":          "nr_throttled 7\n",
	})
	for pid, want := range map[int]*throttle{
		1: {0.001, groups + "/one/jobs", 1}, 2: {0.15, groups + "/two/pod", 2}, 3: nil, 4: nil,
	} {
		z := newThrottler(proc)
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() { // the kernel throttles the group in each period
			defer close(stopped)
			for n := 6; want != nil; n++ {
				select {
				case <-stop:
					return
				default:
				}
				file := filepath.Join(want.dir, "cpu.stat")
				os.WriteFile(file+".new", fmt.Appendf(nil, "nr_periods %[1]d\nnr_throttled %[1]d\n", n), 0o600)
				os.Rename(file+".new", file)
			}
		}()
		got := z.of(pid)
		close(stop)
		<-stopped
		require.Equal(t, want, got, pid)
		require.Equal(t, want, z.of(pid), "it is known")
	}
	q := &throttle{0.15, "/sys/fs/cgroup/a b", 2}
	require.Equal(t, "the CPU quota of its control group /sys/fs/cgroup/a b, 15 % of a CPU, throttles it", q.String())
	require.Equal(t, "echo max > '/sys/fs/cgroup/a b/cpu.max'", q.command())
	q.version = 1
	require.Equal(t, "echo -1 > '/sys/fs/cgroup/a b/cpu.cfs_quota_us'", q.command())
}
