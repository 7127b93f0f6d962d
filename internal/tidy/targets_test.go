package tidy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
)

// TestTargetsTypeCheck type-checks the packages of the library, and their imports, for each pair of GOOS and GOARCH
// that Go supports. It finds constants that overflow, names that a system lacks, and functions for which an
// architecture has no assembly. It does not compile the packages; .ci/targets does so, and takes a quarter of an hour.
// A run that is not of full length checks only some pairs, among them at least one for each system and each
// architecture.
func TestTargetsTypeCheck(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("needs the go command, which knows the targets and the files of each")
	}
	if testing.Short() {
		t.Skip("needs a run without -short: it reads the library for each system")
	}
	var targets []target
	out, err := exec.Command("go", "tool", "dist", "list", "-json").Output()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(out, &targets))
	require.Greater(t, len(targets), 30)
	if !proctest.Long() {
		targets = covering(targets)
	}
	read := &sourceReader{fset: token.NewFileSet()}
	for _, target := range targets {
		t.Run(target.GOOS+"/"+target.GOARCH, func(t *testing.T) {
			t.Parallel()
			listed, err := listTarget(target.GOOS, target.GOARCH, libraryPaths()...)
			require.NoError(t, err)
			require.NoError(t, checkTarget(read, listed, target.GOARCH))
		})
	}
}

// target is a system and an architecture.
type target struct{ GOOS, GOARCH string }

// covering returns some of the targets. Each system and each architecture is in at least one of them.
func covering(targets []target) (some []target) {
	seen := make(map[string]bool)
	// First take the targets whose system and architecture are both new, and then the targets of which only one is
	// new.
	for news := 2; news > 0; news-- {
		for _, c := range targets {
			n := 0
			for _, name := range []string{"system " + c.GOOS, "architecture " + c.GOARCH} {
				if !seen[name] {
					n++
				}
			}
			if n >= news {
				seen["system "+c.GOOS], seen["architecture "+c.GOARCH] = true, true
				some = append(some, c)
			}
		}
	}
	return some
}

func TestCovering(t *testing.T) {
	require.Equal(t, []target{{"aix", "ppc64"}, {"linux", "386"}, {"linux", "arm"}, {"plan9", "386"}},
		covering([]target{{"aix", "ppc64"}, {"linux", "386"}, {"linux", "ppc64"}, {"linux", "arm"}, {"plan9", "386"}}))
}

// vetted are the runs of go vet in .ci/run: the target, and the arguments that choose the files.
var vetted = []struct {
	goos, goarch string
	args         []string
}{
	{"linux", "amd64", []string{"./..."}},
	{"linux", "amd64", []string{"-tags=crashpoint", "./..."}},
	{"linux", "amd64", []string{"-tags=noasm", "./asm/...", "./internal/arenakernel"}},
	{"linux", "arm64", []string{"./..."}},
	{"darwin", "amd64", portablePaths()},
}

// TestTypeChecksReplaceVet type-checks packages with their tests for targets for which .ci/run does not run go vet.
// Such a vet would compile the standard library for the target, which takes a minute of CPU time. It would find no more
// than the type check, because .ci/run runs go vet on each of these files for another target. The test always checks
// that each file is in such a run of go vet, but type-checks only at full length.
func TestTypeChecksReplaceVet(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("needs the go command, which knows the targets and the files of each")
	}
	if testing.Short() {
		t.Skip("needs a run without -short: it reads the module and its imports")
	}
	seen := make(map[string]bool)
	for _, v := range vetted {
		for _, file := range ownFiles(listTests(t, v.goos, v.goarch, v.args)) {
			seen[file] = true
		}
	}
	require.Greater(t, len(seen), 1000)
	read := &sourceReader{fset: token.NewFileSet()}
	for _, c := range []struct {
		why, goos, goarch string
		args              []string
	}{
		{"words of 32 bits, aligned to 4 bytes", "linux", "386", []string{"./..."}},
		{"big-endian words of 32 bits", "linux", "mips", []string{"./..."}},
		{"handles instead of file descriptors", "windows", "amd64", portablePaths()},
	} {
		t.Run(c.goos+"/"+c.goarch, func(t *testing.T) {
			listed := listTests(t, c.goos, c.goarch, c.args)
			for _, file := range ownFiles(listed) {
				require.True(t, seen[file], "%s: go vet does not read %s for any target", c.why, file)
			}
			if proctest.Long() {
				require.NoError(t, checkTarget(read, listed, c.goarch))
			}
		})
	}
}

// listTests is like listTarget, with the tests of the packages.
func listTests(t *testing.T, goos, goarch string, args []string) []listedPackage {
	t.Helper()
	listed, err := listTarget(goos, goarch, append([]string{"-test"}, args...)...)
	require.NoError(t, err)
	return listed
}

// ownFiles returns the files of this module in a list of packages.
func ownFiles(listed []listedPackage) (files []string) {
	for _, p := range listed {
		if p.own() && !strings.HasSuffix(p.ImportPath, ".test") {
			for _, name := range append(p.GoFiles, p.SFiles...) {
				files = append(files, filepath.Join(p.Dir, name))
			}
		}
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// portablePaths returns packages that compile for every system, also with their tests.
func portablePaths() []string { return append(libraryPaths(), "./internal/arenakernel") }

// TestTargetsTypeCheckFinds checks that checkTarget finds planted mistakes.
func TestTargetsTypeCheckFinds(t *testing.T) {
	for name, c := range map[string]struct{ src, want string }{
		"overflow":  {"package a\n\nvar size int = 1 << 40\n", "overflows"},
		"assembly":  {"package a\n\nfunc pause()\n", "pause has no body"},
		"undefined": {"package a\n\nvar x = notHere\n", "undefined: notHere"},
		"good":      {"package a\n\nvar size int64 = 1 << 40\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "a.go"), []byte(c.src), 0o666))
			err := checkTarget(&sourceReader{fset: token.NewFileSet()}, []listedPackage{{ImportPath: "a", Dir: dir, GoFiles: []string{"a.go"}}}, "386")
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}

// libraryPaths returns the packages that users import. The commands and examples are only for Linux.
func libraryPaths() (paths []string) {
	for _, dir := range apiPackages {
		paths = append(paths, "./"+dir)
	}
	return paths
}

// listedPackage is what go list prints for a package.
type listedPackage struct {
	ImportPath, Dir string
	GoFiles, SFiles []string
	ImportMap       map[string]string
	Standard        bool
}

// own reports whether this module has the package.
func (p listedPackage) own() bool {
	return !p.Standard && (p.ImportPath == module || strings.HasPrefix(p.ImportPath, module+"/"))
}

// listTarget returns the packages that match the patterns, and all that they import. Each package comes after its
// imports.
func listTarget(goos, goarch string, patterns ...string) (listed []listedPackage, err error) {
	args := append([]string{"list", "-deps", "-json=ImportPath,Dir,GoFiles,SFiles,ImportMap,Standard"}, patterns...)
	cmd := exec.Command("go", args...)
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0")
	var trouble bytes.Buffer
	cmd.Stderr = &trouble
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, trouble.Bytes())
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return listed, nil
		} else if err != nil {
			return nil, err
		}
		listed = append(listed, p)
	}
}

// sourceReader parses each file once for all targets.
type sourceReader struct {
	fset  *token.FileSet
	files sync.Map // path to func() (*ast.File, error)
}

func (r *sourceReader) parse(name string) (*ast.File, error) {
	once, _ := r.files.LoadOrStore(name, sync.OnceValues(func() (*ast.File, error) {
		return parser.ParseFile(r.fset, name, nil, parser.SkipObjectResolution)
	}))
	return once.(func() (*ast.File, error))()
}

// checkedPackages imports packages that are already type-checked. The standard library imports its own copies of some
// packages. The ImportMap of the importing package maps the path of such an import to the path of the copy.
type checkedPackages struct {
	done map[string]*types.Package
	of   listedPackage
}

func (c checkedPackages) Import(name string) (*types.Package, error) {
	if name == "unsafe" {
		return types.Unsafe, nil
	}
	if mapped, ok := c.of.ImportMap[name]; ok {
		name = mapped
	}
	if p, ok := c.done[name]; ok {
		return p, nil
	}
	return nil, fmt.Errorf("go list does not name %s", name)
}

// checkTarget type-checks packages in the order of the list. It checks the function bodies only of the packages
// of this module.
func checkTarget(read *sourceReader, listed []listedPackage, goarch string) error {
	done := make(map[string]*types.Package)
	for _, p := range listed {
		if p.ImportPath == "unsafe" {
			continue
		}
		if strings.HasSuffix(p.ImportPath, ".test") {
			continue // the main package that the go command makes for the tests of a package
		}
		own := p.own() || p.ImportPath == "a"
		var files []*ast.File
		var found []error
		for _, name := range p.GoFiles {
			f, err := read.parse(filepath.Join(p.Dir, name))
			if err != nil {
				return err
			}
			files = append(files, f)
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && own && fn.Body == nil && len(p.SFiles) == 0 {
					found = append(found, fmt.Errorf("%s: %s has no body, and the package no assembly", read.fset.Position(fn.Pos()), fn.Name.Name))
				}
			}
		}
		config := &types.Config{
			Importer:         checkedPackages{done, p},
			Sizes:            types.SizesFor("gc", goarch),
			IgnoreFuncBodies: !own,
			FakeImportC:      true,
			Error: func(err error) {
				if own {
					found = append(found, err)
				}
			},
		}
		done[p.ImportPath], _ = config.Check(p.ImportPath, read.fset, files, nil)
		if len(found) > 0 {
			return errors.Join(found...)
		}
	}
	return nil
}
