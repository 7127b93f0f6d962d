//go:build linux

package ccache

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/stretchr/testify/require"
)

// TestCompile checks that the same program is compiled only once, even if its source and its header have moved to other
// directories. After a change of the source, of the header or of a flag, it is compiled again. A program that does not
// compile is not kept.
func TestCompile(t *testing.T) {
	cc := proctest.CCompiler(t)
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	write := func(path, text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	const text = "#include <stdio.h>\n#include \"header.h\"\nint main(void) { printf(\"%d %d\", VALUE, FLAG); return 0; }\n"
	build := func(header string, flags ...string) (printed string, kept int, err error) {
		dir := t.TempDir()
		source := filepath.Join(t.TempDir(), "source.c")
		write(source, text)
		write(filepath.Join(dir, "header.h"), header)
		out := filepath.Join(dir, "program")
		err = Compile(cc, append(flags, "-Werror", "-Wall", "-I"+dir, source), out)
		if err == nil {
			b, err := exec.Command(out).Output()
			require.NoError(t, err)
			printed = string(b)
		}
		all, err2 := filepath.Glob(filepath.Join(cache, "shmsync-ccache", "*"))
		require.NoError(t, err2)
		return printed, len(all), err
	}
	for i, c := range []struct {
		header, flag, printed string
		kept                  int
	}{
		{"#define VALUE 1\n", "-DFLAG=1", "1 1", 1},
		{"#define VALUE 1\n", "-DFLAG=1", "1 1", 1},
		{"#define VALUE 2\n", "-DFLAG=1", "2 1", 2},
		{"#define VALUE 2\n", "-DFLAG=3", "2 3", 3},
		{"#define VALUE 1\n", "-DFLAG=1", "1 1", 3},
	} {
		printed, kept, err := build(c.header, c.flag)
		require.NoError(t, err)
		require.Equal(t, c.printed, printed, i)
		require.Equal(t, c.kept, kept, i)
	}
	for range 2 {
		_, kept, err := build("#define VALUE \"\"\n", "-DFLAG=1")
		require.ErrorContains(t, err, "format")
		require.Equal(t, 3, kept)
		_, kept, err = build("", "-DFLAG=1")
		require.ErrorContains(t, err, "VALUE")
		require.Equal(t, 3, kept)
		_, kept, err = build("#error missing\n", "-DFLAG=1")
		require.ErrorContains(t, err, "missing")
		require.Equal(t, 3, kept)
	}

	// If the cache directory cannot be used, Compile compiles each time.
	write(filepath.Join(cache, "file"), "")
	t.Setenv("XDG_CACHE_HOME", filepath.Join(cache, "file"))
	printed, _, err := build("#define VALUE 5\n", "-DFLAG=1")
	require.NoError(t, err)
	require.Equal(t, "5 1", printed)
}

// TestCompileWith checks that a program is linked again if an object file has changed, and only then.
func TestCompileWith(t *testing.T) {
	cc := proctest.CCompiler(t)
	cache, dir := t.TempDir(), t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	library, program := filepath.Join(dir, "library.c"), filepath.Join(dir, "program.c")
	require.NoError(t, os.WriteFile(program, []byte("int value(void);\nint main(void) { return value(); }\n"), 0o600))
	for i, c := range []struct {
		value, kept int
	}{{3, 2}, {3, 2}, {4, 4}, {3, 4}} {
		require.NoError(t, os.WriteFile(library, fmt.Appendf(nil, "int value(void) { return %d; }\n", c.value), 0o600))
		object, err := CompileWith(cc, []string{"-c", library}, nil, filepath.Join(dir, "library.o"))
		require.NoError(t, err)
		out := filepath.Join(dir, "program")
		_, err = CompileWith(cc, []string{program}, []string{object}, out)
		require.NoError(t, err)
		var exit *exec.ExitError
		require.ErrorAs(t, exec.Command(out).Run(), &exit)
		require.Equal(t, c.value, exit.ExitCode(), i)
		all, err := filepath.Glob(filepath.Join(cache, "shmsync-ccache", "*"))
		require.NoError(t, err)
		require.Len(t, all, c.kept, i)
	}
}
