//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each command that lists things has the formats wide, json and name. The names can be used as arguments of other
// commands.
func TestFormats(t *testing.T) {
	name := testArena(t)
	alice, bob := newAgent(t, name, "alice"), newAgent(t, name, "bob")
	alice.does("lock mutex", "a b")
	alice.does("lock mutex", "ledger")
	bob.begins("lock mutex", "ledger")
	awaitWaits(t, name, 1)
	for command, c := range map[string]struct {
		args  []string
		names []string
		wide  string
	}{
		"ps":      {[]string{name}, []string{alice.name, bob.name}, "FENCED"},
		"objects": {[]string{name}, []string{"a b", "ledger"}, "OFFSET"},
		"show":    {[]string{name, "ledger"}, []string{"ledger"}, ""},
		"locks":   {[]string{name}, []string{"a b", "ledger"}, "OFFSET"},
		"waits":   {[]string{name}, []string{"ledger"}, "ORDER"},
		"ls":      {nil, []string{name}, "COUNTED"},
	} {
		t.Run(command, func(t *testing.T) {
			run := func(format string) string {
				code, out, errs := shmctl(append([]string{command, "-o", format}, c.args...)...)
				require.Contains(t, []int{exitOK, exitTrouble}, code, errs) // ls also sees arenas of other tests
				return out
			}
			lines := strings.Split(strings.TrimSpace(run("name")), "\n")
			if command == "ls" {
				require.Subset(t, lines, c.names)
			} else {
				require.ElementsMatch(t, c.names, lines)
			}
			require.True(t, json.Valid([]byte(run("json"))))
			text, wide := run("text"), run("wide")
			if c.wide != "" {
				require.NotContains(t, strings.Split(text, "\n")[0], c.wide)
				require.Contains(t, strings.Split(wide, "\n")[0], c.wide)
			}
			if command == "locks" {
				for _, object := range lines {
					soon(t, exitOK, "show", name, object)
				}
			}
		})
	}
	code, _, _ := shmctl("ps", "-o", "yaml", name)
	require.Equal(t, exitError, code)
}

// With --watch, a command shows its output repeatedly until it is interrupted. Its exit status is that of the last
// run.
func TestWatch(t *testing.T) {
	name := testArena(t)
	alice, bob := newAgent(t, name, "alice"), newAgent(t, name, "bob")
	alice.does("lock mutex", "ledger")
	bob.begins("lock mutex", "ledger")
	awaitWaits(t, name, 1)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "waits", "--json", "--watch=50ms", name)
	cmd.Env = append(os.Environ(), "SHMCTL_TEST_MAIN=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer cmd.Process.Kill()
	dec := json.NewDecoder(bufio.NewReader(out))
	next := func() (d document) {
		require.NoError(t, dec.Decode(&d))
		return d
	}
	for range 3 {
		require.Empty(t, next().Findings)
	}
	alice.Stop(t)
	for len(next().Findings) == 0 {
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	for dec.More() {
		next()
	}
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	require.Equal(t, exitTrouble, exit.ExitCode())
	alice.Cont(t)

	code, _, errs := shmctl("waits", "--watch=-1s", name)
	require.Equal(t, exitError, code, errs)
	code, _, _ = shmctl("waits", "--watch=1s", name+"x")
	require.Equal(t, exitMissing, code)
}
