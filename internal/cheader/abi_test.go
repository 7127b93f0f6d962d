package cheader

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHeaderABI compares c/abi.txt with the header. The file lists everything in the header on which a compiled program
// depends. TestLibraryABI of internal/cinterop compares the numbers in the file with those of a C compiler.
func TestHeaderABI(t *testing.T) {
	decls, err := Declarations(filepath.Join(root, "include", "parts"))
	require.NoError(t, err)
	lines, err := ABI(decls)
	require.NoError(t, err)
	path := filepath.Join(root, "c", "abi.txt")
	if *update {
		head := "# The ABI of libshmsync.so.0 on 64-bit Linux. A change that is meant is recorded by: go generate ./internal/cheader\n"
		require.NoError(t, os.WriteFile(path, []byte(head+strings.Join(lines, "\n")+"\n"), 0o644))
	}
	src, err := os.ReadFile(path)
	require.NoError(t, err)
	recorded := strings.Split(strings.TrimSpace(string(src)), "\n")[1:]
	for _, l := range recorded {
		if !slices.Contains(lines, l) {
			t.Errorf("c/abi.txt has what is no longer there: %s", l)
		}
	}
	for _, l := range lines {
		if !slices.Contains(recorded, l) {
			t.Errorf("not in c/abi.txt: %s", l)
		}
	}
}

func TestABI(t *testing.T) {
	lines, err := ABI(declarations("x.h", `
typedef struct shmsync_x {
    int a, b[3]; /* two; and more */
    const char *text;
    char label[5];
    int (*f)(void *, int);
    struct {
        uint64_t begin, end;
    } saved[8];
    uint32_t last;
} shmsync_x;
typedef uint64_t shmsync_o;
enum { SHMSYNC_P = 3, SHMSYNC_Q }; /* of a kind */
`))
	require.NoError(t, err)
	require.Equal(t, []string{
		"constant SHMSYNC_P 3", "constant SHMSYNC_Q 4",
		"field shmsync_x.a at 0 is int", "field shmsync_x.b at 4 is int[3]", "field shmsync_x.f at 32 is int (*)(void *, int)",
		"field shmsync_x.label at 24 is char[5]", "field shmsync_x.last at 168 is uint32_t",
		"field shmsync_x.saved at 40 is struct { uint64_t begin, end; }[8]", "field shmsync_x.text at 16 is const char *",
		"type shmsync_o is uint64_t", "type shmsync_x has 176 bytes",
	}, lines)
}
