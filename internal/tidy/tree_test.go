package tidy

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

const module = "github.com/shmsync/shmsync"

// file is a file of the tree, with its syntax tree if it is a Go file.
type file struct {
	path string // path from the root, with slashes
	src  []byte

	fset *token.FileSet
	ast  *ast.File // nil if the file is not Go, or does not parse
	err  error     // why the file does not parse
}

func newFile(name string, src []byte) *file {
	f := &file{path: name, src: src}
	if path.Ext(name) == ".go" {
		f.fset = token.NewFileSet()
		f.ast, f.err = parser.ParseFile(f.fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
		if f.err != nil {
			f.ast = nil
		}
	}
	return f
}

func (f *file) dir() string  { return path.Dir(f.path) }
func (f *file) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

// isText reports whether the file is text.
func (f *file) isText() bool { return utf8.Valid(f.src) && !bytes.Contains(f.src, []byte{0}) }

// finding is a place where a rule is broken.
type finding struct {
	where string
	what  string
}

func (f finding) String() string { return f.where + ": " + f.what }

// at returns a finding at a position of the syntax tree.
func (f *file) at(pos token.Pos, format string, args ...any) finding {
	p := f.fset.Position(pos)
	return finding{fmt.Sprintf("%s:%d", f.path, p.Line), fmt.Sprintf(format, args...)}
}

// atOffset returns a finding at an offset in the text.
func (f *file) atOffset(offset int, format string, args ...any) finding {
	line := 1 + bytes.Count(f.src[:offset], []byte("\n"))
	return finding{fmt.Sprintf("%s:%d", f.path, line), fmt.Sprintf(format, args...)}
}

// atLine returns a finding at a line.
func (f *file) atLine(line int, format string, args ...any) finding {
	return finding{fmt.Sprintf("%s:%d", f.path, line), fmt.Sprintf(format, args...)}
}

// readTree returns the files below root that belong to the repository.
func readTree(root string) ([]*file, error) {
	// The go command records which directories a test reads, and runs the test again when one of them has
	// changed. So the test walks the tree itself, and git only says which files belong to the repository.
	names, err := walkFiles(root)
	if err != nil {
		return nil, err
	}
	if known, err := gitFiles(root); err == nil {
		names = slices.DeleteFunc(names, func(name string) bool { return !known[name] })
	}
	var files []*file
	for _, name := range names {
		full := filepath.Join(root, filepath.FromSlash(name))
		info, err := os.Lstat(full)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a temporary file of an editor, already removed
		}
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			continue
		}
		src, err := os.ReadFile(full)
		if err != nil {
			return nil, err
		}
		files = append(files, newFile(name, src))
	}
	return files, nil
}

// gitFiles returns the files that git does not ignore.
func gitFiles(root string) (map[string]bool, error) {
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		return nil, err
	}
	out, err := exec.Command("git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return nil, err
	}
	known := make(map[string]bool)
	for name := range strings.SplitSeq(string(out), "\x00") {
		known[name] = true
	}
	return known, nil
}

// walkFiles returns all files below root. If there is no git, the tree is an unpacked archive, and all of these files
// belong to the repository.
func walkFiles(root string) (names []string, err error) {
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a temporary file of an editor, already removed
		}
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == ".git" {
			return fs.SkipDir
		}
		if d.Type().IsRegular() {
			rel, err := filepath.Rel(root, name)
			if err != nil {
				return err
			}
			names = append(names, filepath.ToSlash(rel))
		}
		return nil
	})
	return names, err
}

func TestReadTree(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "a", ".git"), 0o700))
	for _, name := range []string{"x.go", "a/y.go", "a/.git/z"} {
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte("package p\n"), 0o600))
	}
	files, err := readTree(root)
	require.NoError(t, err)
	var names []string
	for _, f := range files {
		names = append(names, f.path)
	}
	require.ElementsMatch(t, []string{"x.go", "a/y.go"}, names)
}
