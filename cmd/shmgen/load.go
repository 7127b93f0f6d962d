package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// goPackage is a Go package and the result of its type check.
type goPackage struct {
	fset  *token.FileSet
	types *types.Package
}

// listed is the part of the output of "go list" about one package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles, CgoFiles       []string
	ImportMap               map[string]string
	DepOnly                 bool
	Error                   *struct{ Err string }
	Module                  *struct{ GoVersion string }
}

// list runs "go list" for a pattern. It returns the package that the pattern names, and a map from import paths to
// this package and its dependencies. The go command compiles the dependencies, because load needs their export
// data.
func list(pattern string) (*listed, map[string]*listed, error) {
	cmd := exec.Command("go", "list", "-e", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,CgoFiles,ImportMap,DepOnly,Error,Module", "--", pattern)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("go list %s: %w\n%s", pattern, err, strings.TrimSpace(stderr.String()))
	}
	all := map[string]*listed{}
	var root *listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		p := &listed{}
		if err := dec.Decode(p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, nil, fmt.Errorf("go list %s: %w", pattern, err)
		}
		all[p.ImportPath] = p
		if p.DepOnly {
			continue
		}
		if root != nil {
			return nil, nil, fmt.Errorf("%s is more than one package: %s and %s", pattern, root.ImportPath, p.ImportPath)
		}
		root = p
	}
	if root == nil || len(root.GoFiles)+len(root.CgoFiles) == 0 {
		why := "no Go files"
		if root != nil && root.Error != nil {
			why = root.Error.Err
		}
		return nil, nil, fmt.Errorf("package %s: %s", pattern, why)
	}
	return root, all, nil
}

// load reads a package and checks its types. Sizes and offsets are those of 64-bit architectures,
// the only ones on which shmsync runs.
func load(pattern string) (*goPackage, error) {
	root, all, err := list(pattern)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range append(root.GoFiles, root.CgoFiles...) {
		f, err := parser.ParseFile(fset, filepath.Join(root.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	lookup := func(path string) (io.ReadCloser, error) {
		if to, ok := root.ImportMap[path]; ok {
			path = to
		}
		p := all[path]
		if p == nil || p.Export == "" {
			return nil, fmt.Errorf("package %s does not build", path)
		}
		return os.Open(p.Export)
	}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", lookup), Sizes: sizes, FakeImportC: true}
	if root.Module != nil && root.Module.GoVersion != "" {
		conf.GoVersion = "go" + root.Module.GoVersion
	}
	pkg, err := conf.Check(root.ImportPath, fset, files, nil)
	if err != nil {
		return nil, err
	}
	return &goPackage{fset, pkg}, nil
}

var sizes = types.SizesFor("gc", "amd64")
