package proctest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// CCompiler returns the C compiler. If there is none, CCompiler skips the test, and counts the given helpers, which
// the test would have started, as used. If SHMSYNC_NEED_CC is set, CCompiler fails the test instead.
func CCompiler(t testing.TB, helpers ...string) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		if os.Getenv("SHMSYNC_NEED_CC") != "" {
			t.Fatal(err)
		}
		Skip(t, "needs a C compiler: "+err.Error(), helpers...)
	}
	return cc
}

// CheckSourceInC compiles a C program that works on a page of shared memory, together with the header of the C
// library. The flags must define each name of the page's layout that the source uses. The test fails if the
// compiler, with its strictest warnings, reports an error or a warning.
func CheckSourceInC(t testing.TB, source, header string, flags []string) {
	t.Helper()
	defined := map[string]bool{}
	for _, f := range flags {
		name, _, _ := strings.Cut(strings.TrimPrefix(f, "-D"), "=")
		defined[name] = true
	}
	used := regexp.MustCompile(`\bPAGE_[A-Z_]+\b`).FindAllString(source, -1)
	if len(used) < 15 {
		t.Fatalf("the source uses %d names of the page", len(used))
	}
	for _, name := range used {
		if !defined[name] {
			t.Fatalf("no flag defines %s", name)
		}
	}
	cc, dir := CCompiler(t), t.TempDir()
	for name, text := range map[string]string{"program.c": source, "shmsync.h": header} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := slices.Concat([]string{"-std=gnu11", "-fsyntax-only", "-Wall", "-Wextra", "-Wshadow", "-Wpedantic", "-Werror"}, flags, []string{"program.c"})
	cmd := exec.Command(cc, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
