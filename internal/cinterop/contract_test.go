//go:build linux

package cinterop

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
)

// skipped is the exit status of contract.c if the host lacks something that a verb needs. The program prints what the
// host lacks.
const skipped = 77

// lacks maps a verb of contract.c to what the program prints if the host lacks something that the verb needs. Other
// verbs need nothing of the host.
var lacks = map[string]string{
	"handler-state": "needs single steps of an x86 CPU, without a sanitizer",
	"stack":         "needs frames without a sanitizer",
	"locked-memory": "needs permission to lock memory: root, or an unlimited RLIMIT_MEMLOCK",
}

// The promises of docs/c-contract.md hold. SIGALRM ends a verb that hangs.
func TestContract(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{
		"closed-handles", "closed-arena", "closed-in-use", "close-many", "closed-many", "closed-without-room", "few-sizes",
		"many-sizes", "errors", "error-texts", "open-errors", "helper", "last-thread", "last-thread-closes", "threads-in-turn",
		"fork-in-repair", "fork-in-on-death", "close-in-call", "locked-memory", "limits", "cancel", "interrupted", "delete-at",
		"kept-error", "results", "no-memory", "two-arenas", "close-in-on-death", "forked-calls", "handler-state", "signals-of-faults",
		"once-in-itself", "barrier-in-itself", "close-each-other", "stack",
		"close-in-nested-calls",
	} {
		t.Run(verb, func(t *testing.T) {
			name := unusedName(t)
			if verb != "locked-memory" && verb != "limits" { // these two verbs make an arena of another size
				name = coreArena(t, 16<<20)
			}
			out, err := exec.Command(program(t, "contract.c"), verb, name).CombinedOutput()
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == skipped {
				require.Contains(t, lacks, verb)
				require.Equal(t, lacks[verb], string(out))
				require.False(t, verb == "handler-state" && runtime.GOARCH == "amd64" && os.Getenv(cflagsEnv) == "")
				t.Skip(lacks[verb])
			}
			require.NoError(t, err, "%s", out)
			sound(t, name)
		})
	}
}

// A plugin opens an arena and does not close it. Its code stays mapped when the plugin is unloaded.
func TestPluginThatForgetsTheClose(t *testing.T) {
	t.Parallel()
	plugin := program(t, "plugin.c", "-shared", "-fPIC")
	runC(t, "plugins.c", plugin, unusedName(t))
}

// An exception that leaves a callback of the user ends the process with a message.
func TestExceptionOutOfACallback(t *testing.T) {
	t.Parallel()
	cAgent(t) // makes the header
	proctest.Program(t, "g++")
	bin := filepath.Join(t.TempDir(), "throws")
	out, err := exec.Command("g++", "-x", "c++", "-std=c++17", "-I"+built.dir, filepath.Join("testdata", "throws.cc"), "-o", bin, "-pthread").CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.Command(bin, unusedName(t)).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "an exception or pthread_exit left a function that the library had called")
}
