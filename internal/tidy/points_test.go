package tidy

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	syncPoint     = regexp.MustCompile(`^sync\(([a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)+)\): (release|acquire)\b`)
	syncPointLike = regexp.MustCompile(`^sync\(`)
	pointName     = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+$`)
)

// commentLines yields the lines of a file's comments, without their markers.
func (f *file) commentLines(yield func(offset int, line string)) {
	if f.ast != nil {
		for _, group := range f.ast.Comments {
			for _, c := range group.List {
				splitComment(f.fset.Position(c.Pos()).Offset, c.Text, yield)
			}
		}
		return
	}
	if slices.Contains([]string{".s", ".h", ".c"}, path.Ext(f.path)) {
		offset := 0
		for line := range strings.Lines(string(f.src)) {
			if i := strings.Index(line, "//"); i >= 0 {
				splitComment(offset+i, line[i:], yield)
			} else if i := strings.Index(line, "*"); i >= 0 {
				splitComment(offset+i, line[i:], yield)
			}
			offset += len(line)
		}
	}
}

func splitComment(offset int, text string, yield func(int, string)) {
	for line := range strings.Lines(text) {
		yield(offset, strings.TrimSpace(strings.Trim(strings.TrimSpace(line), "/*")))
		offset += len(line)
	}
}

// syncPointRule: a release without an acquire is an edge that nobody uses. An acquire without a release is an
// edge that nobody makes.
var syncPointRule = rule{
	name: "sync points are paired",
	check: func(files []*file) (found []finding) {
		type ends struct{ release, acquire *finding }
		points := make(map[string]*ends)
		for _, f := range files {
			f.commentLines(func(offset int, line string) {
				if !syncPointLike.MatchString(line) {
					return
				}
				m := syncPoint.FindStringSubmatch(line)
				if m == nil {
					found = append(found, f.atOffset(offset, "%q: want sync(primitive.event): release or acquire", line))
					return
				}
				if points[m[1]] == nil {
					points[m[1]] = new(ends)
				}
				end := f.atOffset(offset, "sync(%s): %s has no counterpart", m[1], m[2])
				if m[2] == "release" {
					points[m[1]].release = &end
				} else {
					points[m[1]].acquire = &end
				}
			})
		}
		for _, e := range points {
			if e.release == nil {
				found = append(found, *e.acquire)
			}
			if e.acquire == nil {
				found = append(found, *e.release)
			}
		}
		return found
	},
	good: map[string]string{
		"a/x.go": "package a\n\nfunc f() {\n\t// sync(mutex.handoff): release\n\tg() // sync(cond.signal): acquire, of what Signal wrote\n}\n",
		"b/y.go": "package b\n\n// Comments may mention sync(x) in passing.\n//\n// sync(mutex.handoff): acquire\n",
		"c/z.h":  "/* sync(cond.signal): release */\n",
	},
	bad: []sample{
		{map[string]string{"a/x.go": "package a\n\n// sync(mutex.handoff): release\n"}, "a/x.go:3: sync(mutex.handoff): release has no counterpart"},
		{map[string]string{"a/x.go": "package a\n\n// sync(mutex.handoff): acquire\n"}, "acquire has no counterpart"},
		{map[string]string{"a/x.go": "package a\n\n// sync(a.b): release\n// sync(a.c): acquire\n"}, "sync(a.c)"},
		{map[string]string{"a/x.go": "package a\n\n// sync(a.b) release\n"}, "want sync(primitive.event)"},
		{map[string]string{"a/x.go": "package a\n\n// sync(handoff): release\n"}, "want sync(primitive.event)"},
		{map[string]string{"a/x.h": "int x; // sync(a.b): release\n"}, "a/x.h:1: sync(a.b): release has no counterpart"},
	},
}

// crashCall is a call of crashpoint.Register or crashpoint.Hit.
type crashCall struct {
	f    *file
	pos  token.Pos
	op   string
	name string
}

// crashCalls returns the calls of package crashpoint in a file. If the name of a point is not a literal, crashCalls
// reports the call, because people search the source for names.
func crashCalls(f *file) (calls []crashCall, found []finding) {
	pkg := f.importName(module + "/internal/crashpoint")
	if pkg == "" {
		return nil, nil
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		op := selected(call.Fun, pkg)
		if op != "Hit" && op != "Register" {
			return true
		}
		lit, ok := call.Args[0].(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			found = append(found, f.at(call.Pos(), "%s.%s of a name that is not a literal", pkg, op))
			return true
		}
		name, err := strconv.Unquote(lit.Value)
		if err != nil || !pointName.MatchString(name) {
			found = append(found, f.at(call.Pos(), "crash point %s: want lower-case words joined by dots", lit.Value))
			return true
		}
		calls = append(calls, crashCall{f, call.Pos(), op, name})
		return true
	})
	return calls, found
}

// importName returns the name by which a file refers to a package, or "".
func (f *file) importName(pkg string) string {
	for spec, name := range f.imports() {
		if name == pkg {
			if spec.Name != nil {
				return spec.Name.Name
			}
			return path.Base(pkg)
		}
	}
	return ""
}

// selected returns the X of an expression pkg.X, or "".
func selected(e ast.Expr, pkg string) string {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if id, ok := sel.X.(*ast.Ident); !ok || id.Name != pkg {
		return ""
	}
	return sel.Sel.Name
}

// crashPointRule: each registered crash point is hit, and each point that is hit is registered. Otherwise the
// matrix of crash tests would have a point that nothing tests, or would lack a point.
var crashPointRule = rule{
	name: "crash points are registered and hit",
	check: func(files []*file) (found []finding) {
		registered := make(map[string]crashCall)
		hit := make(map[string]bool) // the points that are hit, by directory and name
		var hits []crashCall
		for _, f := range files {
			calls, bad := crashCalls(f)
			found = append(found, bad...)
			for _, c := range calls {
				if c.op == "Hit" {
					hits = append(hits, c)
					hit[f.dir()+" "+c.name] = true
					continue
				}
				if first, dup := registered[c.name]; dup {
					found = append(found, f.at(c.pos, "crash point %q is also registered at %v", c.name,
						first.f.at(first.pos, "").where))
					continue
				}
				registered[c.name] = c
			}
		}
		for _, c := range hits {
			if r, ok := registered[c.name]; !ok || r.f.dir() != c.f.dir() {
				found = append(found, c.f.at(c.pos, "crash point %q is not registered in this package", c.name))
			}
		}
		for name, c := range registered {
			if !hit[c.f.dir()+" "+name] {
				found = append(found, c.f.at(c.pos, "crash point %q is not hit in this package", name))
			}
		}
		return found
	},
	good: map[string]string{
		"a/x.go": crashSource("a", "", `Register("mutex.unlock.before_wake")`, `Hit("mutex.unlock.before_wake")`),
		"b/x.go": crashSource("b", "cp", `Register("b.x")`, `Hit("b.x")`, `Hit("b.x")`),
		"b/y.go": "package b\n\nfunc Hit(string) {}\n\nfunc g() { Hit(\"c.x\") }\n",
	},
	bad: []sample{
		{map[string]string{"a/x.go": crashSource("a", "", `Hit("a.b")`)}, `a/x.go:5: crash point "a.b" is not registered`},
		{map[string]string{"a/x.go": crashSource("a", "", `Register("a.b")`)}, `"a.b" is not hit`},
		{map[string]string{
			"a/x.go": crashSource("a", "", `Register("a.b")`, `Hit("a.b")`),
			"b/x.go": crashSource("b", "", `Hit("a.b")`),
		}, `b/x.go:5: crash point "a.b" is not registered in this package`},
		{map[string]string{
			"a/x.go": crashSource("a", "", `Register("a.b")`, `Hit("a.b")`),
			"a/y.go": crashSource("a", "", `Register("a.b")`),
		}, "is also registered at"},
		{map[string]string{"a/x.go": crashSource("a", "", `Register("A.b")`, `Hit("A.b")`)}, "want lower-case"},
		{map[string]string{"a/x.go": crashSource("a", "", `Register("plain")`, `Hit("plain")`)}, "want lower-case"},
		{map[string]string{"a/x.go": crashSource("a", "cp", `Hit(name)`)}, "not a literal"},
	},
}

// crashSource returns a file that makes the given calls, on lines 5, 6 and so on.
func crashSource(pkg, as string, calls ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "package %s\n\nimport %s \"%s/internal/crashpoint\"\n\n", pkg, as, module)
	if as == "" {
		as = "crashpoint"
	}
	for i, call := range calls {
		fmt.Fprintf(&b, "var v%d = func() any { return %s.%s }\n", i, as, call)
	}
	return b.String()
}
