package tidy

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/build"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/api anew")

// apiPackages are the packages that users import, by the name of their file in
// docs/api.
var apiPackages = map[string]string{"shmsync": ".", "asm": "asm", "shm": "shm", "arena": "arena", "prims": "prims", "arenatest": "arenatest"}

// TestAPI compares the exported API with the files in docs/api, so that every change of the API is visible in a
// review as a change of a file. With -update it writes the files.
func TestAPI(t *testing.T) {
	for name, dir := range apiPackages {
		t.Run(name, func(t *testing.T) {
			got, err := describeAPI(filepath.Join("..", "..", dir))
			require.NoError(t, err)
			file := filepath.Join("..", "..", "docs", "api", name+".txt")
			if *update {
				require.NoError(t, os.WriteFile(file, got, 0o666))
				return
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(want), string(got),
				"the API has changed; if that is meant: go test ./internal/tidy -run API -update")
		})
	}
}

// describeAPI returns the exported declarations of a package on linux/amd64, sorted, and without comments and
// function bodies.
func describeAPI(dir string) ([]byte, error) {
	ctx := build.Default
	ctx.GOOS, ctx.GOARCH, ctx.CgoEnabled, ctx.BuildTags = "linux", "amd64", false, nil
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if match, err := ctx.MatchFile(dir, filepath.Base(name)); err != nil || !match || strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	p, err := doc.NewFromFiles(fset, files, module)
	if err != nil {
		return nil, err
	}
	return printAPI(fset, p)
}

func printAPI(fset *token.FileSet, p *doc.Package) ([]byte, error) {
	var decls []ast.Decl
	values := func(vs ...[]*doc.Value) {
		for _, v := range slices.Concat(vs...) {
			decls = append(decls, hideParts(v.Decl))
		}
	}
	funcs := func(fs []*doc.Func) {
		for _, f := range fs {
			decls = append(decls, f.Decl)
		}
	}
	values(p.Consts, p.Vars)
	funcs(p.Funcs)
	for _, t := range p.Types {
		values(t.Consts, t.Vars)
		decls = append(decls, t.Decl)
		funcs(t.Funcs)
		funcs(t.Methods)
	}
	var texts []string
	for _, d := range decls {
		text, err := printDecl(fset, d)
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	slices.Sort(texts)
	return []byte(fmt.Sprintf("package %s\n\n%s\n", p.Name, strings.Join(texts, "\n"))), nil
}

// hideParts removes the elements of composite literals from a declaration of variables, because users may not
// rely on them.
func hideParts(d *ast.GenDecl) *ast.GenDecl {
	if d.Tok == token.VAR {
		ast.Inspect(d, func(n ast.Node) bool {
			if lit, ok := n.(*ast.CompositeLit); ok {
				lit.Elts = nil
			}
			return true
		})
	}
	return d
}

// printDecl prints a declaration without its comments, and without the blank lines where the comments were.
func printDecl(fset *token.FileSet, d ast.Decl) (string, error) {
	ast.Inspect(d, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			n.Doc, n.Comment = nil, nil
		case *ast.ValueSpec:
			n.Doc, n.Comment = nil, nil
		case *ast.TypeSpec:
			n.Doc, n.Comment = nil, nil
		case *ast.GenDecl:
			n.Doc = nil
		case *ast.FuncDecl:
			n.Doc, n.Body = nil, nil
		}
		return true
	})
	var b bytes.Buffer
	if err := printer.Fprint(&b, fset, d); err != nil {
		return "", err
	}
	var lines []string
	for line := range strings.Lines(b.String()) {
		// The alignment of columns depends on the comments in between, so join the words by single blanks.
		if text := strings.Join(strings.Fields(line), " "); text != "" {
			indent := len(line) - len(strings.TrimLeft(line, "\t"))
			lines = append(lines, line[:indent]+text)
		}
	}
	return strings.Join(lines, "\n"), nil
}

// TestDescribeAPI checks that describeAPI returns the exported parts of a package on Linux, and nothing else.
func TestDescribeAPI(t *testing.T) {
	dir := t.TempDir()
	write := func(name, src string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(src), 0o600))
	}
	write("x.go", `// Package x is.
package x

import "errors"

// B is.
type B struct {
	// F is.
	F int // f

	g int
}

// NewB makes one.
func NewB(n int) *B { return &B{F: n} }

// M does.
func (b *B) M() (err error) { return nil }

func (b *B) m() {}

type c struct{}

// Kind is.
type Kind int

// The kinds.
const (
	One Kind = iota + 1
	Two
	three
)

var (
	// ErrX is.
	ErrX = errors.New("x")
	// V is.
	V = &B{F: 1}
	y = 1
)

// A does.
func A[T any](f func(T) error) {}
`)
	write("x_windows.go", "package x\n\nfunc Windows() {}\n")
	write("x_test.go", "package x\n\nfunc Test() {}\n")
	got, err := describeAPI(dir)
	require.NoError(t, err)
	require.Equal(t, `package x

const (
	One Kind = iota + 1
	Two
)
func (b *B) M() (err error)
func A[T any](f func(T) error)
func NewB(n int) *B
type B struct {
	F int
	// contains filtered or unexported fields
}
type Kind int
var (
	ErrX = errors.New("x")
	V = &B{}
)
`, string(got))
}
