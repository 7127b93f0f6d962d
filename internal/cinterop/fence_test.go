//go:build linux

package cinterop

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
)

// In a program for the thread sanitizer, the fences of the header are fences of the CPU, too: they order the words of
// the library beside plain data of the program, and beside other programs. The sanitizer replaces each fence by a call
// of its own fence, which is one of the CPU. The compilers give no warning about the fences.
func TestFencesInBuildsForTheThreadSanitizer(t *testing.T) {
	dir := t.TempDir()
	h := cut(t, "22-sys.h", "/* shmi_full_fence orders", "SHMI_FN void shmi_pause")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "fences.h"), h, 0o600))
	for name, c := range map[string]struct{ arch, command string }{
		"gcc":          {runtime.GOARCH, "gcc"},
		"clang":        {runtime.GOARCH, "clang"},
		"gcc, arm64":   {"arm64", "aarch64-linux-gnu-gcc"},
		"clang, arm64": {"arm64", "clang " + forARM64},
	} {
		t.Run(name, func(t *testing.T) {
			words := strings.Fields(c.command + " -std=c11 -ffreestanding -Wall -Wextra -Werror -fsanitize=thread")
			proctest.Program(t, words[0])
			fences := []string{"full", "loads"}
			if c.arch != "amd64" {
				fences = append(fences, "after_cas")
			}
			for _, level := range []string{"-O0", "-O2"} {
				args := append(words[1:], level, "-I"+dir, "-S", "-o", "-", filepath.Join("testdata", "fences.c"))
				out, err := exec.Command(words[0], args...).CombinedOutput()
				require.NoError(t, err, "%s", out)
				for _, function := range fences {
					code := strings.Join(armFunction(string(out), function), "\n")
					require.Regexp(t, `\b(bl|call|callq)\s+__tsan_atomic_thread_fence\b`, code, "%s %s\n%s", level, function, out)
				}
			}
		})
	}
}
