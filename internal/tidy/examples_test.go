package tidy

import (
	"go/ast"
	"strings"
)

// A reader who looks a primitive up sees how it is used.
var exampleRule = rule{
	name: "each primitive has an example",
	check: func(files []*file) (found []finding) {
		var examples []string
		for _, f := range files {
			if f.dir() == "prims" && f.isTest() {
				for _, d := range functions(f) {
					if name, ok := strings.CutPrefix(d.Name.Name, "Example"); ok {
						examples = append(examples, name)
					}
				}
			}
		}
		for _, f := range files {
			if f.dir() != "prims" || f.isTest() {
				continue
			}
			for _, d := range functions(f) {
				name, ok := strings.CutPrefix(d.Name.Name, "Open")
				if ok && d.Recv == nil && name != "" && !hasExample(examples, name) {
					found = append(found, f.at(d.Pos(), "%s has no example", name))
				}
			}
		}
		return found
	},
	good: map[string]string{
		"prims/x.go":      "package prims\n\nfunc OpenX() {}\n\nfunc OpenY() {}\n\nfunc Open() {}\n",
		"prims/x_test.go": "package prims\n\nfunc ExampleX_Lock() {}\n\nfunc ExampleOpenY() {}\n",
	},
	bad: []sample{
		{map[string]string{"prims/x.go": "package prims\n\nfunc OpenX() {}\n", "prims/x_test.go": "package prims\n\nfunc ExampleXY() {}\n"},
			"prims/x.go:3: X has no example"},
	},
}

// hasExample reports whether one of the examples is of a type, of a method of it,
// or of the function that opens it.
func hasExample(examples []string, name string) bool {
	for _, e := range examples {
		of, _, _ := strings.Cut(strings.TrimPrefix(e, "Open"), "_")
		if of == name {
			return true
		}
	}
	return false
}

// functions gives the functions and methods of a file.
func functions(f *file) (found []*ast.FuncDecl) {
	if f.ast == nil {
		return nil
	}
	for _, decl := range f.ast.Decls {
		if d, ok := decl.(*ast.FuncDecl); ok {
			found = append(found, d)
		}
	}
	return found
}
