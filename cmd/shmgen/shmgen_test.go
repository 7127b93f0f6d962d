package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/cmd/shmgen/internal/every"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/typetext"
)

var update = flag.Bool("update", false, "write the headers anew")

func TestHeaderOfEveryKind(t *testing.T) {
	golden := filepath.Join("internal", "every", "every_shm.h")
	out := filepath.Join(t.TempDir(), "every_shm.h")
	if *update {
		out = golden
	}
	for range 2 { // to check that the output is the same each time
		var stdout, stderr bytes.Buffer
		require.Zero(t, realMain([]string{"-type", "Every", "-o", out, "./internal/every"}, &stdout, &stderr), stderr.String())
		require.Empty(t, stdout.String())
		got, err := os.ReadFile(out)
		require.NoError(t, err)
		want, err := os.ReadFile(golden)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "write it with: go generate ./cmd/shmgen/internal/every")
	}
}

// TestHeadersInTheTree checks that the generated headers in this repository are up to date.
func TestHeadersInTheTree(t *testing.T) {
	directive := regexp.MustCompile(`(?m)^//go:generate go run github.com/shmsync/shmsync/cmd/shmgen (.*)$`)
	headers := 0
	for _, pattern := range []string{"examples/*/*.go", "cmd/shmgen/internal/*/*.go"} {
		files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(pattern)))
		require.NoError(t, err)
		for _, file := range files {
			src, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, m := range directive.FindAllStringSubmatch(string(src), -1) {
				headers++
				args := strings.Fields(m[1])
				want, err := os.ReadFile(filepath.Join(filepath.Dir(file), args[slices.Index(args, "-o")+1]))
				require.NoError(t, err)
				out := filepath.Join(t.TempDir(), filepath.Base(args[slices.Index(args, "-o")+1]))
				args[slices.Index(args, "-o")+1] = out
				var stderr bytes.Buffer
				require.Zero(t, realMain(append(args, "./"+filepath.Dir(file)), os.Stdout, &stderr), stderr.String())
				got, err := os.ReadFile(out)
				require.NoError(t, err)
				require.Equal(t, string(want), string(got), "write it with: go generate ./%s", strings.TrimPrefix(filepath.ToSlash(filepath.Dir(file)), "../../"))
			}
		}
	}
	require.GreaterOrEqual(t, headers, 3)
}

// TestUnchangedHeaderIsNotWritten checks that shmgen does not write a header whose text stays the same. A write would
// make make(1) rebuild the files that include the header.
func TestUnchangedHeaderIsNotWritten(t *testing.T) {
	out := filepath.Join(t.TempDir(), "x_shm.h")
	run := func() os.FileInfo {
		var stderr bytes.Buffer
		require.Zero(t, realMain([]string{"-type", "Small", "-o", out, "./internal/every"}, os.Stdout, &stderr), stderr.String())
		info, err := os.Stat(out)
		require.NoError(t, err)
		return info
	}
	run()
	require.NoError(t, os.Chmod(out, 0o400))
	require.EqualValues(t, 0o400, run().Mode().Perm())
}

// The header and the running Go program describe a type by the same text.
func TestDescriptionIsThatOfTheProgram(t *testing.T) {
	pkg, err := load("./internal/every")
	require.NoError(t, err)
	h, err := describe(pkg, []string{"Every", "Small"})
	require.NoError(t, err)
	for name, v := range map[string]any{"every": every.Every{}, "small": every.Small{}} {
		d, err := typetext.Of(reflect.TypeOf(v))
		require.NoError(t, err)
		require.Equal(t, d.String(), h.byName[name].text)
	}
	require.Equal(t, arenakernel.TypeTextOf[every.Every](), h.byName["every"].text)
	layout, err := arena.LayoutOf[every.Every]()
	require.NoError(t, err)
	require.Equal(t, layout, typetext.Fingerprint(h.byName["every"].text))
}

func TestErrorsNameTheFieldAndWhatToTake(t *testing.T) {
	for name, want := range map[string]string{
		"String":    "field Owner: a string refers to the memory of one process; take an array of bytes, and its length",
		"Slice":     "field List: a slice refers to the memory of one process; take an array, or the arena.Offset and the length of a block",
		"Map":       "field Table: a map refers to the memory of one process; take an array, or a table of arena.Offset",
		"Pointer":   "field Next: a pointer refers to the memory of one process; take an arena.Offset, or a number",
		"Interface": "field Any: a interface refers",
		"Func":      "field F: a func refers to the memory of one process; take a number that says which",
		"Chan":      "field C: a chan refers to the memory of one process; take a prims.Queue beside the value",
		"Uintptr":   "field P: a uintptr refers",
		"Atomic":    "field P: an atomic.Pointer refers to the memory of one process; take an atomic.Uint64 with an arena.Offset",
		"Time":      "field At: a time.Time refers to the memory of one process; take an int64 with its UnixNano",
		"Mutex":     "field Lock: a sync.Mutex works in one process only; take an object of package prims beside the value",
		"Nested":    "field Owner: a string refers",
		"Empty":     "type Empty has no fields",
		"Nothing":   "type Nothing has no fields",
		"Number":    "type Number is no struct; put it into one",
		"Generic":   "field V: a string refers",
		"Box":       "type Box has type parameters; declare a type for one instance of it",
		"Twice":     `field UserId: another field has the name user_id in C; give it another one by a tag shm:"name"`,
		"Greek":     `field Größe: the name Größe cannot be used in C; give it another one by a tag shm:"name"`,
		"Tag":       `field A: the tag shm:"a b" is not a name of letters, digits and underscores`,
		"Padding":   "field Padding1: the name padding_1 cannot be used in C",
		"Long":      "too many types in each other",
		"Missing":   "package github.com/shmsync/shmsync/cmd/shmgen/testdata/bad has no type Missing",
	} {
		out := filepath.Join(t.TempDir(), "x.h")
		var stdout, stderr bytes.Buffer
		require.Equal(t, 1, realMain([]string{"-type", name, "-o", out, "./testdata/bad"}, &stdout, &stderr), name)
		require.Contains(t, stderr.String(), want)
		require.NoFileExists(t, out)
		if strings.HasPrefix(want, "field") {
			require.Contains(t, stderr.String(), "bad.go:", name)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{}, {"-type", "X", "a", "b"}, {"-nonsense"}, {"-type", "X", "./testdata/none"}, {"-type", "X", "./..."}} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, 1, realMain(args, &stdout, &stderr))
		require.NotEmpty(t, stderr.String())
	}
	var stdout, stderr bytes.Buffer
	require.Zero(t, realMain([]string{"-h"}, &stdout, &stderr))
	require.Contains(t, stderr.String(), "usage: shmgen")
}

func TestNames(t *testing.T) {
	for in, want := range map[string]string{
		"Balance": "balance", "UserID": "user_id", "HTTPServer": "http_server", "X1": "x1", "already_c": "already_c", "Class": "class_", "ID": "id",
		"LastSeenAt": "last_seen_at", "A_B": "a_b",
	} {
		require.Equal(t, want, snake(in))
	}
	require.Equal(t, "SHMGEN_LEDGER_SHM_H", guardOf("c/ledger_shm.h", nil))
	require.Equal(t, "SHMGEN_A_B_SHM_H", guardOf("", []string{"A", "B"}))
}
