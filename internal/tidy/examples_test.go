package tidy

import (
	"go/ast"
	"regexp"
	"strings"
)

// exampleRule: a reader who looks a primitive up finds an example of its use.
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

// hasExample reports whether one of the examples is for a type, for one of its methods, or for the function that
// opens it.
func hasExample(examples []string, name string) bool {
	for _, e := range examples {
		of, _, _ := strings.Cut(strings.TrimPrefix(e, "Open"), "_")
		if of == name {
			return true
		}
	}
	return false
}

// functions returns the functions and methods of a file.
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

// shown matches the texts that show users how to make calls: the examples and the pages of docs.
var shown = regexp.MustCompile(`^README\.md$|^docs/[^/]*\.md$|^examples/.*\.go$|example[a-z_]*_test\.go$`)

// shownRule: some example or page shows each exported call. If there is none, users cannot learn the call, or do
// not need it.
var shownRule = rule{
	name: "each call is shown by an example or a page",
	check: func(files []*file) (found []finding) {
		words := map[string]bool{}
		for _, f := range files {
			if shown.MatchString(f.path) {
				for _, w := range identifier.FindAllString(string(f.src), -1) {
					words[w] = true
				}
			}
		}
		for _, dir := range []string{"arena", "prims"} {
			for _, c := range callsOf(files, dir) {
				// Exempt AttachX and XAt, which work alike for every primitive X. A form with Context counts as shown if
				// its plain form is shown.
				family := c.typ == "" && dir == "prims" && (strings.HasPrefix(c.name, "Attach") || strings.HasSuffix(c.name, "At"))
				if c.name != "String" && !family && !words[c.name] && !words[strings.TrimSuffix(c.name, "Context")] {
					found = append(found, c.file.at(c.decl.Pos(), "no example and no page shows %s", c.name))
				}
			}
		}
		return found
	},
	good: map[string]string{
		"prims/x.go":              "package prims\n\nfunc (X) Lock() {}\n\nfunc (X) LockContext() {}\n\nfunc (X) String() {}\n\nfunc (X) Size() {}\n\nfunc AttachX() {}\n\nfunc XAt() {}\n",
		"prims/x_example_test.go": "package prims\n\nfunc ExampleX() { x.Lock() }\n",
		"docs/x.md":               "`X.Size` tells.\n",
	},
	bad: []sample{
		{map[string]string{"arena/x.go": "package arena\n\nfunc (X) Lock() {}\n", "docs/design/x.md": "Lock\n"}, "arena/x.go:3: no example and no page shows Lock"},
		{map[string]string{"prims/x.go": "package prims\n\nfunc (X) Lock() {}\n", "README.md": "Unlock and LockContext\n"}, "prims/x.go:3: no example and no page shows Lock"},
	},
}

var identifier = regexp.MustCompile(`[A-Za-z_][A-Za-z_0-9]*`)
