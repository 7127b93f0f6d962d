package arena

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMethodsAreDeclaredHere finds methods that a type of this package has although the package does
// not declare them. A type that is defined from a struct of package arenakernel keeps the methods that
// the embedded fields of that struct promote. go doc does not show such methods.
func TestMethodsAreDeclaredHere(t *testing.T) {
	declared := map[string][]string{}
	for _, f := range parseFiles(t, ".") {
		for _, d := range f.Decls {
			if fd, ok := d.(*ast.FuncDecl); ok && fd.Recv != nil && fd.Name.IsExported() {
				typ := fd.Recv.List[0].Type
				if star, ok := typ.(*ast.StarExpr); ok {
					typ = star.X
				}
				name := typ.(*ast.Ident).Name
				declared[name] = append(declared[name], fd.Name.Name)
			}
		}
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[*Arena](), reflect.TypeFor[*Inspector]()} {
		var has []string
		for i := range typ.NumMethod() {
			has = append(has, typ.Method(i).Name)
		}
		require.ElementsMatch(t, declared[typ.Elem().Name()], has, "%v", typ)
	}
}

// TestConstantsAreTheKernels compares the constants that this package and package arenakernel both
// declare.
func TestConstantsAreTheKernels(t *testing.T) {
	face, kernel := constants(t, "."), constants(t, filepath.Join("..", "internal", "arenakernel"))
	require.NotEmpty(t, face)
	for _, name := range slices.Sorted(maps.Keys(face)) {
		require.Equal(t, kernel[name], face[name], name)
	}
}

// constants returns the text of the value of each exported constant of the package in dir.
func constants(t *testing.T, dir string) map[string]string {
	values := map[string]string{}
	for _, f := range parseFiles(t, dir) {
		for _, d := range f.Decls {
			gen, ok := d.(*ast.GenDecl)
			if !ok || gen.Tok != token.CONST {
				continue
			}
			for _, s := range gen.Specs {
				v := s.(*ast.ValueSpec)
				for i, name := range v.Names {
					if lit, ok := valueAt(v, i).(*ast.BasicLit); ok && name.IsExported() {
						values[name.Name] = lit.Value
					}
				}
			}
		}
	}
	return values
}

func valueAt(v *ast.ValueSpec, i int) ast.Expr {
	if i < len(v.Values) {
		return v.Values[i]
	}
	return nil
}

// parseFiles parses the files of a package, without its tests.
func parseFiles(t *testing.T, dir string) (files []*ast.File) {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, f)
	}
	require.NotEmpty(t, files)
	return files
}
