//go:build linux

package snippets

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/ccache"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// programBlock matches a block of C. A comment before the block may give it a name, by which a test runs it.
var programBlock = regexp.MustCompile("(?s)(?:<!-- run: (\\S+) -->\n)?```c\n(.*?)```\n")

// programsInC compiles the blocks of docs/c-api.md that are whole programs. It returns the paths of the programs
// that have a name.
func programsInC(t *testing.T) map[string]string {
	t.Helper()
	cc := proctest.CCompiler(t)
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "c-api.md"))
	require.NoError(t, err)
	dir, named, programs := t.TempDir(), map[string]string{}, 0
	for _, block := range programBlock.FindAllStringSubmatch(string(text), -1) {
		if !strings.Contains(block[2], "int main(") {
			continue
		}
		programs++
		source := filepath.Join(dir, "program.c")
		require.NoError(t, os.WriteFile(source, []byte(block[2]), 0o666))
		out := filepath.Join(dir, strings.TrimSuffix(block[1], ".c")+".out")
		err := ccache.Compile(cc, []string{"-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Wpedantic", "-Werror", "-I" + filepath.Join(root, "include"),
			source, "-pthread"}, out)
		require.NoError(t, err, "%s", block[2])
		if block[1] != "" {
			named[block[1]] = out
		}
	}
	require.Greater(t, programs, 1)
	return named
}

// TestProgramInCEndsOnSIGTERM checks the program in the document that handles SIGTERM. The program must end even if
// another process never unlocks the value.
func TestProgramInCEndsOnSIGTERM(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a run without -short: it compiles the C header")
	}
	program := programsInC(t)["term.c"]
	require.NotEmpty(t, program)
	name := filepath.Join(t.TempDir(), "arena")
	a, err := arena.Create(name, nil)
	require.NoError(t, err)
	defer a.Close()
	s, err := prims.OpenSynchronized(a, "account", [2]uint64{}, nil)
	require.NoError(t, err)
	held, release := make(chan struct{}), make(chan struct{})
	updated := make(chan error)
	go func() {
		updated <- s.Update(func(v *[2]uint64) error {
			close(held)
			<-release
			return nil
		})
	}()
	<-held
	defer func() {
		close(release)
		require.NoError(t, <-updated)
	}()
	var out strings.Builder
	ctx, cancel := context.WithTimeout(t.Context(), proctest.Scale(proctest.DefaultTimeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, program, name)
	cmd.Stdout = &out
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(stderr)
	require.True(t, lines.Scan())
	require.Equal(t, "still waiting", lines.Text())
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	for lines.Scan() { // until the program closes its output
	}
	require.NoError(t, cmd.Wait())
	require.Equal(t, "ends\n", out.String())
	require.Equal(t, [2]uint64{}, s.Load())
}
