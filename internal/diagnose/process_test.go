package diagnose

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A process whose main thread has ended has the state of another thread. If there is no other thread, the process is a
// zombie.
func TestProcessWithoutMainThread(t *testing.T) {
	stat := func(state string) string { return "7 (a) b) " + state + strings.Repeat(" 5", 40) }
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"7/stat": stat("Z"), "7/task/7/stat": stat("Z"), "7/task/8/stat": stat("T"),
		"9/stat": stat("Z"), "9/task/9/stat": stat("Z"),
		"10/stat": stat("S"), "10/task/10/stat": stat("S"), "10/task/11/stat": stat("R"),
	})
	p := &processes{proc: dir}
	for pid, want := range map[int]string{7: "stopped", 9: "zombie", 10: "sleeping"} {
		found, ok := p.find(0, pid, 5)
		require.True(t, ok)
		require.Equal(t, want, found.stateText(), pid)
	}
	_, ok := p.find(0, 7, 6)
	require.False(t, ok, "another process had this pid")
}

// If /proc belongs to another pid namespace, no process is found there. In the namespace of this process, the pids in
// /proc would mean other processes, and shmctl prints commands that end processes. By chance, this process may have the
// same pid in both namespaces.
func TestProcOfAnotherNamespace(t *testing.T) {
	own := strconv.Itoa(os.Getpid())
	for _, c := range []struct {
		self, nspid string
		own         bool
	}{
		{own, "NSpid:\t" + own + "\n", true},
		{own, "", true}, // the kernel does not say
		{own, "NSpid:\t" + own + "\t" + own + "\n", false},
		{own + "0", "NSpid:\t" + own + "0\t" + own + "\n", false},
		{"", "", false},
	} {
		dir := t.TempDir()
		write(t, dir, map[string]string{
			"7/stat":   "7 (a) S " + strings.Repeat(" 5", 40),
			"7/status": "Name:\ta\nNSpid:\t7\n", own + "/status": "Name:\ta\n" + c.nspid, own + "0/status": c.nspid,
		})
		if c.self != "" {
			require.NoError(t, os.Symlink(c.self, filepath.Join(dir, "self")))
		}
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "7/fd"), 0o700))
		file, err := os.Create(filepath.Join(dir, "arena"))
		require.NoError(t, err)
		defer file.Close()
		require.NoError(t, os.Symlink(file.Name(), filepath.Join(dir, "7/fd/3")))
		p := processesOf(dir)
		_, ok := p.find(0, 7, 5)
		require.Equal(t, c.own, ok, c)
		_, ok = p.findMember(7, file, nil)
		require.Equal(t, c.own, ok, c)
	}
}

// A quoted text cannot control a terminal.
func TestQuotedTextIsPlain(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "''",
		"jobs-1.x":              "jobs-1.x",
		"a b":                   "'a b'",
		"it's":                  `'it'\''s'`,
		"é":                     "'é'",
		"a\x1b[31m'\\é\n\u202e": `$'a\033[31m\047\134\303\251\012\342\200\256'`,
	} {
		require.Equal(t, want, Quote(text))
	}
}
