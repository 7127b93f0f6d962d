package tidy

import (
	"go/ast"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const maySkip = ".ci/may-skip"

var skipCondition = regexp.MustCompile(`^(always|one-node|all-memory|arm64|no-freezer-[12]|no-io-uring|linux<\d+\.\d+)$`)

// maySkipRule: each line of .ci/may-skip, the list of tests that a machine of CI may skip, has a condition, a package
// and a test. Each test in the list exists.
var maySkipRule = rule{
	name: "tests that may be skipped exist",
	check: func(files []*file) (found []finding) {
		tests := map[string]bool{}
		for _, f := range files {
			if f.ast == nil || !f.isTest() {
				continue
			}
			for _, d := range f.ast.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
					tests[f.dir()+" "+fn.Name.Name] = true
				}
			}
		}
		for _, f := range files {
			if f.path != maySkip {
				continue
			}
			for i, line := range strings.Split(string(f.src), "\n") {
				words := strings.Fields(line)
				if len(words) == 0 || strings.HasPrefix(line, "#") {
					continue
				}
				if len(words) != 3 || !skipCondition.MatchString(words[0]) {
					found = append(found, f.atLine(i+1, "is not a condition, a package and a test"))
					continue
				}
				name, _, _ := strings.Cut(words[2], "/")
				if !tests[words[1]+" "+name] {
					found = append(found, f.atLine(i+1, "there is no %s in %s", name, words[1]))
				}
			}
		}
		return found
	},
	good: map[string]string{
		"a/b/x_test.go": "package b\n\nfunc TestX() {}\n",
		maySkip:         "# tests\n\nalways a/b TestX\nlinux<6.12  a/b  TestX/part,_*\n",
	},
	bad: []sample{
		{map[string]string{maySkip: "\nalways a TestX\n"}, ".ci/may-skip:2: there is no TestX in a"},
		{map[string]string{"a/x.go": "package a\n\nfunc TestX() {}\n", maySkip: "always a TestX\n"}, "there is no TestX in a"},
		{map[string]string{"a/x_test.go": "package a\n\nfunc TestX() {}\n", maySkip: "sometimes a TestX\n"}, ".ci/may-skip:1: is not"},
		{map[string]string{"a/x_test.go": "package a\n\nfunc TestX() {}\n", maySkip: "always a TestX because\n"}, ".ci/may-skip:1: is not"},
	},
}

// TestSkipsAreChecked checks that .ci/skips prints the tests that every step of a CI run has skipped. With -check,
// .ci/skips omits the tests that the list in .ci/may-skip allows.
func TestSkipsAreChecked(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("needs bash")
	}
	const log = `==> some step
=== RUN   TestTortureSeesWaits
    torture_test.go:193: needs the CPUs for half of the time; other programs took them for 80 %
--- SKIP: TestTortureSeesWaits (1.00s)
PASS
ok  	` + module + `/cmd/shmbench	1.0s
=== RUN   TestHugePages
=== RUN   TestHugePages/2M
    memfd_linux_test.go:58: needs a free huge page of 2 MiB
=== RUN   TestHugePages/1G
    memfd_linux_test.go:56: needs a free huge page of 1 GiB
--- PASS: TestHugePages (0.00s)
    --- SKIP: TestHugePages/2M (0.00s)
    --- SKIP: TestHugePages/1G (0.00s)
=== RUN   TestMemfdBad
    memfd_linux_test.go:1: needs the build tag crashpoint
--- SKIP: TestMemfdBad (0.00s)
PASS
ok  	` + module + `/shm	1.0s
==> another step
=== RUN   TestMemfdBad
--- PASS: TestMemfdBad (0.00s)
PASS
ok  	` + module + `/shm	1.0s
`
	const (
		page   = "shm\tTestHugePages/2M\tneeds a free huge page of 2 MiB\n"
		others = "shm\tTestHugePages/1G\tneeds a free huge page of 1 GiB\n"
		first  = "cmd/shmbench\tTestTortureSeesWaits\tneeds the CPUs for half of the time; other programs took them for 80 %\n"
	)
	path := filepath.Join(t.TempDir(), "log")
	skips := func(log string, args ...string) (string, int) {
		require.NoError(t, os.WriteFile(path, []byte(log), 0o600))
		c := exec.Command(filepath.Join("..", "..", ".ci", "skips"), append(args, path)...)
		out, _ := c.Output()
		return string(out), c.ProcessState.ExitCode()
	}
	out, code := skips(log)
	require.Equal(t, first+others+page, out)
	require.Zero(t, code)
	out, code = skips(log, "-check")
	require.Equal(t, page, out)
	require.Equal(t, 1, code)
	out, code = skips(strings.ReplaceAll(log, "SKIP: TestHugePages/2M", "PASS: TestHugePages/2M"), "-check")
	require.Empty(t, out)
	require.Zero(t, code)
	_, code = skips("==> no step\n", "-check")
	require.Equal(t, 2, code)
}
