//go:build linux

package place

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
)

func TestOwnCgroups(t *testing.T) {
	unified, cpu := ownCgroups("9:name=systemd:/\n2:cpu,cpuacct:/a/b\n0::/user.slice\nnonsense\n")
	require.Equal(t, "/user.slice", unified)
	require.Equal(t, "/a/b", cpu)
	require.Error(t, writeExisting(filepath.Join(t.TempDir(), "cpu.max"), "1"), "a file that is not the kernel's")
}

// A worker under a quota is in a cgroup of its own, which is removed afterwards.
func TestQuotaIsJoined(t *testing.T) {
	if err := QuotaCheck(); err != nil {
		proctest.Missing(t, "SHMSYNC_NEED_QUOTA", fmt.Sprintf("needs a cgroup of its own, for a quota of CPU time: %v", err))
	}
	q, err := NewQuota(20)
	require.NoError(t, err)
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	require.NoError(t, q.Join(cmd.Process.Pid))
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", cmd.Process.Pid))
	require.NoError(t, err)
	require.Contains(t, string(b), filepath.Base(q.dir))
	require.NoError(t, in.Close())
	require.NoError(t, cmd.Wait())
	q.Remove()
	require.NoDirExists(t, q.dir)
}
