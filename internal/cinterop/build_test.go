//go:build linux

package cinterop

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
)

// The header compiles without a warning as C11 and as C++17, by each compiler that is
// there, declarations alone and with the implementation.
func TestHeaderCompiles(t *testing.T) {
	cAgent(t) // makes the header
	found := 0
	for _, c := range []struct {
		compiler string
		language []string
	}{
		{"gcc", []string{"-x", "c", "-std=c11"}},
		{"gcc", []string{"-x", "c", "-std=gnu17"}},
		{"clang", []string{"-x", "c", "-std=c11"}},
		{"musl-gcc", []string{"-x", "c", "-std=c11"}},
		{"aarch64-linux-gnu-gcc", []string{"-x", "c", "-std=c11"}},
		{"g++", []string{"-x", "c++", "-std=c++17"}},
		{"clang++", []string{"-x", "c++", "-std=c++17"}},
	} {
		if _, err := exec.LookPath(c.compiler); err != nil {
			t.Logf("there is no %s", c.compiler)
			continue
		}
		probe := exec.Command(c.compiler, "-x", "c", "-fsyntax-only", "-")
		probe.Stdin = strings.NewReader("#include <stdio.h>\n")
		if out, err := probe.CombinedOutput(); err != nil {
			t.Logf("%s has no C library: %s", c.compiler, out)
			continue
		}
		found++
		// The optimizer, which finds some of the mistakes that are warned of, takes ten times
		// as long as the rest.
		how := []string{"-fsyntax-only"}
		if proctest.Long() {
			how = []string{"-O1", "-c", "-o", os.DevNull}
		}
		for _, source := range []string{"implementation.c", "declarations.c"} {
			args := slices.Concat(how, []string{"-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror", "-I" + built.dir}, c.language)
			out, err := exec.Command(c.compiler, append(args, filepath.Join("testdata", source))...).CombinedOutput()
			require.NoError(t, err, "%s %v %s: %s", c.compiler, c.language, source, out)
		}
	}
	require.NotZero(t, found)
}

// The header compiles without a warning in every language that it is for. The test uses the
// warnings that careful programs ask for, because the header must not fail their builds.
func TestHeaderMatrix(t *testing.T) {
	compiler(t)
	dir := t.TempDir()
	require.NoError(t, header(dir))
	for _, c := range []struct {
		compiler string
		language string
		standard []string // names of one standard; the compiler knows some of them
	}{
		{"gcc", "c", []string{"c11", "c17", "c23 c2x"}},
		{"clang", "c", []string{"c11", "c17", "c23 c2x"}},
		{"g++", "c++", []string{"c++17", "c++20"}},
		{"clang++", "c++", []string{"c++17", "c++20"}},
	} {
		for _, standard := range c.standard {
			t.Run(c.compiler+" "+standard, func(t *testing.T) {
				needsCompiler(t, c.compiler)
				t.Parallel()
				name := knownStandard(t, c.compiler, c.language, strings.Fields(standard))
				for _, source := range []string{"declarations.c", "implementation.c"} {
					out, err := exec.Command(c.compiler, "-x", c.language, "-std="+name, "-fsyntax-only", "-I"+dir,
						"-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wpedantic", "-Werror", filepath.Join("testdata", source)).CombinedOutput()
					require.NoError(t, err, "%s: %s", source, out)
				}
			})
		}
	}
}

// knownStandard is the first of the names that the compiler knows.
func knownStandard(t *testing.T, compiler, language string, names []string) string {
	t.Helper()
	var out []byte
	for _, name := range names {
		cmd := exec.Command(compiler, "-x", language, "-std="+name, "-fsyntax-only", "-")
		cmd.Stdin = strings.NewReader("int main(void);\n")
		var err error
		if out, err = cmd.CombinedOutput(); err == nil {
			return name
		}
	}
	t.Skipf("needs a %s that knows %v: %s", compiler, names, out)
	return ""
}

// The C programs run under the sanitizers. A report ends the program, and so fails the test that
// runs here once more.
func TestSanitizers(t *testing.T) {
	if os.Getenv(cflagsEnv) != "" {
		return // this is such a run
	}
	if !proctest.Long() {
		t.Skip("needs SHMSYNC_TEST_LONG=1: each sanitizer builds the programs again")
	}
	cc := compiler(t)
	self, err := os.Executable()
	require.NoError(t, err)
	for name, flags := range map[string]string{
		"address": "-fsanitize=address,undefined -fno-sanitize-recover=all",
		"thread":  "-fsanitize=thread",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			probe := filepath.Join(dir, "probe.c")
			require.NoError(t, os.WriteFile(probe, []byte("int main(void) { return 0; }\n"), 0o600))
			bin := filepath.Join(dir, "probe")
			if out, err := exec.Command(cc, "-fsanitize="+name, probe, "-o", bin).CombinedOutput(); err != nil {
				t.Skipf("needs a compiler with this sanitizer; %s says: %s", cc, out)
			}
			if out, err := exec.Command(bin).CombinedOutput(); err != nil {
				t.Skipf("needs a system on which programs with this sanitizer run: %v: %s", err, out)
			}
			run := func(args, env []string) string {
				cmd := exec.Command(self, append(args, "-test.v")...)
				cmd.Env = append(append(os.Environ(), cflagsEnv+"="+flags,
					"TSAN_OPTIONS=halt_on_error=1:die_after_fork=0:exitcode=66", "UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1", "ASAN_OPTIONS=detect_leaks=0"), env...)
				out, err := cmd.CombinedOutput()
				require.NoError(t, err, string(out))
				require.NotContains(t, string(out), "WARNING: ThreadSanitizer")
				return string(out)
			}
			require.Contains(t, run([]string{"-test.run", sanitized}, nil), "--- PASS: TestMutexStress")
			brief, shows := sanitizedInBrief, "TestContract"
			if name == "thread" {
				// ThreadSanitizer has a thread of its own, which outlives the last one of a program of the contract.
				brief, shows = "^TestRWMutex.*$", "TestRWMutexPlain"
			}
			require.Contains(t, run([]string{"-test.run", brief, "-test.short"}, []string{"SHMSYNC_TEST_LONG=0"}), "--- PASS: "+shows)
		})
	}
}

// One program calls every object, and gets the right results however it is compiled. The
// sets of flags are those that show a variable without a value: a compiler that does not
// optimize leaves garbage in it, one that fills it leaves 0xfe, MemorySanitizer ends the
// program where the value decides something, and the warnings find what no run came by.
func TestScenario(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: each set of flags compiles the header again")
	}
	cAgent(t) // makes the header
	for _, c := range []struct {
		name     string
		compiler string
		flags    string
	}{
		{"gcc -O0", "gcc", "-O0"},
		{"gcc -O0, variables filled", "gcc", "-O0 -ftrivial-auto-var-init=pattern"},
		{"gcc -O2", "gcc", "-O2"},
		{"clang -O2", "clang", "-O2"},
		{"gcc -Og", "gcc", "-Og -Wmaybe-uninitialized"},
		{"clang -O0, variables filled", "clang", "-O0 -ftrivial-auto-var-init=pattern -Wuninitialized -Wsometimes-uninitialized -Wconditional-uninitialized"},
		{"clang MemorySanitizer", "clang", "-O0 -fsanitize=memory -fno-sanitize-recover=all"},
	} {
		t.Run(c.name, func(t *testing.T) {
			needsCompiler(t, c.compiler)
			t.Parallel()
			bin := filepath.Join(t.TempDir(), "scenario")
			args := append([]string{"-std=c11", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I" + built.dir}, strings.Fields(c.flags)...)
			out, err := exec.Command(c.compiler, append(args, filepath.Join("testdata", "scenario.c"), "-o", bin, "-pthread")...).CombinedOutput()
			if err != nil && regexp.MustCompile(`unrecognized command.line option|unknown argument|libclang_rt`).Match(out) {
				t.Skipf("needs a newer %s, or its sanitizer library: %s", c.compiler, out)
			}
			require.NoError(t, err, string(out))
			out, err = exec.Command(bin, unusedName(t)).CombinedOutput()
			require.NoError(t, err, string(out))
		})
	}
}

// sanitized are the tests that run under the sanitizers: those in which the C programs
// have many threads.
const sanitized = "^(TestMutex.*|TestFutex.*|TestMultiLock.*|TestReapEachOther|TestCreateInC|TestCore|TestFromFD|TestGroupKilled|TestSignalWaker.*|TestWaitAll|TestQueueBatch)$"

// sanitizedInBrief are those that do so with few rounds. TestCrowds is none of them: it counts sleeps, which a sanitizer
// makes longer.
const sanitizedInBrief = "^(TestContract|TestCloseWaitsForCalls|TestCallsWhileTheArenaIsBeingClosed|TestRWMutex.*)$"
