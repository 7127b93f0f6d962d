package abigen

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the part of the C header")

var part = filepath.Join("..", "..", "include", "parts", "24-abi-objects.h")

// The layout in the C header is that of docs/abi.md, which the tests TestABI of arena
// and prims compare with the Go side.
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
	require.Equal(t, want, string(have), "write it with: go test ./internal/abigen -update")
}

// A field that the generator cannot declare is an error, not a hole.
func TestUnknownFields(t *testing.T) {
	_, err := declare(Field{"odd", 0, 24})
	require.ErrorContains(t, err, "odd")
	_, _, err = Fields(nil, "Mutex")
	require.ErrorContains(t, err, "Mutex")
}
