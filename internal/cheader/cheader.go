// Package cheader assembles the C header from its parts, and makes the manual pages of the C API.
package cheader

//go:generate go test . -run TestHeader -update

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
)

// notice is the first line of the assembled header.
const notice = "/* Made from include/parts by: go generate ./internal/cheader. Change the parts. */\n"

// Assemble concatenates the parts in dir, in the order of their names.
func Assemble(dir string) ([]byte, error) {
	parts, err := filepath.Glob(filepath.Join(dir, "*.h"))
	if err != nil {
		return nil, err
	}
	slices.Sort(parts)
	var whole bytes.Buffer
	whole.WriteString(notice)
	for _, p := range parts {
		src, err := os.ReadFile(p)
		if err != nil {
			return nil, err
		}
		whole.Write(src)
	}
	return whole.Bytes(), nil
}
