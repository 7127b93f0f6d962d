//go:build linux

package cinterop

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A probe that ends while another thread asks whether fences may work does not mislead this thread. Otherwise the thread
// could find the feature absent, and then find that a probe has shown that, and never register for fences. The program
// lets the probe end just before each of the loads.
func TestProbeOfFencesBesideAQuestion(t *testing.T) {
	cc, dir := compiler(t), t.TempDir()
	h := cut(t, "22-sys.h", "typedef struct shmi_features {", "SHMI_FN int shmi_has(")
	h = append(h, cut(t, "22-sys.h", "/* Whether fences work here, or no probe", "/* Registers this process for membarrier, so")...)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "probes.h"), h, 0o600))
	bin := filepath.Join(dir, "probes")
	out, err := exec.Command(cc, "-std=c11", "-Wall", "-Wextra", "-I"+dir, "-o", bin, filepath.Join("testdata", "probes.c")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.Command(bin).CombinedOutput()
	require.NoError(t, err, "%s", out)
}
