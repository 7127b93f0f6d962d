package tidy

import (
	"go/ast"
	"go/token"
	"strconv"
	"strings"
)

// skipsByVariable maps a file to the number of its calls that skip a test for a reason in a variable.
var skipsByVariable = map[string]int{
	"arenatest/fake_test.go":             1, // the library gives the reason
	"internal/cinterop/contract_test.go": 1, // a program in C gives the reason, and the test checks it
	"internal/proctest/needs.go":         1, // the caller gives the reason
	"internal/proctest/registry.go":      1, // the caller gives the reason
	"internal/pybind/pybind_test.go":     1, // the caller, in the same function, gives the reason
}

// skipRule: a test may be skipped only because the machine lacks something, and says what the test needs. If a test
// cannot reach a case, the test must leave out the case or fail.
var skipRule = rule{
	name: "a skipped test says what it needs",
	check: func(files []*file) (found []finding) {
		for _, f := range files {
			if f.ast == nil {
				continue
			}
			variable := 0
			ast.Inspect(f.ast, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				at, skips := f.skipReason(call)
				switch {
				case !skips:
				case at >= len(call.Args):
					found = append(found, f.at(call.Pos(), "skips a test without a reason"))
				default:
					text, ok := leftmostText(call.Args[at])
					if !ok {
						variable++
					}
					if ok && !strings.HasPrefix(text, "needs ") || !ok && variable > skipsByVariable[f.path] {
						found = append(found, f.at(call.Pos(), `skips a test for a reason that does not begin with "needs "`))
					}
				}
				return true
			})
		}
		return found
	},
	good: map[string]string{
		"a/x_test.go": `package a

import "` + module + `/internal/proctest"

func f(t, b any, x string) {
	t.Skip("needs root")
	b.Skipf("needs %s", x)
	proctest.Skip(t, "needs root: " + x, "other")
	proctest.Skip(t, fmt.Sprintf("needs one of %v", x))
	proctest.Missing(t, "SHMSYNC_NEED_CC", "needs a compiler")
	Skip(t, x)
}
`,
		"internal/proctest/registry.go": "package proctest\n\nfunc Skip(t any, reason string) { t.Skip(reason) }\n",
	},
	bad: []sample{
		{map[string]string{"a/x.go": "package a\n\nfunc f() { w.t.Skip(\"-short: slow\") }\n"}, "a/x.go:3: skips a test for"},
		{map[string]string{"a/x.go": "package a\n\nfunc f() { t.Skipf(\"%s\", out) }\n"}, "a/x.go:3: skips a test for"},
		{map[string]string{"a/x.go": "package a\n\nfunc f() { t.Skip(out) }\n"}, "a/x.go:3: skips a test for"},
		{map[string]string{"a/x.go": "package a\n\nfunc f() { t.SkipNow() }\n"}, "a/x.go:3: skips a test without a reason"},
		{map[string]string{"a/x.go": "package a\n\nimport \"" + module + "/internal/proctest\"\n\nfunc f() { proctest.Skip(t, \"root: \"+x) }\n"}, "a/x.go:5: skips"},
		{map[string]string{"a/x.go": "package a\n\nimport \"" + module + "/internal/proctest\"\n\nfunc f() { proctest.Missing(t, \"needs X\", \"root\") }\n"}, "a/x.go:5: skips"},
		{map[string]string{"internal/proctest/x.go": "package proctest\n\nfunc f() { Skip(t, \"root\") }\n"}, "x.go:3: skips"},
		{map[string]string{"internal/proctest/registry.go": "package proctest\n\nfunc f() { t.Skip(x); t.Skip(y) }\n"}, "registry.go:3: skips"},
	},
}

// skipReason reports whether the call skips a test, and returns the index of the argument that is the reason.
func (f *file) skipReason(call *ast.CallExpr) (at int, skips bool) {
	var name, of string
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		name = fun.Name
		if f.dir() != "internal/proctest" {
			return 0, false
		}
	case *ast.SelectorExpr:
		name = fun.Sel.Name
		if x, ok := fun.X.(*ast.Ident); ok {
			of = x.Name
		}
		if of == "" || of != f.importName(module+"/internal/proctest") {
			return 0, name == "Skip" || name == "Skipf" || name == "SkipNow"
		}
	}
	switch name {
	case "Skip":
		return 1, true
	case "Missing":
		return 2, true
	}
	return 0, false
}

// leftmostText returns the string literal with which the value of an expression begins.
func leftmostText(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		return leftmostText(e.X)
	case *ast.CallExpr:
		if selected(e.Fun, "fmt") == "Sprintf" && len(e.Args) > 0 {
			return leftmostText(e.Args[0])
		}
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, err := strconv.Unquote(e.Value)
			return text, err == nil
		}
	}
	return "", false
}
