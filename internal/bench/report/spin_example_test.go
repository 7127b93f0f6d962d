//go:build linux

package report

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
)

// TestSpinAdviceWorksWhenPasted checks the lines of code that the advice about spinning prints. The example
// examples/spin has such lines from another host. The test replaces them, and builds and runs the example.
func TestSpinAdviceWorksWhenPasted(t *testing.T) {
	d := synthetic(t, "two-socket")
	cell := map[string]string{"place": bench.PlaceCross, "gap": "1.5ms"}
	d.add("wake", "shmsync:futex", cell, map[string][]float64{"p50-ns": {41e3, 40e3, 42e3}, "waker-p50-ns": {17e3, 17e3, 17e3}})
	lines := adviceOf(t, d, "R1").Do
	require.Len(t, lines, 3)

	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	require.NoError(t, err)
	file := filepath.Join(root, "examples", "spin", "main.go")
	source := string(mustRead(t, file))
	for _, line := range lines {
		pattern := regexp.MustCompile(`(?m)^(\s*)` + regexp.MustCompile(`\d+`).ReplaceAllString(regexp.QuoteMeta(line), `\d+`) + `$`)
		require.Len(t, pattern.FindAllString(source, -1), 1, "the example has %q", line)
		source = pattern.ReplaceAllString(source, "${1}"+line)
	}
	require.Equal(t, 2, strings.Count(source, "58 * time.Microsecond"))

	pasted := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(pasted, []byte(source), 0o600))
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {file: pasted}})
	require.NoError(t, err)
	list, bin := filepath.Join(t.TempDir(), "overlay.json"), filepath.Join(t.TempDir(), "spin")
	require.NoError(t, os.WriteFile(list, overlay, 0o600))
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", list, "-o", bin, "./examples/spin")
	build.Dir = root
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.CommandContext(t.Context(), bin, "-kills", "1", "-seed", "1").CombinedOutput()
	require.NoError(t, err, "%s", out)
	if runtime.NumCPU() > 1 {
		require.Contains(t, string(out), "2 workers spin for 58µs at most: all 2000 turns counted")
	}
	require.Regexp(t, `\d+ workers do not spin: all \d+ turns counted`, string(out))
}
