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

// A process that has rolled back a transaction stores the state of the log with release order. Otherwise another
// process could see the end of the rollback and free memory before the restored bytes are there.
func TestEndOfRollbackIsRelease(t *testing.T) {
	const head = "/* Sets the state of the log to lost. The caller"
	dir := t.TempDir()
	h := cut(t, "22-sys.h", "SHMI_FN uint32_t shmi_ld32", "/* Stores to a word that only")
	h = append(h, cut(t, "49-log.h", "/* Stores the state of a log. A store", "SHMI_FN uint64_t shmi_make_log(")...)
	h = append(h, cut(t, "49-log.h", head, "/* Sets the state of the log to lost if")...)
	h = append(h, cut(t, "49-log.h", "SHMI_FN int shmi_log_end(", "/* As shmi_log_end, for")...)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "order.h"), h, 0o600))
	for name, command := range map[string][]string{
		"gcc":   {"aarch64-linux-gnu-gcc"},
		"clang": {"clang", "--target=aarch64-none-elf"},
	} {
		t.Run(name, func(t *testing.T) {
			proctest.Program(t, command[0])
			for _, level := range []string{"-O0", "-O2"} {
				args := append(command[1:], "-march=armv8-a", "-std=c11", "-ffreestanding", level, "-I"+dir, "-S", "-o", "-",
					filepath.Join("testdata", "log_order.c"))
				out, err := exec.Command(command[0], args...).CombinedOutput()
				require.NoError(t, err, "%s", out)
				for function, stores := range map[string]int{"lose": 1, "end": 2} {
					found := 0
					for _, line := range armFunction(string(out), function) {
						require.NotRegexp(t, `^st[rp] .*\[(x[01]?\d|x2[0-8])\b`, line, "%s %s: a plain store that is not on the stack\n%s", level, function, out)
						if regexp.MustCompile(`^stlr x`).MatchString(line) {
							found++
						}
					}
					require.GreaterOrEqual(t, found, stores, "%s %s\n%s", level, function, out)
				}
			}
		})
	}
}
