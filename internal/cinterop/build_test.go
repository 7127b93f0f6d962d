//go:build linux

package cinterop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/ccache"
	"github.com/shmsync/shmsync/internal/proctest"
)

// TestHeaderMatrix checks that the header compiles without a warning in every language version that it supports. It
// enables many warnings, because programs that use the header may treat them as errors.
func TestHeaderMatrix(t *testing.T) {
	t.Parallel()
	compiler(t)
	dir := t.TempDir()
	require.NoError(t, header(dir))
	c, cpp := []string{"c11", "c17", "gnu17", "c23 c2x"}, []string{"c++17", "c++20"}
	for _, c := range []struct {
		compiler string // the command, and words that select another target or musl
		language string
		standard []string // each string has all names of one standard: a compiler may know only one name
	}{
		{"gcc", "c", c},
		{"clang", "c", c},
		{"g++", "c++", cpp},
		{"clang++", "c++", cpp},
		{"musl-gcc", "c", c},
		{"aarch64-linux-gnu-gcc", "c", c},
		{"aarch64-linux-gnu-g++", "c++", cpp},
		{"clang " + forARM64, "c", c},
		{"clang++ " + forARM64, "c++", cpp},
		{"clang " + withMusl, "c", c},
		{"g++ " + withMusl, "c++", cpp},
		{"clang++ " + withMusl, "c++", cpp},
		{"aarch64-linux-gnu-gcc " + withMusl, "c", c},
		{"aarch64-linux-gnu-g++ " + withMusl, "c++", cpp},
		{"clang " + forARM64 + " " + withMusl, "c", c},
		{"clang++ " + forARM64 + " " + withMusl, "c++", cpp},
	} {
		for i, standard := range c.standard {
			if i > 0 && !proctest.Long() {
				continue // without SHMSYNC_TEST_LONG, one standard is enough
			}
			t.Run(c.compiler+" "+standard, func(t *testing.T) {
				words := strings.Fields(c.compiler)
				needsCompilers(t, words)
				t.Parallel()
				musl := slices.Contains(words, withMusl)
				words = slices.DeleteFunc(words, func(w string) bool { return w == withMusl })
				name := knownStandard(t, words, c.language, strings.Fields(standard))
				if musl {
					words = append(words, muslHeaders(t, words)...)
				}
				for _, source := range []string{"declarations.c", "implementation.c"} {
					var more []string
					if source == "declarations.c" && c.language == "c++" {
						more = []string{"-Wold-style-cast"} // some projects in C++ allow no casts as in C
					}
					args := slices.Concat(words[1:], []string{"-x", c.language, "-std=" + name, "-fsyntax-only", "-I" + dir,
						"-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wpedantic", "-Werror", filepath.Join("testdata", source)}, more)
					out, err := exec.Command(words[0], args...).CombinedOutput()
					require.NoError(t, err, "%s: %s", source, out)
				}
			})
		}
	}
}

// TestHeaderAfterOtherHeaders checks that a program gets one error, which says what to do, if it compiles the
// implementation after a header of glibc without _GNU_SOURCE.
func TestHeaderAfterOtherHeaders(t *testing.T) {
	compiler(t)
	dir := t.TempDir()
	require.NoError(t, header(dir))
	for _, cc := range []string{"gcc", "clang"} {
		for _, standard := range []string{"-std=c11", "-std=gnu11"} {
			t.Run(cc+standard, func(t *testing.T) {
				compile := func(source string, flags ...string) (string, error) {
					args := append([]string{standard, "-Wall", "-Werror", "-fsyntax-only", "-I" + dir, "-x", "c", "-"}, flags...)
					cmd := exec.Command(proctest.Program(t, cc), args...)
					cmd.Stdin = strings.NewReader(source)
					out, err := cmd.CombinedOutput()
					return string(out), err
				}
				if out, _ := compile("#include <stdio.h>\n#ifndef __GLIBC__\n#error another library\n#endif\n"); strings.Contains(out, "another library") {
					t.Skip("needs glibc")
				}
				const implementation = "#include <stdio.h>\n#define SHMSYNC_IMPLEMENTATION\n#include \"shmsync.h\"\n"
				out, err := compile(implementation)
				require.Error(t, err)
				require.Equal(t, 1, strings.Count(out, "error: "), out)
				require.Contains(t, out, "before other headers, or compile with -D_GNU_SOURCE")
				out, err = compile("#include <stdio.h>\n#define _GNU_SOURCE\n#define SHMSYNC_IMPLEMENTATION\n#include \"shmsync.h\"\n")
				require.Error(t, err)
				require.Equal(t, 1, strings.Count(out, "error: "), out)
				out, err = compile(implementation, "-D_GNU_SOURCE")
				require.NoError(t, err, out)
				out, err = compile("#include <stdio.h>\n#include \"shmsync.h\"\n")
				require.NoError(t, err, out)
			})
		}
	}
}

// These words can follow the name of a compiler in the tables of tests.
const (
	forARM64 = "--target=aarch64-linux-gnu"
	withMusl = "musl" // replaced by the arguments that muslHeaders and muslLibraries return
)

// muslHeaders returns the arguments that make a compiler use the headers of musl.
func muslHeaders(t *testing.T, compiler []string) []string {
	t.Helper()
	root, processor := musl(t, compiler)
	own, err := exec.Command(compiler[0], "-print-file-name=include").Output()
	require.NoError(t, err)
	return []string{"-nostdinc", "-isystem", filepath.Join(root, "include", processor+"-linux-musl"), "-isystem", strings.TrimSpace(string(own))}
}

// muslLibraries returns the arguments that make a compiler link a program with musl. They must follow the sources. The
// program is static, because the loader of musl for another processor is not at the path where a dynamic program needs
// it.
func muslLibraries(t *testing.T, compiler []string) []string {
	t.Helper()
	root, processor := musl(t, compiler)
	dir := filepath.Join(root, "lib", processor+"-linux-musl")
	args := []string{"-nostdlib", "-static", filepath.Join(dir, "crt1.o"), filepath.Join(dir, "crti.o"), filepath.Join(dir, "libc.a")}
	for _, name := range []string{"libgcc.a", "libgcc_eh.a"} {
		path, err := exec.Command(proctest.Program(t, gccFor(processor)), "-print-file-name="+name).Output()
		require.NoError(t, err)
		args = append(args, strings.TrimSpace(string(path)))
	}
	return append(args, filepath.Join(dir, "libc.a"), filepath.Join(dir, "crtn.o"))
}

// musl returns the folder with the headers and libraries of musl, and the name by which musl calls the target processor
// of a compiler.
func musl(t *testing.T, compiler []string) (root, processor string) {
	t.Helper()
	if runtime.GOARCH == "arm64" || strings.Contains(strings.Join(compiler, " "), "aarch64") {
		root := os.Getenv("SHMSYNC_MUSL_ARM64")
		if root == "" {
			t.Skip("needs SHMSYNC_MUSL_ARM64, the folder that .ci/musl-arm64 prints")
		}
		return root, "aarch64"
	}
	proctest.Program(t, "musl-gcc") // the package that has musl-gcc also has the headers
	return "/usr", "x86_64"
}

// gccFor returns the name of the gcc for a processor.
func gccFor(processor string) string {
	if processor == "aarch64" && runtime.GOARCH != "arm64" {
		return "aarch64-linux-gnu-gcc"
	}
	return "gcc"
}

// needsCompilers skips the test if the compiler words[0] is missing. If one of the words is forARM64, it also skips the
// test if gcc for arm64 is missing, because the compiler uses the headers and libraries of that gcc.
func needsCompilers(t *testing.T, words []string) {
	t.Helper()
	proctest.Program(t, words[0])
	if slices.Contains(words, forARM64) {
		proctest.Program(t, "aarch64-linux-gnu-gcc")
	}
}

// knownStandard returns the first name in names that the compiler knows. If it knows none, the test is skipped.
func knownStandard(t *testing.T, compiler []string, language string, names []string) string {
	t.Helper()
	var out []byte
	for _, name := range names {
		cmd := exec.Command(compiler[0], append(compiler[1:len(compiler):len(compiler)], "-x", language, "-std="+name, "-fsyntax-only", "-")...)
		cmd.Stdin = strings.NewReader("int main(void);\n")
		var err error
		if out, err = cmd.CombinedOutput(); err == nil {
			return name
		}
	}
	t.Skipf("needs a %s that knows %v: %s", compiler[0], names, out)
	return ""
}

// TestSanitizers runs tests of C programs under the sanitizers. It starts this test binary again for each sanitizer. A
// mistake that a sanitizer reports ends the C program, so its test fails.
func TestSanitizers(t *testing.T) {
	t.Parallel()
	if os.Getenv(cflagsEnv) != "" {
		return // this process was started by TestSanitizers
	}
	if !proctest.Long() {
		t.Skip("needs SHMSYNC_TEST_LONG=1: each sanitizer builds the programs again")
	}
	cc := compiler(t)
	self, err := os.Executable()
	require.NoError(t, err)
	for _, c := range []struct {
		name, sanitizer, compiler, flags string
	}{
		{"address", "address", cc, "-fsanitize=address,undefined -fno-sanitize-recover=all"},
		{"thread", "thread", cc, "-fsanitize=thread"},
		{"thread, clang", "thread", "clang", "-fsanitize=thread"},
	} {
		t.Run(c.name, func(t *testing.T) {
			other, need := c.compiler != cc, "SHMSYNC_NEED_SANITIZERS"
			if other {
				need = "SHMSYNC_NEED_CLANG_SANITIZERS"
				proctest.Program(t, c.compiler)
			}
			dir := t.TempDir()
			probe := filepath.Join(dir, "probe.c")
			require.NoError(t, os.WriteFile(probe, []byte("int main(void) { return 0; }\n"), 0o600))
			bin := filepath.Join(dir, "probe")
			if out, err := exec.Command(c.compiler, "-fsanitize="+c.sanitizer, probe, "-o", bin).CombinedOutput(); err != nil {
				proctest.Missing(t, need, fmt.Sprintf("needs a compiler with this sanitizer; %s says: %s", c.compiler, out))
			}
			if out, err := exec.Command(bin).CombinedOutput(); err != nil {
				proctest.Missing(t, need, fmt.Sprintf("needs a system on which programs with this sanitizer run: %v: %s", err, out))
			}
			// A sanitizer makes a program many times slower, so the runs are short. Few rounds are enough: a sanitizer
			// reports two unordered accesses even if they did not happen at the same time.
			run := func(args ...string) string {
				args = append(args, "-test.v")
				if end, limited := t.Deadline(); limited { // the process ends before this one, and shows its stacks
					args = append(args, "-test.timeout", (time.Until(end) * 9 / 10).String())
				}
				cmd := exec.Command(self, args...)
				cmd.Env = append(os.Environ(), "CC="+c.compiler, cflagsEnv+"="+c.flags, "SHMSYNC_TEST_LONG=0",
					"TSAN_OPTIONS=halt_on_error=1:die_after_fork=0:exitcode=66", "UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1", "ASAN_OPTIONS=detect_leaks=0")
				out, err := cmd.CombinedOutput()
				require.NoError(t, err, "%s", withoutPasses(string(out)))
				require.NotContains(t, string(out), "WARNING: ThreadSanitizer")
				return string(out)
			}
			brief, shows := sanitizedInBrief, "TestContract"
			if c.sanitizer == "thread" {
				// Omit the contract programs. They end when their last thread ends, but a thread of ThreadSanitizer
				// never ends.
				brief, shows = "^TestRWMutex.*$", "TestRWMutexPlain"
			}
			if other {
				brief, shows = sanitizedByClang, "TestCrowds"
			} else {
				require.Contains(t, run("-test.run", sanitized), "--- PASS: TestMutexStress")
			}
			require.Contains(t, run("-test.run", brief, "-test.short"), "--- PASS: "+shows)
		})
	}
}

// withoutPasses returns the output of a test binary without the lines about tests that began or passed. Some logs keep
// only the first lines of a long message, and the failure must be among them.
func withoutPasses(out string) string {
	var b strings.Builder
	for line := range strings.Lines(out) {
		if word := strings.TrimSpace(line); !strings.HasPrefix(word, "=== ") && !strings.HasPrefix(word, "--- PASS") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// TestScenario compiles a program that calls every object, with each compiler and each set of flags, and checks its
// results. The flags find variables that are read before they are set. Without optimization, such a variable has random
// contents, and -ftrivial-auto-var-init fills it with a pattern. MemorySanitizer ends the program when a branch depends
// on such a variable. Warnings cover paths that no run reaches. The programs for arm64 run under qemu-user.
func TestScenario(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a run without -short: each set of flags compiles the header again")
	}
	cAgent(t) // makes the header
	const filled, arm64 = " -ftrivial-auto-var-init=pattern", "clang " + forARM64
	for _, c := range []struct {
		name     string
		compiler string // the command, and words that select another language, target or musl
		flags    string
		long     bool // only with SHMSYNC_TEST_LONG=1
	}{
		{"gcc -O0, variables filled", "gcc", "-O0" + filled, false},
		{"gcc -Og", "gcc", "-Og -Wmaybe-uninitialized", true},
		{"gcc -O2", "gcc", "-O2", true},
		{"g++", "g++ -x c++", "-std=c++17 -O1", true},
		{"clang -O0, variables filled", "clang", "-O0" + filled + " -Wuninitialized -Wsometimes-uninitialized -Wconditional-uninitialized", false},
		{"clang -O3", "clang", "-O3", true},
		{"clang++", "clang++ -x c++", "-std=c++20 -O1", true},
		{"clang MemorySanitizer", "clang", "-O0 -fsanitize=memory -fno-sanitize-recover=all", false},
		{"musl -O0", "musl-gcc", "-O0", true},
		{"musl clang -O0", "clang " + withMusl, "-O0", true},
		{"arm64 gcc -O2", "aarch64-linux-gnu-gcc", "-O2", true},
		{"arm64 clang -O0", arm64, "-O0", true},
		{"arm64 clang -O3", arm64, "-O3", true},
		{"arm64 musl clang -O0", arm64 + " " + withMusl, "-O0", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.long && !proctest.Long() {
				t.Skip("needs SHMSYNC_TEST_LONG=1: each set of flags compiles the header again")
			}
			words := strings.Fields(c.compiler)
			needsCompilers(t, words)
			t.Parallel()
			bin, libraries := filepath.Join(t.TempDir(), "scenario"), []string{"-pthread"}
			if slices.Contains(words, withMusl) {
				words = slices.DeleteFunc(words, func(w string) bool { return w == withMusl })
				libraries = muslLibraries(t, words)
				words = append(words, muslHeaders(t, words)...)
			}
			if !strings.Contains(c.flags, "-std=") {
				words = append(words, "-std=c11")
			}
			args := slices.Concat(words[1:], []string{"-g1", "-Wall", "-Wextra", "-Wconversion", "-Wpedantic", "-Wshadow", "-Werror", "-I" + built.dir}, strings.Fields(c.flags),
				[]string{filepath.Join("testdata", "scenario.c")}, libraries)
			err := ccache.Compile(words[0], args, bin)
			if err != nil && strings.Contains(err.Error(), "libclang_rt") {
				proctest.Missing(t, "SHMSYNC_NEED_MSAN", fmt.Sprintf("needs the sanitizer library of clang: %v", err))
			}
			if err != nil && strings.Contains(c.flags, filled) && olderThan(t, words[0], fills[words[0]]) {
				t.Skipf("needs a newer %s: %v", words[0], err)
			}
			require.NoError(t, err)
			run := []string{bin, unusedName(t)}
			if strings.Contains(c.compiler, "aarch64") {
				run = slices.Concat(arm64Emulator(t), run)
			}
			out, err := exec.Command(run[0], run[1:]...).CombinedOutput()
			require.NoError(t, err, string(out))
		})
	}
}

// fills maps the name of a compiler to the first major version that knows -ftrivial-auto-var-init.
var fills = map[string]int{"gcc": 12, "clang": 8}

// olderThan reports whether the major version of the compiler is below the given one.
func olderThan(t *testing.T, compiler string, version int) bool {
	t.Helper()
	out, err := exec.Command(compiler, "-dumpversion").Output()
	require.NoError(t, err)
	major, _, _ := strings.Cut(strings.TrimSpace(string(out)), ".")
	n, err := strconv.Atoi(major)
	require.NoError(t, err)
	return n < version
}

// arm64Emulator returns the command that runs a program for arm64, with the C library of the gcc for arm64. On an arm64
// host, the command is empty.
func arm64Emulator(t *testing.T) []string {
	if runtime.GOARCH == "arm64" {
		return nil
	}
	proctest.Program(t, "qemu-aarch64-static")
	return []string{"qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu"}
}

// sanitized matches the tests that TestSanitizers runs without -short: those whose C programs have many threads.
const sanitized = "^(TestMutex.*|TestFutex.*|TestMultiLock.*|TestReapEachOther|TestCreateInC|TestCore|TestFromFD|TestGroupKilled|TestSignalWaker.*|TestWaitAll|TestQueueBatch)$"

// sanitizedInBrief matches further tests, which TestSanitizers runs with -short.
const sanitizedInBrief = "^(TestContract|TestCloseWaitsForCalls|TestCallsWhileTheArenaIsBeingClosed|TestRWMutex.*)$"

// sanitizedByClang matches the tests that TestSanitizers runs with -short under the ThreadSanitizer of clang.
// TestCrowds has 512 threads, and takes three times as much CPU time under the ThreadSanitizer of gcc.
const sanitizedByClang = "^(TestCore|TestCreateInC|TestMutexPlain|TestMutexStress|TestFutexPlain|TestRWMutexPlain|TestCrowds)$"
