package tidy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
)

// recordedAsAsm writes a record of the API in which the exports of package shm stand in place of those of package asm.
func recordedAsAsm(t *testing.T, version string) (dir string) {
	record := filepath.Join("..", "..", "docs", "api", "record")
	dir = t.TempDir()
	names, err := filepath.Glob(filepath.Join(record, "*.x"))
	require.NoError(t, err)
	require.Len(t, names, 6)
	for _, name := range names {
		from := name
		if filepath.Base(name) == "asm.x" {
			from = filepath.Join(record, "shm.x")
		}
		data, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(name)), data, 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "version"), []byte(version+"\n"), 0o600))
	return dir
}

// apiScript runs .ci/api with a record and a changelog.
func apiScript(t *testing.T, record, changelog string) (output string, ok bool) {
	file := filepath.Join(t.TempDir(), "changelog")
	require.NoError(t, os.WriteFile(file, []byte(changelog), 0o600))
	c := exec.Command(filepath.Join("..", "..", ".ci", "api"))
	c.Env = append(os.Environ(), "API_RECORD="+record, "API_CHANGELOG="+file)
	out, err := c.CombinedOutput()
	if strings.Contains(string(out), "apidiff is left out") {
		proctest.Missing(t, "SHMSYNC_NEED_TOOLS", "needs a network from which Go fetches modules: "+string(out))
	}
	return string(out), err == nil
}

// TestAPIRecordRefuses checks what .ci/api does with incompatible changes. Before the first release, it only shows
// them. After that release but before 1.0, it requires that the changelog names them. From 1.0 on, it refuses them.
func TestAPIRecordRefuses(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("needs bash")
	}
	out, ok := apiScript(t, recordedAsAsm(t, "unreleased"), "")
	require.True(t, ok, out)
	require.Contains(t, out, "Incompatible changes:")
	require.Contains(t, out, "- CreateMemfd: removed")

	removed := recordedAsAsm(t, "v0.1.0")
	out, ok = apiScript(t, removed, "## [Unreleased]\n\n## [0.1.0]\n- `shm.CreateAt`, and others\n")
	require.False(t, ok, out)
	require.Contains(t, out, "under Unreleased: CreateMemfd")
	var changelog strings.Builder
	changelog.WriteString("## [Unreleased]\n")
	for line := range strings.Lines(out) {
		if _, what, named := strings.Cut(line, "under Unreleased: "); named {
			changelog.WriteString("- Removed: " + what)
		}
	}
	changelog.WriteString("## [0.1.0]\n")
	out, ok = apiScript(t, removed, changelog.String())
	require.True(t, ok, out)

	out, ok = apiScript(t, recordedAsAsm(t, "v1.0.0"), changelog.String())
	require.False(t, ok, out)
	require.Contains(t, out, "not compatible with v1.0.0: asm, CreateMemfd")
}
