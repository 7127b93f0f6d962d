package snippets

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/shmsync/shmsync"

// snippet is one fenced block.
type snippet struct {
	where string // file:line of the fence
	given string // the declarations in the comment before it
	code  string
}

var withComment = regexp.MustCompile(`^<!-- with: (.*) -->$`)

// extract returns the blocks of Go in a document.
func extract(name, text string) (found []snippet) {
	given, number := "", 0
	var in *snippet
	for line := range strings.Lines(text) {
		number++
		trimmed := strings.TrimSpace(line)
		switch {
		case in == nil && trimmed == "```go":
			in = &snippet{where: fmt.Sprintf("%s:%d", name, number), given: given}
		case in != nil && trimmed == "```":
			found = append(found, *in)
			in, given = nil, ""
		case in != nil:
			in.code += line
		case trimmed != "":
			given = ""
			if m := withComment.FindStringSubmatch(trimmed); m != nil {
				given = m[1]
			}
		}
	}
	return found
}

// known has the packages that a block may use without importing them.
var known = func() map[string]string {
	m := map[string]string{"shmsync": module}
	for _, name := range []string{"arena", "arenatest", "asm", "prims", "shm", "internal/crashpoint"} {
		m[filepath.Base(name)] = module + "/" + name
	}
	for _, name := range []string{"context", "encoding/binary", "errors", "expvar", "fmt", "io", "io/fs", "iter", "log", "maps", "net",
		"net/http", "os", "os/exec", "slices", "strconv", "strings", "structs", "sync", "sync/atomic", "syscall", "testing", "time"} {
		m[filepath.Base(name)] = name
	}
	return m
}()

var selector = regexp.MustCompile(`\b([a-z]+)\.[A-Z]`)

// source makes a Go file of a snippet, and parses it.
func (s snippet) source() (*ast.File, *token.FileSet, error) {
	given := "ctx context.Context; a *arena.Arena"
	if s.given != "" {
		given += "; " + s.given
	}
	head := "package snippet\n"
	imports := make(map[string]bool)
	for _, m := range selector.FindAllStringSubmatch(s.code+given, -1) {
		if path, ok := known[m[1]]; ok && !strings.Contains(given+" ", m[1]+" *") {
			imports[path] = true
		}
	}
	for _, path := range slices.Sorted(maps.Keys(imports)) {
		head += fmt.Sprintf("import %q\n", path)
	}
	head += "var (\n" + strings.ReplaceAll(given, "; ", "\n") + "\n)\n"

	fset := token.NewFileSet()
	parse := func(src string) (*ast.File, error) {
		return parser.ParseFile(fset, s.where, src, parser.SkipObjectResolution)
	}
	if f, err := parse(s.code); err == nil {
		return f, fset, nil
	}
	if f, err := parse(head + s.code); err == nil {
		return f, fset, nil
	}
	var first error
	for _, results := range []string{"", "error", "(any, error)"} {
		f, err := parse(head + "func _() " + results + " {\n" + s.code + "\npanic(0)\n}\n")
		if err != nil {
			return nil, nil, err
		}
		if err := s.check(f, fset); err == nil {
			return f, fset, nil
		} else if first == nil || !strings.Contains(err.Error(), "return values") {
			first = err
		}
	}
	return nil, nil, first
}

// check type-checks a file. An unused variable or import is not an error.
func (s snippet) check(f *ast.File, fset *token.FileSet) (first error) {
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", lookup), Error: func(err error) {
		if e, ok := err.(types.Error); ok && e.Soft {
			return
		}
		if first == nil {
			first = err
		}
	}}
	conf.Check("snippet", fset, []*ast.File{f}, nil)
	return first
}

// exports has the files with the export data of packages, by import path.
var exports map[string]string

func lookup(path string) (io.ReadCloser, error) {
	file, ok := exports[path]
	if !ok {
		return nil, fmt.Errorf("package %s is not known to internal/snippets", path)
	}
	return os.Open(file)
}

func listExports(t *testing.T) {
	args := append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, slices.Sorted(maps.Values(known))...)
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	exports = make(map[string]string)
	for s := bufio.NewScanner(strings.NewReader(string(out))); s.Scan(); {
		if path, file, ok := strings.Cut(s.Text(), " "); ok && file != "" {
			exports[path] = file
		}
	}
}

// compile returns what is wrong with a snippet, or nil.
func (s snippet) compile() error {
	f, fset, err := s.source()
	if err != nil {
		return err
	}
	return s.check(f, fset)
}

// TestDocuments compiles the Go blocks of the documents.
func TestDocuments(t *testing.T) {
	listExports(t)
	root := filepath.Join("..", "..")
	blocks := 0
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && d.Name() == ".git" {
			return fs.SkipDir
		}
		if filepath.Ext(name) != ".md" {
			return nil
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		rel, _ := filepath.Rel(root, name)
		for _, s := range extract(filepath.ToSlash(rel), string(text)) {
			blocks++
			if err := s.compile(); err != nil {
				t.Errorf("%s: %v\n%s", s.where, err, s.code)
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.NotZero(t, blocks)
}

func TestSnippets(t *testing.T) {
	listExports(t)
	for code, want := range map[string]string{
		"m, err := prims.OpenMutex(a, \"x\", nil)\n":     "",
		"type x struct{ mu sync.Mutex }\n":               "",
		"package p\n\nfunc f() {}\n":                     "",
		"// a comment\n":                                 "",
		"if ctx.Err() != nil {\n\treturn ctx.Err()\n}\n": "",
		"return nil, ctx.Err()\n":                        "",
		"f := func() error { return nil }\n":             "",
		"prims.OpenMutexes(a)\n":                         "OpenMutexes",
		"x.Lock()\n":                                     "undefined: x",
		"m, err :=\n":                                    "used as value",
		"var m *prims.Mutex = 3\n":                       "cannot use",
	} {
		err := snippet{where: "x.md:1", code: code}.compile()
		if want == "" {
			require.NoError(t, err, code)
		} else {
			require.ErrorContains(t, err, want, code)
		}
	}
	require.Equal(t, []snippet{
		{"x.md:3", "x int", "x++\n"},
		{"x.md:9", "", "y\n"},
	}, extract("x.md", "text\n<!-- with: x int -->\n```go\nx++\n```\n```\nno Go\n```\n```go\ny\n```\n"))
}
