package abigen

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the part of the C header")

var part = filepath.Join("..", "..", "include", "parts", "24-abi-objects.h")

// The generated part in the tree is what Part makes of docs/abi.md. The tests TestABI of arenakernel and prims compare
// that document with the Go side.
func TestABIPartIsCurrent(t *testing.T) {
	src, err := os.ReadFile(filepath.Join("..", "..", "docs", "abi.md"))
	require.NoError(t, err)
	want, err := Part(string(src))
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(part, []byte(want), 0o644))
	}
	have, err := os.ReadFile(part)
	require.NoError(t, err)
	wants, has := strings.Split(want, "\n"), strings.Split(string(have), "\n")
	for i := range min(len(wants), len(has)) {
		require.Equal(t, wants[i], has[i], "line %d; write it with: go test ./internal/abigen -update", i+1)
	}
	require.Len(t, has, len(wants))
}

// The hand-written declarations of the C header agree with the document.
func TestHeaderSaysWhatTheDocumentSays(t *testing.T) {
	var cc string
	for _, name := range []string{os.Getenv("CC"), "cc", "gcc", "clang"} {
		if path, err := exec.LookPath(name); name != "" && err == nil && cc == "" {
			cc = path
		}
	}
	if cc == "" {
		require.Empty(t, os.Getenv("SHMSYNC_NEED_CC"), "there is no C compiler")
		t.Skip("needs a C compiler")
	}
	src, err := os.ReadFile(filepath.Join("..", "..", "docs", "abi.md"))
	require.NoError(t, err)
	program, err := Assertions(string(src))
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "assertions.c")
	require.NoError(t, os.WriteFile(file, []byte(program), 0o644))
	out, err := exec.Command(cc, "-std=c11", "-O0", "-I", filepath.Join("..", "..", "include"), file, "-o", file+".out", "-pthread").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, exec.Command(file+".out").Run(), "the classes of blocks have other sizes")
}

// TestUnknownFields checks that the generator returns an error for a field that it cannot declare.
func TestUnknownFields(t *testing.T) {
	_, err := declare(Field{"odd", 0, 24})
	require.ErrorContains(t, err, "odd")
	_, _, err = Fields(nil, "Mutex")
	require.ErrorContains(t, err, "Mutex")
}
