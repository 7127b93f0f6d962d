//go:build linux

package main

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/diagnose"
	"github.com/shmsync/shmsync/shm"
)

var update = flag.Bool("update", false, "write the golden files anew")

// moving has the parts of the output that differ from run to run.
var moving = []struct {
	what *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`shmctl-test\.[0-9]+\.[0-9a-f]+`), "ARENA"},
	{regexp.MustCompile(`"(time|created|joined|died)": "[^"]*"`), `"$1": "TIME"`},
	{regexp.MustCompile(`"age_ns": [0-9]+`), `"age_ns": 1`},
	{regexp.MustCompile(`"(pid|host_pid|pid_namespace|uid|reaps)": [0-9]+`), `"$1": 1`},
	{regexp.MustCompile(`"process": "(running|sleeping)"`), `"process": "sleeping"`},
	{regexp.MustCompile(`\[[0-9]+\]`), "[PID]"},
	{regexp.MustCompile(`\(pid [0-9]+,`), "(pid PID,"},
	{regexp.MustCompile(`kill (-CONT |-9 )?[0-9]+`), "kill ${1}PID"},
	{regexp.MustCompile(`\b([0-9.]+(s|ms|µs)|[0-9]+m[0-9]+s)\b`), "AGE"},
	{regexp.MustCompile(`(?m)^([0-9]+\.[0-9]+\s+\w+)\s+[0-9]+`), "$1  PID"},
	{regexp.MustCompile(`[0-9]{2}:[0-9]{2}:[0-9]{2}`), "CLOCK"},
	{regexp.MustCompile(`sleeping|running`), "sleeping"},
	{regexp.MustCompile(`sequence [0-9]+`), "sequence N"},
	{regexp.MustCompile(`wake = 0x[0-9a-f]+`), "wake = N"},
	{regexp.MustCompile(`[0-9]+ reaps`), "N reaps"},
	{regexp.MustCompile(`, biased|biased`), ""},
	{regexp.MustCompile(`"note": ""`), ""},
	{regexp.MustCompile(`owner = 0x[0-9a-f]+`), "owner = N"},
	{regexp.MustCompile(`"bits": "0x[0-9a-f]+"`), `"bits": "N"`},
	{regexp.MustCompile(`  +`), "  "},
	{regexp.MustCompile(`(?m)[ -]+$`), ""},
}

func still(out string) string {
	for _, m := range moving {
		out = m.what.ReplaceAllString(out, m.as)
	}
	return out
}

// The output of each command for a small arena is as in the golden files, as text and as JSON. Run the test with
// -update to rewrite the files, and review the difference.
func TestGolden(t *testing.T) {
	name := testArena(t)
	alice, bob, carol := newAgent(t, name, "alice"), newAgent(t, name, "bob"), newAgent(t, name, "carol")
	alice.does("lock fair", "ledger")
	bob.does("lock fair", "index")
	bob.does("acquire semaphore", "workers", 2)
	alice.begins("lock fair", "index")
	awaitWaits(t, name, 1)
	bob.begins("lock fair", "ledger")
	awaitWaits(t, name, 2)
	carol.begins("acquire semaphore", "workers", 3)
	awaitWaits(t, name, 3)
	eventually(t, "dated waits", func() bool {
		_, d := shmctlJSON(t, "waits", name)
		for _, w := range d.Waits {
			if w.AgeNs == nil {
				return false
			}
		}
		return true
	})
	eventually(t, "dated holds", func() bool {
		_, d := shmctlJSON(t, "locks", name)
		return len(d.Holds) == 3 && !slices.ContainsFunc(d.Holds, func(h diagnose.Hold) bool { return h.AgeNs == nil })
	})
	freeze(t, carol)
	for _, c := range []struct {
		file string
		args []string
		code int
	}{
		{"ps", []string{"ps", name}, exitTrouble},
		{"objects", []string{"objects", name}, exitTrouble},
		{"show", []string{"show", name, "ledger"}, exitTrouble},
		{"locks", []string{"locks", name}, exitTrouble},
		{"waits", []string{"waits", name}, exitTrouble},
		{"graph", []string{"graph", name}, exitTrouble},
		{"dot", []string{"graph", "-f", "dot", name}, exitTrouble},
		{"check", []string{"check", name}, exitOK},
		{"top", []string{"top", "-n", "1", name}, exitOK},
	} {
		t.Run(c.file, func(t *testing.T) {
			code, out, errs := shmctl(c.args...)
			require.Equal(t, c.code, code, out+errs)
			golden(t, c.file+".txt", out)
			if c.file == "dot" {
				return
			}
			_, out, _ = shmctl(append(c.args, "--json")...)
			require.True(t, json.Valid([]byte(out)))
			golden(t, c.file+".json", out)
		})
	}
	t.Run("metrics", func(t *testing.T) {
		_, out, _ := shmctl("metrics", name)
		out = regexp.MustCompile(`(longest_wait_seconds\{.*\}) .*`).ReplaceAllString(out, "$1 AGE")
		out = regexp.MustCompile(`(reaps_total\{.*\}) .*`).ReplaceAllString(out, "$1 N")
		golden(t, "metrics.txt", out)
	})
}

func golden(t *testing.T, file, out string) {
	t.Helper()
	out = still(out)
	path := filepath.Join("testdata", file)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(out), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), out)
}

// An arena is dumped without its users' data. The dump shows the old state of the arena, and can be turned into a
// file again.
func TestDumpAndLoad(t *testing.T) {
	name := testArena(t)
	alice, bob := newAgent(t, name, "alice"), newAgent(t, name, "bob")
	alice.does("lock mutex", "ledger")
	bob.begins("lock mutex", "ledger")
	const secret = 0x5ec7e75ec7e75e
	alice.does("put queue", "items", secret)
	alice.does("store waitable", "memory", secret)
	awaitWaits(t, name, 1)
	alice.Stop(t)
	dir := t.TempDir()
	dump, file := filepath.Join(dir, "x.shmdump"), filepath.Join(dir, "x")
	code, out, errs := shmctl("dump", name, "-o", dump)
	require.Equal(t, exitOK, code, errs)
	require.Contains(t, out, "wrote "+dump)
	code, _, _ = shmctl("dump", name, "-o", dump)
	require.Equal(t, exitError, code, "dump does not overwrite an existing file")
	alice.Cont(t)
	alice.Kill(t)
	bob.Kill(t)

	// In the dump, alice is still stopped, and still has her hold.
	out = soon(t, exitTrouble, "waits", dump)
	require.Contains(t, out, "alice (pid ")
	require.Contains(t, out, "STOPPED-HOLDER")
	_, d := shmctlJSON(t, "ps", dump)
	require.Equal(t, "stopped", d.Participants[0].Life)
	require.Equal(t, "alive", d.Participants[1].Life)
	soon(t, exitOK, "check", dump)
	for _, args := range [][]string{{"reap", dump}, {"recover", dump, "ledger"}, {"set", dump, "ledger", "spin=none"}, {"dump", dump}} {
		code, _, errs := shmctl(args...)
		require.Equal(t, exitRefused, code, "%v %s", args, errs)
	}

	require.Contains(t, soon(t, exitOK, "load", dump, file), "made "+file)
	code, _, _ = shmctl("load", dump, file)
	require.Equal(t, exitError, code)
	require.Contains(t, soon(t, exitTrouble, "objects", file), "ledger")
	for path, has := range map[string]bool{file: false, shm.Dir + "/" + name: true} {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, has, strings.Contains(string(b), "\x5e\xe7\xc7\x5e\xe7\xc7\x5e"), path)
	}

	for what, b := range map[string][]byte{"cut off": nil, "not": []byte("\x1f\x8b not a dump")} {
		bad := filepath.Join(dir, what)
		if b == nil {
			whole, err := os.ReadFile(dump)
			require.NoError(t, err)
			b = whole[:len(whole)-20]
		}
		require.NoError(t, os.WriteFile(bad, b, 0o600))
		code, _, errs := shmctl("ps", bad)
		require.NotEqual(t, exitOK, code)
		require.NotEmpty(t, errs)
	}
}

// TestDumpOfAWaitable: a dump shows all claims, in slot records and in blocks. It leaves out the text of a panic.
func TestDumpOfAWaitable(t *testing.T) {
	name := testArena(t)
	alice := newAgent(t, name, "alice")
	const claims = 14
	alice.does("claim waitable", "memory", claims)
	dump, file := filepath.Join(t.TempDir(), "x.shmdump"), filepath.Join(t.TempDir(), "x")
	code, _, errs := shmctl("dump", name, "-o", dump)
	require.Equal(t, exitOK, code, errs)
	for _, from := range []string{name, dump} {
		_, d := shmctlJSON(t, "show", from, "memory")
		keys := map[uint64]bool{}
		for _, h := range d.Holds {
			require.Equal(t, alice.name, h.Owner)
			keys[*h.Key] = true
		}
		require.Len(t, keys, claims, from)
	}
	soon(t, exitOK, "load", dump, file)
	for path, has := range map[string]bool{file: false, shm.Dir + "/" + name: true} {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, has, strings.Contains(string(b), "swordfish"), path)
	}
}

// Arenas are created, listed, changed and removed. An arena in use is not removed.
func TestCreateSetRemove(t *testing.T) {
	name := testArena(t)
	require.NoError(t, shm.Remove(name))
	out := soon(t, exitOK, "create", "--size=1M", "--max-participants=4", "--counted", name)
	require.Contains(t, out, "1 MiB, 4 participants at most")
	code, _, _ := shmctl("create", name)
	require.Equal(t, exitRefused, code)
	_, d := shmctlJSON(t, "ls")
	found := false
	for _, a := range d.Arenas {
		found = found || a.Name == name
	}
	require.True(t, found)
	_, names, _ := shmctl("ls", "--names")
	require.Contains(t, strings.Fields(names), name)

	alice := newAgent(t, name, "alice")
	alice.does("lock mutex", "m")
	alice.does("lock fair", "f")
	alice.does("lock multi", "x", 1)
	_, d = shmctlJSON(t, "show", name, "m")
	require.NotNil(t, d.Objects[0].Counters)
	require.EqualValues(t, 1, d.Objects[0].Counters.Acquired)
	require.NotNil(t, d.Holds[0].AgeNs)
	for _, object := range []string{"m", "f", "x"} {
		for spin, shown := range map[string]string{"20us": "20µs", "none": "none", "adaptive": "adaptive"} {
			soon(t, exitOK, "set", name, object, "spin="+spin)
			_, d := shmctlJSON(t, "show", name, object)
			require.Equal(t, shown, d.Objects[0].Spin, object)
		}
	}
	for _, args := range [][]string{{"set", name, "m", "spin=1h"}, {"set", name, "m", "spin"}, {"set", name, "m", "colour=red"}, {"create", "--size=x", "y"}, {"create", "--mode=9", "y"}} {
		code, _, errs := shmctl(args...)
		require.Equal(t, exitError, code, "%v %s", args, errs)
	}
	code, _, errs := shmctl("rm", name)
	require.Equal(t, exitRefused, code)
	require.Contains(t, errs, "in use by alice (pid ")
	alice.Kill(t)
	soon(t, exitOK, "rm", name)
	for _, args := range [][]string{{"rm", name}, {"ps", name}, {"waits", name}, {"reap", name}} {
		code, _, _ := shmctl(args...)
		require.Equal(t, exitMissing, code, args)
	}
	again := filepath.Join(t.TempDir(), "at-a-path")
	soon(t, exitOK, "create", "--size=1M", again)
	require.NoError(t, os.Chmod(again, 0o644))
	code, _, errs = shmctl("show", again, "nothing")
	require.Equal(t, exitMissing, code, errs)
	require.NoError(t, os.WriteFile(again+"x", []byte("no arena"), 0o600))
	code, _, _ = shmctl("rm", again+"x")
	require.Equal(t, exitRefused, code)
	soon(t, exitOK, "rm", "--force", again+"x")
	soon(t, exitOK, "rm", again)
}

// The help, the completions and the manual page contain every command.
func TestGenerated(t *testing.T) {
	code, help, _ := shmctl("--help")
	require.Equal(t, exitOK, code)
	_, man, _ := shmctl("man")
	require.True(t, strings.HasPrefix(man, ".TH SHMCTL 1\n"))
	for _, command := range []string{"ls", "ps", "objects", "show", "value", "locks", "waits", "graph", "top", "check", "metrics", "dump", "diff", "load", "reap", "recover", "set", "create", "du", "delete", "rm", "completion", "man"} {
		require.Contains(t, help, "  "+command+" ")
		require.Contains(t, man, "\n.SS "+command)
		_, out, _ := shmctl("complete", "--", "")
		require.Contains(t, strings.Fields(out), command)
	}
	require.NotContains(t, man, "${")
	for _, args := range [][]string{{}, {"nonsense"}, {"ps"}, {"graph", "-f", "png", "x"}, {"completion", "csh"}} {
		code, _, errs := shmctl(args...)
		require.Equal(t, exitError, code, args)
		require.NotEmpty(t, errs)
	}
}
