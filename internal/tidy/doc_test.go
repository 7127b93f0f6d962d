package tidy

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"unicode"
)

// libraries are the packages that users import.
var libraries = []string{".", "asm", "shm", "arena", "internal/arenakernel", "prims", "arenatest"}

// docRule: an identifier that users see has a comment that says what it is.
var docRule = rule{
	name: "exported identifiers are documented",
	check: func(files []*file) (found []finding) {
		packageDoc := make(map[string]bool)
		nested := nestedModules(files)
		for _, f := range files {
			if f.ast == nil || f.isTest() || inAny(nested, f.dir()) || !slices.Contains(libraries, f.dir()) {
				continue
			}
			packageDoc[f.dir()] = packageDoc[f.dir()] || f.ast.Doc != nil
			for _, decl := range f.ast.Decls {
				switch d := decl.(type) {
				case *ast.FuncDecl:
					if d.Name.IsExported() && exportedReceiver(d) && !documented(d.Doc) {
						found = append(found, f.at(d.Pos(), "%s has no doc comment", d.Name.Name))
					}
				case *ast.GenDecl:
					for _, name := range undocumented(d) {
						found = append(found, f.at(name.Pos(), "%s has no doc comment", name.Name))
					}
				}
			}
		}
		for dir, ok := range packageDoc {
			if !ok {
				found = append(found, finding{dir, "no file has a package comment"})
			}
		}
		return found
	},
	good: map[string]string{
		"prims/doc.go": "// Package prims is documented.\npackage prims\n",
		"prims/x.go": `package prims

// X is.
type X struct{ F int }

// M does.
func (x *X) M() {}

type y struct{}

func (y) String() string { return "" }

func f() {}

// Both are.
const (
	A = 1
	B = 2
)

var (
	C = 1 // C is
	d = 2

	// E and F are.
	E = 1
	F = 2
)
`,
		"prims/x_test.go":    "package prims\n\nfunc TestX() {}\n",
		"internal/park/x.go": "package park\n\nfunc F() {}\n",
	},
	bad: []sample{
		{map[string]string{"prims/x.go": "package prims\n"}, "prims: no file has a package comment"},
		{map[string]string{"asm/x.go": "// Package asm is.\npackage asm\n\nfunc F() {}\n"}, "asm/x.go:4: F has no doc comment"},
		{map[string]string{"x.go": "// Package shmsync is.\npackage shmsync\n\ntype X int\n"}, "x.go:4: X has"},
		{map[string]string{"x.go": "package shmsync\n\n// X is.\ntype X int\n\nfunc (X) M() {}\n"}, "M has"},
		{map[string]string{"x.go": "package shmsync\n\n// X is.\ntype X[T any] int\n\nfunc (x *X[T]) M() {}\n"}, "M has"},
		{map[string]string{"x.go": "package shmsync\n\nconst A = 1\n"}, "A has"},
		{map[string]string{"x.go": "package shmsync\n\nvar (\n\ta = 1\n\tB = 2\n)\n"}, "x.go:5: B has"},
		{map[string]string{"x.go": "package shmsync\n\nvar (\n\t// A is.\n\tA = 1\n\tB = 2\n)\n"}, "x.go:6: B has"},
		{map[string]string{"x.go": "package shmsync\n\n//go:noescape\nfunc F()\n"}, "F has"},
	},
}

// exportedReceiver reports whether a function has no receiver or a receiver of an exported type.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return true
	}
	e := d.Recv.List[0].Type
	for {
		switch t := e.(type) {
		case *ast.StarExpr:
			e = t.X
		case *ast.IndexExpr:
			e = t.X
		case *ast.IndexListExpr:
			e = t.X
		case *ast.Ident:
			return t.IsExported()
		default:
			return true
		}
	}
}

// undocumented returns the exported names of a declaration that no comment covers. A comment covers a name if it is the
// comment of the name itself or of the whole group, or if it is on the same line. The comment of an earlier name in the
// group also covers the names that it mentions, up to the next comment in the group.
func undocumented(d *ast.GenDecl) (names []*ast.Ident) {
	if d.Tok == token.IMPORT || documented(d.Doc) {
		return nil
	}
	above := "" // the last comment, which may describe several lines
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() && !documented(s.Doc) && !documented(s.Comment) {
				names = append(names, s.Name)
			}
		case *ast.ValueSpec:
			own := documented(s.Doc) || documented(s.Comment)
			if own {
				above = s.Doc.Text()
			}
			for _, name := range s.Names {
				if name.IsExported() && !own && !mentions(above, name.Name) {
					names = append(names, name)
				}
			}
		}
	}
	return names
}

// documented reports whether a comment has text. A comment that has only directives has no text.
func documented(c *ast.CommentGroup) bool { return c != nil && c.Text() != "" }

// mentions reports whether name is a word of text.
func mentions(text, name string) bool {
	return slices.Contains(strings.FieldsFunc(text, func(r rune) bool {
		return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}), name)
}
