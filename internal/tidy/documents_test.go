package tidy

import (
	"go/ast"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/shmsync/shmsync/internal/mdtable"
)

const (
	robustnessDoc  = "docs/robustness.md"
	memoryModelDoc = "docs/memory-model.md"
)

// compareDocument compares the names in the code with the names in a document. It reads only the tables of the document
// that have the given column heading. These tables must have each name of the code exactly once, and no other name.
func compareDocument(files []*file, doc, column, what string, code map[string]finding) (found []finding) {
	i := slices.IndexFunc(files, func(f *file) bool { return f.path == doc })
	if i < 0 {
		if len(code) > 0 {
			found = append(found, finding{doc, "is missing"})
		}
		return found
	}
	f := files[i]
	tables, err := mdtable.Parse(string(f.src))
	if err != nil {
		return append(found, finding{doc, err.Error()})
	}
	seen := make(map[string]bool)
	for _, table := range mdtable.With(tables, column) {
		for _, row := range table.Rows {
			for _, name := range mdtable.Code(row.Cells[0]) {
				if seen[name] {
					found = append(found, f.atLine(row.Line, "%s %s is there twice", what, name))
				}
				if _, ok := code[name]; !ok {
					found = append(found, f.atLine(row.Line, "no %s %s is in the code", what, name))
				}
				seen[name] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(code)) {
		if !seen[name] {
			found = append(found, code[name])
		}
	}
	return found
}

// robustnessRule: a programmer who adds a crash point documents what a death there leaves behind, and who repairs
// it.
var robustnessRule = rule{
	name: "crash points are in " + robustnessDoc,
	check: func(files []*file) []finding {
		code := make(map[string]finding)
		for _, f := range files {
			if f.isTest() {
				continue
			}
			calls, _ := crashCalls(f)
			for _, c := range calls {
				if c.op == "Register" {
					code[c.name] = f.at(c.pos, "crash point %q has no row in %s", c.name, robustnessDoc)
				}
			}
		}
		return compareDocument(files, robustnessDoc, "crash point", "crash point", code)
	},
	good: map[string]string{
		"a/x.go":      crashSource("a", "", `Register("a.b")`, `Register("a.c")`),
		"a/x_test.go": crashSource("a", "", `Register("test.point")`),
		robustnessDoc: "| crash point | leaves |\n|---|---|\n| `a.b`, `a.c` | `a.d` |\n\n| other |\n|---|\n| `x.y` |\n",
	},
	bad: []sample{
		{map[string]string{"a/x.go": crashSource("a", "", `Register("a.b")`)}, robustnessDoc + ": is missing"},
		{map[string]string{"a/x.go": crashSource("a", "", `Register("a.b")`), robustnessDoc: "`a.b`\n"},
			`a/x.go:5: crash point "a.b" has no row in docs/robustness.md`},
		{map[string]string{robustnessDoc: "| crash point |\n|---|\n| `a.b` |\n"}, "robustness.md:3: no crash point a.b is in the code"},
		{map[string]string{
			"a/x.go":      crashSource("a", "", `Register("a.b")`),
			robustnessDoc: "| crash point |\n|---|\n| `a.b` |\n| `a.b` |\n",
		}, "robustness.md:4: crash point a.b is there twice"},
		{map[string]string{robustnessDoc: "| a | b |\n|---|---|\n| 1 |\n"}, "line 3: 1 cells"},
	},
}

// rolesColumn is the heading of a column in tables of the document. The cells of this column name crash points.
const rolesColumn = "dies at"

// rolesRule: a programmer who adds a crash point documents the role of a process at that point, and what survivors see.
// A name in the table that ends in * stands for all points whose names begin with the part before the *.
var rolesRule = rule{
	name: "crash points are in the matrix of " + robustnessDoc,
	check: func(files []*file) (found []finding) {
		code := make(map[string]finding)
		for _, f := range files {
			if f.isTest() {
				continue
			}
			calls, _ := crashCalls(f)
			for _, c := range calls {
				if c.op == "Register" {
					code[c.name] = f.at(c.pos, "crash point %q is in no role of the matrix in %s", c.name, robustnessDoc)
				}
			}
		}
		i := slices.IndexFunc(files, func(f *file) bool { return f.path == robustnessDoc })
		if i < 0 {
			return nil // another rule reports a missing document
		}
		tables, err := mdtable.Parse(string(files[i].src))
		if err != nil {
			return nil
		}
		for _, table := range tables {
			column := slices.Index(table.Columns, rolesColumn)
			if column < 0 {
				continue
			}
			for _, row := range table.Rows {
				for _, name := range mdtable.Code(row.Cells[column]) {
					n := 0
					for point := range code {
						prefix, some := strings.CutSuffix(name, "*")
						if point == name || some && strings.HasPrefix(point, prefix) {
							n++
							code[point] = finding{}
						}
					}
					if n == 0 {
						found = append(found, files[i].atLine(row.Line, "no crash point %s is in the code", name))
					}
				}
			}
		}
		for _, name := range slices.Sorted(maps.Keys(code)) {
			if code[name] != (finding{}) {
				found = append(found, code[name])
			}
		}
		return found
	},
	good: map[string]string{
		"a/x.go":      crashSource("a", "", `Register("a.b")`, `Register("a.c")`, `Register("d.e")`),
		robustnessDoc: "| role | dies at | sees |\n|---|---|---|\n| waker | `a.*` | `x.y` |\n| both | `d.e`, `a.b` | |\n\n| other |\n|---|\n| `x.y` |\n",
	},
	bad: []sample{
		{map[string]string{"a/x.go": crashSource("a", "", `Register("a.b")`), robustnessDoc: "`a.b`\n"},
			`a/x.go:5: crash point "a.b" is in no role of the matrix`},
		{map[string]string{robustnessDoc: "| dies at |\n|---|\n| `a.*` |\n"}, "robustness.md:3: no crash point a.* is in the code"},
	},
}

// memoryModelRule: each sync point in the code has a row in the document. The row says what the sync point orders,
// and which weaker order is enough in a C program.
var memoryModelRule = rule{
	name: "sync points are in " + memoryModelDoc,
	check: func(files []*file) []finding {
		code := make(map[string]finding)
		for _, f := range files {
			f.commentLines(func(offset int, line string) {
				if m := syncPoint.FindStringSubmatch(line); m != nil {
					code[m[1]] = f.atOffset(offset, "sync point %s has no row in %s", m[1], memoryModelDoc)
				}
			})
		}
		return compareDocument(files, memoryModelDoc, "sync point", "sync point", code)
	},
	good: map[string]string{
		"a/x.go":       "package a\n\n// sync(a.b): release\n// sync(a.b): acquire\n",
		memoryModelDoc: "| sync point | release |\n|---|---|\n| `a.b` | `Unlock` |\n",
	},
	bad: []sample{
		{map[string]string{"a/x.go": "package a\n\n// sync(a.b): release\n", memoryModelDoc: "sync(a.b)\n"},
			"a/x.go:3: sync point a.b has no row in docs/memory-model.md"},
		{map[string]string{memoryModelDoc: "| sync point |\n|---|\n| `a.b` |\n"}, "memory-model.md:3: no sync point a.b is in the code"},
	},
}

const performanceDoc = "docs/performance.md"

// tunableRule: the document has the same values of tunables as the code, because people look for the values there.
var tunableRule = rule{
	name: "tunables are as " + performanceDoc + " has them",
	check: func(files []*file) (found []finding) {
		i := slices.IndexFunc(files, func(f *file) bool { return f.path == performanceDoc })
		if i < 0 {
			return nil
		}
		tables, err := mdtable.Parse(string(files[i].src))
		if err != nil {
			return append(found, finding{performanceDoc, err.Error()})
		}
		code := constants(files)
		for _, table := range mdtable.With(tables, "constant", "value") {
			for _, row := range table.Rows {
				names, values := mdtable.Code(row.Cells[0]), mdtable.Code(row.Cells[1])
				if len(names) != 1 || len(values) != 1 {
					found = append(found, files[i].atLine(row.Line, "want a constant and its value, each in back quotes"))
				} else if is, ok := code[names[0]]; !ok {
					found = append(found, files[i].atLine(row.Line, "there is no constant %s", names[0]))
				} else if is != values[0] {
					found = append(found, files[i].atLine(row.Line, "%s is %s", names[0], is))
				}
			}
		}
		return found
	},
	good: map[string]string{
		"a/b/x.go":     "package b\n\nconst (\n\tx    = 1 << 3\n\ty, z = 1e6, 2 * time.Second\n)\n",
		performanceDoc: "| constant | value |\n|---|---|\n| `a/b.x` | `1 << 3` |\n| `a/b.z` | `2 * time.Second` |\n",
	},
	bad: []sample{
		{map[string]string{"a/x.go": "package a\n\nconst x = 1\n", performanceDoc: "| constant | value |\n|---|---|\n| `a.x` | `2` |\n"},
			"performance.md:3: a.x is 1"},
		{map[string]string{performanceDoc: "| constant | value |\n|---|---|\n| `a.x` | `2` |\n"}, "there is no constant a.x"},
		{map[string]string{performanceDoc: "| constant | value |\n|---|---|\n| `a.x` | 2 |\n"}, "want a constant and its value"},
	},
}

// constants returns the constants at package level by directory and name. The values are as written in the
// source.
func constants(files []*file) map[string]string {
	found := make(map[string]string)
	for _, f := range files {
		if f.ast == nil || f.isTest() {
			continue
		}
		for _, decl := range f.ast.Decls {
			d, ok := decl.(*ast.GenDecl)
			if !ok || d.Tok != token.CONST {
				continue
			}
			for _, spec := range d.Specs {
				v := spec.(*ast.ValueSpec)
				for i, name := range v.Names {
					if i < len(v.Values) {
						from, to := f.fset.Position(v.Values[i].Pos()).Offset, f.fset.Position(v.Values[i].End()).Offset
						found[f.dir()+"."+name.Name] = string(f.src[from:to])
					}
				}
			}
		}
	}
	return found
}

var (
	mdLink   = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	mdSpan   = regexp.MustCompile("`[^`\n]*`")
	mdScheme = regexp.MustCompile(`^[a-z][a-z0-9+.-]*:`)
)

// linkRule: if a document or a heading is renamed, the links to it must be changed, too.
var linkRule = rule{
	name: "links lead somewhere",
	check: func(files []*file) (found []finding) {
		anchors := make(map[string]map[string]bool)
		there := map[string]bool{".": true}
		for _, f := range files {
			for name := f.path; name != "."; name = path.Dir(name) {
				there[name] = true
			}
			if path.Ext(f.path) == ".md" {
				anchors[f.path] = headingAnchors(string(f.src))
			}
		}
		for _, f := range files {
			if path.Ext(f.path) != ".md" {
				continue
			}
			for number, line := range proseLines(string(f.src)) {
				for _, m := range mdLink.FindAllStringSubmatch(mdSpan.ReplaceAllString(line, ""), -1) {
					if why := brokenLink(f, m[1], there, anchors); why != "" {
						found = append(found, f.atLine(number, "link to %s: %s", m[1], why))
					}
				}
			}
		}
		return found
	},
	good: map[string]string{
		"README.md": "# A `b`: c\n[x](docs/x.md), [`y`](docs/x.md#one-two), [d](docs), [a](#a-b-c), [w](https://example.org/x), `[n](no.md)`\n" +
			"```\n[n](no.md)\n```\n",
		"docs/x.md": "## One, two\n[up](../README.md) [self](x.md)\n",
	},
	bad: []sample{
		{map[string]string{"README.md": "\n[x](docs/y.md)\n", "docs/x.md": "\n"}, "README.md:2: link to docs/y.md: there is no such file"},
		{map[string]string{"docs/x.md": "[`x`](README.md)\n", "README.md": "\n"}, "docs/x.md:1: link to README.md"},
		{map[string]string{"x.md": "[x](#two)\n# One\n"}, "no heading"},
		{map[string]string{"x.md": "[x](y.md#two)\n", "y.md": "# One\n```\n# two\n```\n"}, "no heading"},
		{map[string]string{"x.md": "[x](../y.md)\n", "y.md": "\n"}, "link to ../y.md: there is no such file"},
	},
}

func brokenLink(f *file, link string, there map[string]bool, anchors map[string]map[string]bool) string {
	if mdScheme.MatchString(link) {
		return ""
	}
	name, anchor, anchored := strings.Cut(link, "#")
	target := f.path
	if name != "" {
		target = path.Join(f.dir(), name)
	}
	switch {
	case !there[target]:
		return "there is no such file"
	case anchored && anchors[target] != nil && !anchors[target][anchor]:
		return "no heading there has this anchor"
	}
	return ""
}

// proseLines returns the lines of a document outside of fenced blocks, by line number.
func proseLines(src string) map[int]string {
	lines, number, fenced := make(map[int]string), 0, false
	for line := range strings.Lines(src) {
		number++
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		} else if !fenced {
			lines[number] = line
		}
	}
	return lines
}

var notInAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)

// headingAnchors returns the anchors of the headings of a document, by the rules of GitHub.
func headingAnchors(src string) map[string]bool {
	anchors := make(map[string]bool)
	for _, line := range proseLines(src) {
		if title := strings.TrimLeft(line, "#"); title != line && strings.HasPrefix(title, " ") {
			title = notInAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			anchors[strings.ReplaceAll(title, " ", "-")] = true
		}
	}
	return anchors
}
