//go:build linux

package cinterop

import (
	"errors"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// skipped is the exit status of contract.c if the host lacks what a verb needs. The program says what that is.
const skipped = 77

// The promises of docs/c-contract.md hold. SIGALRM ends a verb that hangs.
func TestContract(t *testing.T) {
	for _, verb := range []string{
		"closed-handles", "closed-arena", "closed-in-use", "close-many", "closed-many", "errors", "helper", "last-thread",
		"fork-in-repair", "fork-in-on-death", "close-in-call", "locked-memory", "limits", "cancel", "interrupted", "delete-at",
		"kept-error", "results", "no-memory", "two-arenas", "close-in-on-death", "forked-calls", "handler-state", "signals-of-faults",
	} {
		t.Run(verb, func(t *testing.T) {
			name := unusedName(t)
			if verb != "locked-memory" && verb != "limits" { // these two verbs make an arena of another size
				name = coreArena(t, 16<<20)
			}
			out, err := exec.Command(program(t, "contract.c"), verb, name).CombinedOutput()
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == skipped {
				t.Skipf("%s", out)
			}
			require.NoError(t, err, "%s", out)
			sound(t, name)
		})
	}
}

// A plugin opens an arena and does not close it. Its code stays mapped when the plugin is unloaded.
func TestPluginThatForgetsTheClose(t *testing.T) {
	plugin := program(t, "plugin.c", "-shared", "-fPIC")
	out, err := exec.Command(program(t, "plugins.c"), plugin, unusedName(t)).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// An exception that leaves a callback of the user ends the process with a message.
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
