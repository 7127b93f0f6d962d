//go:build linux

package cinterop

import (
	"errors"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// skipped is the exit status of a verb of contract.c that the host does not permit.
const skipped = 77

// What docs/c-contract.md promises holds. A verb that hangs ends by SIGALRM.
func TestContract(t *testing.T) {
	for _, verb := range []string{
		"closed-handles", "closed-arena", "closed-in-use", "close-many", "closed-many", "errors", "helper", "last-thread",
		"fork-in-repair", "fork-in-on-death", "close-in-call", "locked-memory", "limits", "cancel", "interrupted", "delete-at",
	} {
		t.Run(verb, func(t *testing.T) {
			name := unusedName(t)
			if verb != "locked-memory" && verb != "limits" { // these two make an arena of another size
				name = coreArena(t, 16<<20)
			}
			out, err := exec.Command(program(t, "contract.c"), verb, name).CombinedOutput()
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == skipped {
				t.Skip("needs permission to lock memory: root, or an unlimited RLIMIT_MEMLOCK")
			}
			require.NoError(t, err, "%s", out)
			sound(t, name)
		})
	}
}

// The code of a plugin that opened an arena stays when the plugin is unloaded.
func TestPluginThatForgetsTheClose(t *testing.T) {
	plugin := program(t, "plugin.c", "-shared", "-fPIC")
	out, err := exec.Command(program(t, "plugins.c"), plugin, unusedName(t)).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// An exception that leaves a function of the user's ends the process in words.
func TestExceptionOutOfACallback(t *testing.T) {
	cAgent(t) // makes the header
	needsCompiler(t, "g++")
	bin := filepath.Join(t.TempDir(), "throws")
	out, err := exec.Command("g++", "-x", "c++", "-std=c++17", "-I"+built.dir, filepath.Join("testdata", "throws.cc"), "-o", bin, "-pthread").CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.Command(bin, unusedName(t)).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "an exception or pthread_exit left a function that the library had called")
}
