package tidy

import (
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"

	"github.com/shmsync/shmsync/internal/mdtable"
)

const featuresDoc = "docs/testing/features.md"

// featuresRule: the table of features says how this library does an operation. Each row names a test that shows the
// operation, or its third column begins with "none: " and says why there is no such test.
var featuresRule = rule{
	name: "features in " + featuresDoc + " have tests",
	check: func(files []*file) (found []finding) {
		i := slices.IndexFunc(files, func(f *file) bool { return f.path == featuresDoc })
		if i < 0 {
			return nil
		}
		f := files[i]
		tables, err := mdtable.Parse(string(f.src))
		if err != nil {
			return append(found, finding{featuresDoc, err.Error()})
		}
		tests := testNames(files)
		checked := mdtable.With(tables, "system", "operation", "ours", "test")
		if len(checked) == 0 {
			found = append(found, finding{featuresDoc, "no table has the columns system, operation, ours and test"})
		}
		for _, table := range checked {
			for _, row := range table.Rows {
				if slices.ContainsFunc(row.Cells, func(c string) bool { return strings.TrimSpace(c) == "" }) {
					found = append(found, f.atLine(row.Line, "an empty cell"))
				}
				names := mdtable.Code(row.Cells[3])
				if strings.HasPrefix(row.Cells[2], "none: ") && row.Cells[3] == "none" {
					continue
				}
				if len(names) == 0 {
					found = append(found, f.atLine(row.Line, "no test"))
				}
				for _, name := range names {
					// A cell lists `TestX/sub`, then further subtests of the same test as `/other`. So the part before
					// the slash may be empty.
					test, sub, _ := strings.Cut(name, "/")
					if test != "" && !tests[test] || sub != "" && !tests[strconv.Quote(sub)] && !tests[strconv.Quote(strings.ReplaceAll(sub, "_", " "))] {
						found = append(found, f.atLine(row.Line, "no test %s is in the code", name))
					}
				}
			}
		}
		return found
	},
	good: map[string]string{
		"a/x_test.go": "package a\n\nimport \"testing\"\n\nfunc TestX(*testing.T) {}\n",
		featuresDoc:   "| system | operation | ours | test |\n|---|---|---|---|\n| s | o | p | `TestX` |\n| s | o | none: a reason | none |\n",
	},
	bad: []sample{
		{map[string]string{featuresDoc: "| system | operation | here | test |\n|---|---|---|---|\n| s | o | p | `TestX` |\n"}, "no table"},
		{map[string]string{featuresDoc: "| system | operation | ours | test |\n|---|---|---|---|\n| s | o | p | `TestX` |\n"}, "no test TestX"},
		{map[string]string{featuresDoc: "| system | operation | ours | test |\n|---|---|---|---|\n| s | o | p | by hand |\n"}, "no test"},
		{map[string]string{featuresDoc: "| system | operation | ours | test |\n|---|---|---|---|\n| s | o | none | none |\n"}, "no test"},
		{map[string]string{featuresDoc: "| system | operation | ours | test |\n|---|---|---|---|\n| s | o | | `TestX` |\n"}, "empty cell"},
	},
}

// testNames returns the names of the tests, benchmarks and fuzz targets, and all quoted strings, because these
// may be names of subtests.
func testNames(files []*file) map[string]bool {
	names := map[string]bool{}
	for _, f := range files {
		if !f.isTest() || f.ast == nil {
			continue
		}
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				names[fn.Name.Name] = true
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				names[lit.Value] = true
			}
			return true
		})
	}
	return names
}
