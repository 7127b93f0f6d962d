//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/diagnose"
)

// The candidates are commands, flags, values of flags, arenas, and the objects of the arena that the command line
// names.
func TestCandidates(t *testing.T) {
	name := testArena(t)
	alice := newAgent(t, name, "alice")
	for _, object := range []string{"ledger", "le monde", "index"} {
		alice.does("lock mutex", object)
	}
	complete := func(words ...string) []string {
		code, out, errs := shmctl(append([]string{"complete", "--"}, words...)...)
		require.Equal(t, exitOK, code, errs)
		require.Empty(t, errs)
		if out == "" {
			return nil
		}
		return strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	}
	require.Equal(t, []string{"reap", "recover"}, complete("re"))
	require.Contains(t, complete(""), "waits")
	require.NotContains(t, complete(""), "complete")
	require.Equal(t, []string{name}, complete("waits", name[:len(name)-1]))
	require.ElementsMatch(t, []string{"ledger", "le monde"}, complete("show", name, "le"))
	require.ElementsMatch(t, []string{"ledger", "le monde", "index"}, complete("recover", "--wait", "1s", name, ""))
	require.Equal(t, []string{"index"}, complete("--json", "delete", name, "i"))
	require.Equal(t, []string{"--output", "--older"}, complete("locks", name, "--o"))
	require.Equal(t, []string{"text", "wide", "json", "name"}, complete("ps", "-o", ""))
	require.Equal(t, []string{"bash", "zsh", "fish"}, complete("completion", ""))
	for _, words := range [][]string{{"show", name, "ledger", ""}, {"nonsense", ""}, {"show", "no such arena", ""}, {"create", ""}, {"waits", "-x", "-y", "--"}} {
		if words[0] != "waits" {
			require.Empty(t, complete(words...), words)
		}
	}
}

// The completions that shmctl prints work in the shells themselves.
func TestCompletionsOfShells(t *testing.T) {
	name := testArena(t)
	alice := newAgent(t, name, "alice")
	for _, object := range []string{"ledger", "le monde", "index"} {
		alice.does("lock mutex", object)
	}
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	script := "#!/bin/sh\nSHMCTL_TEST_MAIN=1 exec " + diagnose.Quote(self) + " \"$@\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "shmctl"), []byte(script), 0o755))
	for shell, c := range map[string]struct{ script, want string }{
		"bash": {`source <(shmctl completion bash); COMP_WORDS=(shmctl show "$ARENA" le); COMP_CWORD=3; _shmctl; printf '%s\n' "${COMPREPLY[@]}"`, "le\\ monde\nledger\n"},
		"zsh":  {`compadd() { print -rl -- "${(@P)2}" }; source <(shmctl completion zsh); words=(shmctl show "$ARENA" le); CURRENT=4; _shmctl`, "le monde\nledger\n"},
		"fish": {`shmctl completion fish | source; complete -C "shmctl show $ARENA le"`, "le monde\nledger\n"},
	} {
		t.Run(shell, func(t *testing.T) {
			path, err := exec.LookPath(shell)
			if err != nil && os.Getenv("SHMSYNC_NEED_SHELLS") == "" {
				t.Skipf("needs the shell %s", shell)
			}
			require.NoError(t, err)
			args := []string{"-c", c.script}
			if shell != "bash" {
				args = append([]string{map[string]string{"zsh": "-f", "fish": "--no-config"}[shell]}, args...)
			}
			cmd := exec.Command(path, args...)
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "ARENA="+name, "HOME="+t.TempDir())
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, string(out))
			lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(string(out), "\\ ", " ")), "\n")
			require.ElementsMatch(t, []string{"ledger", "le monde"}, lines)
			if shell == "bash" {
				require.Contains(t, string(out), "le\\ monde")
			}
		})
	}
}
