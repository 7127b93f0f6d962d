//go:build linux

package gosuite

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	_ "golang.org/x/sync/semaphore" // makes go.mod require the module, so that its tests are in the module cache

	"github.com/shmsync/shmsync/internal/proctest"
)

// suite is a set of test files of one package.
type suite struct {
	dir   func(t *testing.T) string
	files []string
	// imports maps the imports of the files to their replacements.
	imports map[string]string
	// without has the tests that are left out, with the reasons.
	without map[string]string
	// limits maps time limits that are too short for a busy machine to longer ones.
	limits map[string]string
}

const shimPath = "github.com/shmsync/shmsync/internal/gosuite/shim"

var suites = map[string]suite{
	"sync": {
		dir:     func(t *testing.T) string { return filepath.Join(output(t, "go", "env", "GOROOT"), "src", "sync") },
		files:   []string{"mutex_test.go", "rwmutex_test.go", "cond_test.go", "waitgroup_test.go", "once_test.go"},
		imports: map[string]string{"sync": shimPath, "internal/testenv": shimPath + "/testenv"},
		limits:  map[string]string{"10 * time.Second": "time.Minute"},
		without: map[string]string{
			"TestMutexMisuse":               "runs itself for each way to die of a fatal error; ours panics, see TestMutexUnlockMistakes in prims",
			"init":                          "the other half of TestMutexMisuse",
			"misuseTests":                   "the same",
			"TestCondCopy":                  "is about copying; the shim is what would be copied",
			"TestWaitGroupMisuse":           "asks for the words of package sync; ours are in TestWaitGroupMisuse of prims",
			"HammerSemaphore":               "is about the runtime's own semaphore",
			"TestSemaphore":                 "the same",
			"BenchmarkUncontendedSemaphore": "the same",
			"BenchmarkContendedSemaphore":   "the same",
		},
	},
	"semaphore": {
		dir: func(t *testing.T) string {
			return filepath.Join(output(t, "go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sync"), "semaphore")
		},
		files:   []string{"semaphore_test.go"},
		imports: map[string]string{"golang.org/x/sync/semaphore": shimPath + "/semaphore"},
		limits:  map[string]string{"10*time.Millisecond": "time.Second"},
	},
}

// timeout is the time limit of a suite: a hundred times what a suite takes.
const timeout = "10m"

func TestGoSuites(t *testing.T) {
	for name, s := range suites {
		t.Run(name, func(t *testing.T) { s.run(t, name) })
	}
}

// run runs the tests of the suite, in a package that exists only in an overlay of this module.
func (s suite) run(t *testing.T, name string) {
	here, err := os.Getwd()
	require.NoError(t, err)
	tmp := t.TempDir()
	replace := map[string]string{}
	tests := 0
	limits := map[string]bool{} // the time limits that occur in the files
	for _, file := range s.files {
		source, n := s.adapt(t, filepath.Join(s.dir(t), file), limits)
		tests += n
		to := filepath.Join(tmp, file)
		require.NoError(t, os.WriteFile(to, source, 0o600))
		replace[filepath.Join(here, "adapted", name, file)] = to
	}
	require.NotZero(t, tests)
	for limit := range s.limits {
		require.True(t, limits[limit], "no file has the limit %s any more", limit)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	list := filepath.Join(tmp, "overlay.json")
	require.NoError(t, os.WriteFile(list, overlay, 0o600))
	binary := filepath.Join(tmp, "suite.test")
	cmd := exec.Command("go", "test", "-c", "-vet=off", "-overlay", list, "-o", binary, "./adapted/"+name)
	cmd.Env = append(os.Environ(), "GOFLAGS=")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	cmd = exec.Command(binary, "-test.v", "-test.short="+strconv.FormatBool(!proctest.Long()), "-test.timeout="+timeout)
	cmd.Dir = tmp
	out, err = cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	passed := bytes.Count(out, []byte("\n--- PASS: "))
	if bytes.HasPrefix(out, []byte("--- PASS: ")) {
		passed++
	}
	require.Equal(t, tests, passed, "%s", out)
	t.Logf("%d tests of %s passed", passed, strings.Join(s.files, ", "))
}

// adapt reads a file of tests, replaces its imports and time limits, and removes the tests that are left out. It
// returns the new text and the number of remaining tests. It also sets the entry of the map limits for each limit
// that the file contains.
func (s suite) adapt(t *testing.T, file string, limits map[string]bool) (source []byte, tests int) {
	fset := token.NewFileSet()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for from, to := range s.limits {
		limits[from] = limits[from] || bytes.Contains(text, []byte(from))
		text = bytes.ReplaceAll(text, []byte(from), []byte(to))
	}
	f, err := parser.ParseFile(fset, file, text, parser.SkipObjectResolution)
	require.NoError(t, err)
	decls := f.Decls[:0]
	for _, d := range f.Decls {
		name := nameOf(d)
		if _, without := s.without[name]; without {
			continue
		}
		if strings.HasPrefix(name, "Test") {
			tests++
		}
		decls = append(decls, d)
	}
	f.Decls = decls
	used := map[string]bool{}
	for _, d := range f.Decls {
		ast.Inspect(d, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok {
					used[x.Name] = true
				}
			}
			return true
		})
	}
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.IMPORT {
			continue
		}
		specs := g.Specs[:0]
		for _, spec := range g.Specs {
			i := spec.(*ast.ImportSpec)
			from, err := strconv.Unquote(i.Path.Value)
			require.NoError(t, err)
			if i.Name == nil && !used[path.Base(from)] {
				continue
			}
			if to, ok := s.imports[from]; ok && (i.Name != nil || from != "sync") {
				i.Path.Value = strconv.Quote(to)
			}
			specs = append(specs, i)
		}
		g.Specs = specs
	}
	f.Comments = nil
	var b bytes.Buffer
	require.NoError(t, format.Node(&b, fset, f))
	return b.Bytes(), tests
}

// nameOf returns the name of a function, or of the first variable of a declaration.
func nameOf(d ast.Decl) string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		return d.Name.Name
	case *ast.GenDecl:
		if v, ok := d.Specs[0].(*ast.ValueSpec); ok {
			return v.Names[0].Name
		}
	}
	return ""
}

func output(t *testing.T, name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}
