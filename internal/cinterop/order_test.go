//go:build linux

package cinterop

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
)

// cut returns the text of a part of the header from one string up to another, without the second string.
func cut(t *testing.T, name, from, to string) []byte {
	t.Helper()
	src, err := part(name)
	require.NoError(t, err)
	m := regexp.MustCompile(`(?s)` + regexp.QuoteMeta(from) + `.*?` + regexp.QuoteMeta(to)).Find(src)
	require.NotNil(t, m, "%s has no longer what lies between %q and %q", name, from, to)
	return m[:len(m)-len(to)]
}

// A store that marks a death record as invalid comes before all other changes of the record. Otherwise a reader could
// see a torn record. The same holds for the description of a participant. The test compiles for ARMv8.0, where an
// exchange is two instructions, and later stores can overtake the second instruction.
func TestDeathRecordIsInvalidBeforeItChanges(t *testing.T) {
	clang := proctest.Program(t, "clang") // compiles for arm64 on every machine
	dir := t.TempDir()
	h := cut(t, "01-arena-api.h", "typedef struct shmsync_participant {", "\n\n")
	h = append(h, cut(t, "22-sys.h", "SHMI_FN uint32_t shmi_ld32", "SHMI_FN void shmi_put64(")...)
	h = append(h, cut(t, "22-sys.h", "#if defined(__has_feature)", "SHMI_FN void shmi_pause")...)
	h = append(h, cut(t, "34-dead.h", "/* ---- Death records ---- */", "/* Records that this participant leaves")...)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "order.h"), h, 0o600))
	out, err := exec.Command(clang, "--target=aarch64-none-elf", "-march=armv8-a", "-ffreestanding", "-O2", "-I"+dir,
		"-S", "-o", "-", filepath.Join("testdata", "order.c")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, name := range []string{"write_record", "describe_self"} {
		code := regexp.MustCompile(`(?s)\n` + name + `:.*?\n\s*ret\n`).Find(out)
		require.NotNil(t, code, "%s", out)
		fence := regexp.MustCompile(`\n\s+dmb\s+ish\n`).FindIndex(code)
		require.NotNil(t, fence, "no fence after the store of number 0:\n%s", code)
		releases := regexp.MustCompile(`\n\s+stlr\s`).FindAllIndex(code, -1)
		require.GreaterOrEqual(t, len(releases), 2, "%s", code)
		require.Less(t, releases[0][0], fence[0], "the first store, of number 0, comes before the fence:\n%s", code)
		require.Less(t, fence[0], releases[len(releases)-1][0], "the last store, of the new number, comes after it:\n%s", code)
		require.Nil(t, regexp.MustCompile(`\n\s+st(r|p|lr)\s`).Find(code[releases[0][1]:fence[0]]), "nothing is stored in between:\n%s", code)
	}
}
