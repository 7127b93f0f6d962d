//go:build linux

package cinterop

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/cheader"
)

// TestLibraryABI checks with a C compiler that the types, fields and constants of the header have the sizes, offsets
// and values in c/abi.txt. It also checks that libshmsync.so.0 exports exactly the functions of the header.
// TestHeaderABI of internal/cheader compares c/abi.txt with the header.
func TestLibraryABI(t *testing.T) {
	cc := compiler(t)
	dir := library(t, cc)
	recorded, err := os.ReadFile(filepath.Join("..", "..", "c", "abi.txt"))
	require.NoError(t, err)
	source := "#include \"shmsync.h\"\n"
	for line := range strings.Lines(string(recorded)) {
		words := strings.Fields(line)
		switch words[0] {
		case "type":
			if words[2] == "has" {
				source += fmt.Sprintf("_Static_assert(sizeof(%s) == %s, \"size\");\n", words[1], words[3])
			}
		case "field":
			kind, name, _ := strings.Cut(words[1], ".")
			source += fmt.Sprintf("_Static_assert(offsetof(%s, %s) == %s, \"offset\");\n", kind, name, words[3])
		case "constant":
			source += fmt.Sprintf("_Static_assert(%s == (%s), \"constant\");\n", words[1], strings.Join(words[2:], " "))
		}
	}
	require.Greater(t, strings.Count(source, "_Static_assert"), 250)
	program := filepath.Join(dir, "abi.c")
	require.NoError(t, os.WriteFile(program, []byte(source), 0o600))
	out, err := exec.Command(cc, "-std=c11", "-I"+dir, "-fsyntax-only", program).CombinedOutput()
	require.NoError(t, err, "%s", out)

	decls, err := cheader.Declarations(filepath.Join("..", "..", "include", "parts"))
	require.NoError(t, err)
	var functions []string
	for _, d := range decls {
		if d.Kind == cheader.Func { // a binding looks up each function by its name
			functions = append(functions, d.Name)
		}
	}
	libs, err := filepath.Glob(filepath.Join(dir, "libshmsync.so.*"))
	require.NoError(t, err)
	require.Len(t, libs, 1)
	f, err := elf.Open(libs[0])
	require.NoError(t, err)
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	require.NoError(t, err)
	var exported []string
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF && s.Section != elf.SHN_ABS {
			require.Equal(t, elf.STT_FUNC, elf.ST_TYPE(s.Info), s.Name)
			exported = append(exported, s.Name)
		}
	}
	require.ElementsMatch(t, functions, exported)
}
