package diagnose

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// write makes the files of a directory tree, given as paths and contents.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for path, content := range files {
		path = filepath.Join(dir, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
}

// TestFreezer checks which file thaws a process, in both versions of control groups. The hierarchy may be mounted at
// any place, and a group may be frozen because a group above it is.
func TestFreezer(t *testing.T) {
	proc, groups := t.TempDir(), filepath.Join(t.TempDir(), "a b")
	write(t, proc, map[string]string{
		"self/mountinfo": fmt.Sprintf("24 1 0:22 / /proc rw - proc proc rw\n"+
			"30 24 0:26 / %[1]s/one\\040v rw shared:9 - cgroup cgroup rw,freezer\n"+
			"31 24 0:27 / %[1]s/cpu rw - cgroup cgroup rw,cpu\n"+
			"32 24 0:28 /kube %[1]s/two rw - cgroup2 cgroup2 rw,nsdelegate\nx - y\n\n", groupsIn(groups)),
		"1/cgroup": "9:freezer:/jobs\n4:cpu:/\n0::/kube\n",
		"2/cgroup": "9:freezer:/\n0::/kube/pod/app\n",
		"3/cgroup": "9:freezer:/\n0::/kubernetes/app\n", // not below the mounted group
		"4/cgroup": "9:freezer:/\n0::/../kube\n",
		"5/cgroup": "9:freezer:/\n0::/kube/idle\n",
		"6/cgroup": "no control group\n",
	})
	write(t, groups, map[string]string{
		"one v/freezer.state":              "THAWED\n",
		"one v/jobs/freezer.state":         "FROZEN\n",
		"one v/jobs/freezer.self_freezing": "1\n",
		"two/cgroup.events":                "populated 1\nfrozen 0\n",
		"two/pod/cgroup.events":            "populated 1\nfrozen 1\n",
		"two/pod/cgroup.freeze":            "1\n",
		"two/pod/app/cgroup.events":        "populated 1\nfrozen 1\n",
		"two/pod/app/cgroup.freeze":        "0\n",
		"two/idle/cgroup.events":           "populated 1\nfrozen 0\n",
		"two/idle/cgroup.freeze":           "1\n",
	})
	z := newFreezer(proc)
	for pid, want := range map[int]freeze{
		1: {true, groups + "/one v/jobs/freezer.state", "THAWED"},
		2: {true, groups + "/two/pod/cgroup.freeze", "0"},
		3: {}, 4: {}, 5: {}, 6: {}, 7: {},
	} {
		require.Equal(t, want, z.of(pid), pid)
	}
	require.Equal(t, "echo 0 > '"+groups+"/two/pod/cgroup.freeze'", z.of(2).command())
	require.Empty(t, z.of(3).command())
}

// groupsIn returns a path in the form of /proc/self/mountinfo, where \040 stands for a space.
func groupsIn(path string) string { return filepath.Dir(path) + "/a\\040b" }

// The search for the frozen group ends at the root of the file system if the hierarchy is mounted there.
func TestFreezerAtTheRoot(t *testing.T) {
	proc, groups := t.TempDir(), t.TempDir()
	write(t, proc, map[string]string{"self/mountinfo": "32 24 0:28 / / rw - cgroup2 cgroup2 rw\n", "1/cgroup": "0::" + groups + "\n"})
	write(t, groups, map[string]string{"cgroup.events": "frozen 1\n", "cgroup.freeze": "1\n"})
	z := newFreezer(proc)
	require.Equal(t, freeze{true, groups + "/cgroup.freeze", "0"}, z.of(1))
}
