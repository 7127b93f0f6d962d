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
)

// TestTargetsTypeCheck type-checks the packages of the library, and what they import, for each pair of GOOS and
// GOARCH that Go supports. It finds constants that overflow, names that a system lacks, and functions for which
// an architecture has no assembly. It compiles nothing: .ci/targets does that, and takes a quarter of an hour.
func TestTargetsTypeCheck(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("needs the go command, which knows the targets and the files of each")
	}
	if testing.Short() {
		t.Skip("reads the library 47 times: needs a run without -short")
	}
	var targets []struct{ GOOS, GOARCH string }
	out, err := exec.Command("go", "tool", "dist", "list", "-json").Output()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(out, &targets))
	require.Greater(t, len(targets), 30)
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

// TestModuleTypeChecksForBigEndianWordsOf32Bits type-checks all packages of the module with their tests for
// linux/mips. The vet of linux/386 has the same files, as the test shows, so a vet of linux/mips would find no more.
// It would compile the standard library, which takes a minute of CPU time.
func TestModuleTypeChecksForBigEndianWordsOf32Bits(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("needs the go command, which knows the targets and the files of each")
	}
	if testing.Short() {
		t.Skip("reads the module and its imports: needs a run without -short")
	}
	listed, err := listTarget("linux", "mips", "-test", "./...")
	require.NoError(t, err)
	likeOn386, err := listTarget("linux", "386", "-test", "./...")
	require.NoError(t, err)
	own := func(listed []listedPackage) (files []string) {
		for _, p := range listed {
			if p.own() {
				files = append(files, fmt.Sprint(p.ImportPath, p.GoFiles, p.SFiles))
			}
		}
		slices.Sort(files)
		return files
	}
	require.Greater(t, len(own(listed)), 100)
	require.Equal(t, own(likeOn386), own(listed))
	require.NoError(t, checkTarget(&sourceReader{fset: token.NewFileSet()}, listed, "mips"))
}

// The type check finds a planted mistake.
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

// checkedPackages imports packages that were already checked. The ImportMap of a package may replace the path of
// an import: the standard library uses it for its copies of other packages.
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
