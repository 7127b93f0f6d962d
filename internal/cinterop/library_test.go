//go:build linux

package cinterop

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// The Makefile in folder c builds a library that pkg-config finds. A program that uses the library shares an
// arena with Go.
func TestLibrary(t *testing.T) {
	cc := compiler(t)
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	lib := filepath.Join(root, "usr", "lib")
	for _, prefix := range []string{"/opt/shmsync", "/usr"} {
		makeLibrary(t, cc, "O="+library(t, cc), "DESTDIR="+root, "prefix="+prefix, "install")
		require.Equal(t, prefix, pcVariable(t, filepath.Join(root, prefix, "lib", "pkgconfig"), "prefix"))
	}

	for _, page := range []string{"man3/shmsync_mutex.3", "man3/shmsync_mutex_lock.3", "man3/shmsync_lease_ack.3", "man7/shmsync.7"} {
		text, err := os.ReadFile(filepath.Join(root, "usr", "share", "man", page))
		require.NoError(t, err)
		require.Contains(t, string(text), ".Sh NAME")
	}
	f, err := elf.Open(filepath.Join(lib, "libshmsync.so"))
	require.NoError(t, err)
	defer f.Close()
	name, err := f.DynString(elf.DT_SONAME)
	require.NoError(t, err)
	require.Equal(t, []string{"libshmsync.so.0"}, name)
	// All libraries that a program loads with dlopen share about 1,600 bytes for their thread-local variables. This
	// library takes 724 of these bytes, and gaps that depend on the compiler.
	for _, p := range f.Progs {
		if p.Type == elf.PT_TLS {
			require.LessOrEqual(t, p.Memsz, uint64(736), "thread-local variables")
		}
	}
	symbols, err := f.DynamicSymbols()
	require.NoError(t, err)
	exported := 0
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF && elf.ST_BIND(s.Info) != elf.STB_LOCAL && s.Section != elf.SHN_ABS {
			require.True(t, strings.HasPrefix(s.Name, "shmsync_"), s.Name)
			exported++
		}
	}
	require.Greater(t, exported, 250)
	whole, err := os.ReadFile(filepath.Join(lib, "libshmsync.so"))
	require.NoError(t, err)
	require.True(t, bytes.Contains(whole, []byte("SHMSYNC_0.1\x00")))

	pc := exec.Command("pkg-config", "--cflags", "--libs", "shmsync")
	pc.Env = append(os.Environ(), "PKG_CONFIG_PATH="+filepath.Join(lib, "pkgconfig"), "PKG_CONFIG_SYSROOT_DIR="+root,
		"PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1", "PKG_CONFIG_ALLOW_SYSTEM_LIBS=1")
	flags, err := pc.Output()
	require.NoError(t, err)
	for _, language := range [][]string{{"-std=c11", "-Wpedantic"}, {"-std=gnu17"}} {
		bin := filepath.Join(dir, "client")
		args := append(language, "-Wall", "-Wextra", "-Werror", filepath.Join("testdata", "client.c"), "-o", bin)
		out, err := exec.Command(cc, append(args, strings.Fields(string(flags))...)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		besideGo(t, bin, lib)
	}
}

// library builds the library once for all tests, and returns its folder.
func library(t *testing.T, cc string) (dir string) {
	t.Helper()
	cAgent(t) // makes the directory
	dir = filepath.Join(built.dir, "library")
	makeLibrary(t, quickCompiler(cc), "O="+dir)
	return dir
}

// pcVariable returns a variable of the file that pkg-config finds in the folder.
func pcVariable(t *testing.T, dir, name string) string {
	t.Helper()
	pc := exec.Command("pkg-config", "--variable="+name, "shmsync")
	pc.Env = append(os.Environ(), "PKG_CONFIG_LIBDIR="+dir)
	out, err := pc.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return strings.TrimSpace(string(out))
}

// makeLibrary runs make in the folder c.
func makeLibrary(t *testing.T, cc string, args ...string) {
	t.Helper()
	for _, tool := range []string{"make", "pkg-config"} {
		if _, err := exec.LookPath(tool); err != nil {
			require.Empty(t, os.Getenv("SHMSYNC_NEED_MAKE"), err)
			t.Skip("needs make and pkg-config")
		}
	}
	args = append([]string{"-C", filepath.Join("..", "..", "c"), "CC=" + cc, "CFLAGS=-O0"}, args...)
	out, err := exec.Command("make", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// The Debian package declares the dependencies that dpkg-shlibdeps computes for the library.
func TestPackageDependencies(t *testing.T) {
	cc := compiler(t)
	for _, tool := range []string{"bash", "readelf", "dpkg-shlibdeps"} {
		if _, err := exec.LookPath(tool); err != nil {
			require.Empty(t, os.Getenv("SHMSYNC_NEED_SHLIBDEPS"), err)
			t.Skip("needs bash, readelf and dpkg-shlibdeps, of the packages bash, binutils and dpkg-dev")
		}
	}
	dir, libraries := t.TempDir(), library(t, cc)
	libs, err := filepath.Glob(filepath.Join(libraries, "libshmsync.so.0*"))
	require.NoError(t, err)
	require.NotEmpty(t, libs)
	run := func(name string, args ...string) string {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.Output()
		require.NoError(t, err, "%s: %s", name, &said)
		return strings.TrimSpace(string(out))
	}
	release, err := filepath.Abs(filepath.Join("..", "..", ".ci", "release"))
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "debian"), 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "debian", "control"),
		[]byte("Source: shmsync\n\nPackage: shmsync\nArchitecture: any\n"), 0o666))
	want := run("dpkg-shlibdeps", "-O", libs[0])
	require.Contains(t, want, "libc6 (>= ")
	require.Equal(t, want, "shlibs:Depends="+run("bash", release, "--needs", libs[0]))
}

// The examples of the manual pages compile without a warning. Each example runs twice: the first run creates an arena,
// and the second run finds it.
func TestManPageExamples(t *testing.T) {
	t.Parallel()
	cc := compiler(t)
	dir := library(t, cc)
	examples, err := filepath.Glob(filepath.Join("..", "..", "c", "examples", "*.c"))
	require.NoError(t, err)
	require.Len(t, examples, 25)
	for _, source := range examples {
		t.Run(strings.TrimSuffix(filepath.Base(source), ".c"), func(t *testing.T) {
			bin := filepath.Join(t.TempDir(), "example")
			// Use the flags that pkg-config prints. With -pthread, the headers would also declare functions of POSIX.
			out, err := exec.Command(cc, "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror",
				"-I"+dir, source, filepath.Join(dir, "libshmsync.a"), "-o", bin, "-lpthread").CombinedOutput()
			require.NoError(t, err, "%s", out)
			name := unusedName(t)
			for range 2 {
				out, err = exec.Command(bin, name).CombinedOutput()
				require.NoError(t, err, "%s", out)
				require.NotEmpty(t, out)
			}
			sound(t, name)
		})
	}
}

// besideGo runs the program while this process holds the mutex that the program wants.
func besideGo(t *testing.T, bin, lib string) {
	t.Helper()
	name := coreArena(t, 2<<20)
	a, err := arena.Attach(name, nil)
	require.NoError(t, err)
	defer a.Close()
	m, err := prims.OpenMutex(a, "m", nil)
	require.NoError(t, err)
	n, err := a.Block("n", 1)
	require.NoError(t, err)
	m.Lock()
	cmd := exec.Command(bin, name)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+lib)
	cmd.Stderr = os.Stderr
	said, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line := make([]byte, len("busy\n"))
	_, err = said.Read(line)
	require.NoError(t, err)
	require.Equal(t, "busy\n", string(line))
	m.Unlock()
	require.NoError(t, cmd.Wait())
	m.Lock()
	defer m.Unlock()
	require.Equal(t, byte(1), n[0])
}

// CMake builds and installs the same library as make. A CMake project finds the library by name and version.
func TestCMake(t *testing.T) {
	cc := compiler(t)
	if !proctest.Long() {
		t.Skip("needs SHMSYNC_TEST_LONG=1: it builds the library again")
	}
	for _, tool := range []string{"cmake", "make"} {
		if _, err := exec.LookPath(tool); err != nil {
			require.Empty(t, os.Getenv("SHMSYNC_NEED_CMAKE"), err)
			t.Skip("needs cmake and make")
		}
	}
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	run := func(args ...string) (string, error) {
		cmd := exec.Command("cmake", args...)
		cmd.Env = append(os.Environ(), "CC="+cc, "CMAKE_GENERATOR=Unix Makefiles")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	must := func(args ...string) {
		out, err := run(args...)
		require.NoError(t, err, "%s", out)
	}
	c := filepath.Join("..", "..", "c")
	build := filepath.Join(dir, "build")
	must("-S", c, "-B", build, "-DCMAKE_INSTALL_LIBDIR=lib", "-DCMAKE_BUILD_TYPE=None", "-DCMAKE_C_FLAGS=-O0")
	must("--build", build)
	must("--install", build, "--prefix", root)
	if _, err := exec.LookPath("pkg-config"); err == nil {
		pc := filepath.Join(root, "lib", "pkgconfig")
		require.Equal(t, root, pcVariable(t, pc, "prefix"))
		require.Equal(t, filepath.Join(root, "lib"), pcVariable(t, pc, "libdir"))
		require.Equal(t, filepath.Join(root, "include"), pcVariable(t, pc, "includedir"))
	}

	// The header is the one that make builds, and the shared library has the same name and version.
	header := filepath.Join(dir, "shmsync.h")
	out, err := exec.Command("sh", filepath.Join(c, "assemble"), "header", header).CombinedOutput()
	require.NoError(t, err, "%s", out)
	want, err := os.ReadFile(header)
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(root, "include", "shmsync.h"))
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
	lib := filepath.Join(root, "lib")
	f, err := elf.Open(filepath.Join(lib, "libshmsync.so"))
	require.NoError(t, err)
	defer f.Close()
	name, err := f.DynString(elf.DT_SONAME)
	require.NoError(t, err)
	require.Equal(t, []string{"libshmsync.so.0"}, name)
	symbols, err := f.DynamicSymbols()
	require.NoError(t, err)
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF && s.Section != elf.SHN_ABS {
			require.True(t, strings.HasPrefix(s.Name, "shmsync_"), s.Name)
		}
	}
	page, err := os.ReadFile(filepath.Join(root, "share", "man", "man3", "shmsync_mutex_lock.3"))
	require.NoError(t, err)
	require.Equal(t, ".so man3/shmsync_mutex.3\n", string(page))

	consumer := filepath.Join(dir, "consumer")
	must("-S", filepath.Join("testdata", "consumer"), "-B", consumer, "-DCMAKE_PREFIX_PATH="+root, "-DWANT=0.1")
	must("--build", consumer)
	besideGo(t, filepath.Join(consumer, "client_shmsync"), lib)
	besideGo(t, filepath.Join(consumer, "client_static"), "")

	refused, err := run("-S", filepath.Join("testdata", "consumer"), "-B", filepath.Join(dir, "newer"), "-DCMAKE_PREFIX_PATH="+root, "-DWANT=0.2")
	require.Error(t, err)
	require.Contains(t, refused, "0.1.0")
}
