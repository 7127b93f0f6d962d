package tidy

import (
	"go/ast"
	"go/token"
	"go/types"
	"path"
	"regexp"
	"slices"
	"strings"
)

// This file has the rules of CONTRIBUTING.md, "Exported API", that a reader cannot check by looking at one
// declaration.

// call is an exported function or method of a package.
type call struct {
	file            *file
	decl            *ast.FuncDecl
	typ             string // type of the receiver, or ""
	name            string
	params, results []string // types
	names           []string // of the parameters
}

func (c *call) fails() bool { return len(c.results) > 0 && c.results[len(c.results)-1] == "error" }

// callsOf returns the exported calls of the files of a directory, by receiver type and name.
func callsOf(files []*file, dir string) map[[2]string]*call {
	calls := map[[2]string]*call{}
	for _, f := range files {
		if f.ast == nil || f.isTest() || f.dir() != dir {
			continue
		}
		for _, decl := range f.ast.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok && d.Name.IsExported() && exportedReceiver(d) {
				c := &call{file: f, decl: d, name: d.Name.Name}
				if d.Recv != nil {
					c.typ, _, _ = strings.Cut(strings.TrimPrefix(types.ExprString(d.Recv.List[0].Type), "*"), "[")
				}
				c.params, c.names = listOf(d.Type.Params)
				c.results, _ = listOf(d.Type.Results)
				calls[[2]string{c.typ, c.name}] = c
			}
		}
	}
	return calls
}

// listOf returns the type and the name of each parameter or result.
func listOf(l *ast.FieldList) (kinds, names []string) {
	if l == nil {
		return nil, nil
	}
	for _, f := range l.List {
		kind := types.ExprString(f.Type)
		if len(f.Names) == 0 {
			kinds, names = append(kinds, kind), append(names, "")
		}
		for _, n := range f.Names {
			kinds, names = append(kinds, kind), append(names, n.Name)
		}
	}
	return kinds, names
}

// faceDirs are the packages that users import and that have calls which may wait.
var faceDirs = []string{".", "shm", "arena", "prims"}

// blocking matches the plain forms of prims that may wait for another process.
var blocking = regexp.MustCompile(`^(Wait[A-Za-z]*|Lock(All|Upgradable)?|RLock|Upgrade|Lease|Recover|ArriveAndWait|Do|(Get|Put)Batch)$`)

var contextRule = rule{
	name: "contexts of the exported API",
	check: func(files []*file) (found []finding) {
		for _, dir := range faceDirs {
			calls := callsOf(files, dir)
			for key, c := range calls {
				switch n := len(c.params); {
				case slices.Contains(c.params, "context.Context"):
					plain := calls[[2]string{c.typ, strings.TrimSuffix(c.name, "Context")}]
					switch {
					case !strings.HasSuffix(c.name, "Context") || plain == nil:
						found = append(found, c.file.at(c.decl.Pos(), "%s takes a context: it needs a plain form beside it, and the name of that with Context", c.name))
					case c.params[0] != "context.Context" || !slices.Equal(c.params[1:], plain.params):
						found = append(found, c.file.at(c.decl.Pos(), "%s takes the context first, and then what %s takes", c.name, plain.name))
					case !c.fails() || !slices.Equal(c.results, plain.results) && !slices.Equal(c.results[:len(c.results)-1], plain.results):
						found = append(found, c.file.at(c.decl.Pos(), "%s returns what %s returns, and an error", c.name, plain.name))
					case plain.fails() != returnsError(calls, plain):
						found = append(found, plain.file.at(plain.decl.Pos(), "%s returns an error exactly if peers can end its waits, or it calls a function of the caller", plain.name))
					}
				case dir == "prims" && c.typ != "" && calls[[2]string{c.typ, c.name + "Context"}] == nil &&
					!strings.HasSuffix(c.name, "Async") &&
					(blocking.MatchString(c.name) || calls[[2]string{c.typ, "Try" + c.name}] != nil && !slices.Equal(c.results, []string{"bool"})):
					found = append(found, c.file.at(c.decl.Pos(), "%s.%s may wait: it needs a form with Context", c.typ, c.name))
				case c.name == "Reset" && (n != 0 || !slices.Equal(c.results, []string{"bool"})),
					c.name == "ResetTo" && (n != 1 || !slices.Equal(c.results, []string{"bool"})):
					found = append(found, c.file.at(c.decl.Pos(), "Reset takes nothing, ResetTo one value, and both report whether they did it"))
				case dir == "prims" && c.typ == "" && strings.HasPrefix(c.name, "Open") && key[0] == "":
					found = append(found, checkOpen(calls, c)...)
				}
			}
		}
		return found
	},
	good: map[string]string{"prims/x.go": `package prims

func (x *X) Wait()                                {}
func (x *X) WaitContext(ctx context.Context) error { return nil }
func (x *X) WaitAsync() *Pending                  { return nil }
func (x *X) TryGet() (int, bool)                  { return 0, true }
func (x *X) Get() int                             { return 0 }
func (x *X) GetContext(ctx context.Context) (int, error) { return 0, nil }
func (x *X) Acquire(bit int) bool                 { return true }
func (x *X) TryAcquire(bit int) bool              { return true }
func (x *X) Reset() bool                          { return true }
func (x *X) ResetTo(n int) bool                   { return true }
func (x *X) Recover(f func() error) error         { return nil }
func (x *X) RecoverContext(ctx context.Context, f func() error) error { return nil }
func (y Y) Stop()                                 {}
func (y Y) Wait(a, b int) error                   { return nil }
func (y Y) WaitContext(ctx context.Context, a, b int) error { return nil }
func OpenX(a *arena.Arena, name string, n int64, opts *XOptions) (*X, error) { return nil, nil }
func AttachX(a *arena.Arena, name string, opts *XOptions) (*X, error)        { return nil, nil }
func XAt(a *arena.Arena, off arena.Offset) (*X, error)                       { return nil, nil }
`, "arena/x.go": "package arena\n\nfunc (x *X) lock(n int, ctx context.Context) {}\n"},
	bad: []sample{
		{map[string]string{"prims/x.go": "package prims\n\nfunc (x *X) Acquire(ctx context.Context, n int) error { return nil }\n"}, "x.go:3: Acquire takes a context"},
		{map[string]string{"prims/x.go": "package prims\n\nfunc (x *X) LockContext(ctx context.Context) error { return nil }\n"}, "x.go:3: LockContext takes a context"},
		{map[string]string{"arena/x.go": "package arena\n\nfunc Find(a int)\n\nfunc FindContext(a int, ctx context.Context) error { return nil }\n"}, "x.go:5: FindContext takes the context first"},
		{map[string]string{"prims/x.go": "package prims\n\nfunc (x *X) Wait(n int)\n\nfunc (x *X) WaitContext(ctx context.Context, n uint) error { return nil }\n"}, "x.go:5: WaitContext takes the context first, and then what"},
		{map[string]string{"prims/x.go": "package prims\n\nfunc (x *X) Wait() int\n\nfunc (x *X) WaitContext(ctx context.Context) error { return nil }\n"}, "x.go:5: WaitContext returns what"},
		{map[string]string{"prims/x.go": "package prims\n\nfunc (x *X) Wait() error\n\nfunc (x *X) WaitContext(ctx context.Context) error { return nil }\n"}, "x.go:3: Wait returns an error exactly if"},
		{map[string]string{"prims/x.go": "package prims\n\nfunc (x *X) Stop()\n\nfunc (x *X) Wait()\n\nfunc (x *X) WaitContext(ctx context.Context) error { return nil }\n"}, "x.go:5: Wait returns an error exactly if"},
		{map[string]string{"prims/x.go": "package prims\n\nfunc (x *X[T]) Lease() T\n"}, "x.go:3: X.Lease may wait"},
		{map[string]string{"prims/x.go": "package prims\n\nfunc (x *X) Grab() int\n\nfunc (x *X) TryGrab() int\n"}, "x.go:3: X.Grab may wait"},
		{map[string]string{"prims/x.go": "package prims\n\nfunc (x *X) Reset(n int) bool\n"}, "x.go:3: Reset takes nothing"},
		{map[string]string{"prims/x.go": "package prims\n\nfunc (x *X) Reset()\n"}, "x.go:3: Reset takes nothing"},
		{map[string]string{"prims/x.go": "package prims\n\nfunc (x *X) ResetTo(n int)\n"}, "x.go:3: Reset takes nothing"},
		{map[string]string{"prims/x.go": "package prims\n\nfunc OpenX(a A, name string) (*X, error)\n\nfunc XAt(a A) (*X, error)\n"}, "x.go:3: OpenX needs AttachX and XAt"},
		{map[string]string{"prims/x.go": "package prims\n\nfunc OpenX(a A, name string, n int) (*X, error)\n\nfunc AttachX(a A, name string, n int) (*X, error)\n\nfunc XAt(a A) (*X, error)\n"}, "x.go:5: AttachX takes a number"},
		{map[string]string{"prims/x.go": "package prims\n\nfunc OpenX(a A, name string) (*X, error)\n\nfunc AttachX(a A, name string) (*X, error)\n\nfunc XAt(a A, kind string) (*X, error)\n"}, "x.go:7: XAt takes kind, which OpenX does not"},
	},
}

// returnsError reports whether the call c, which has a form with Context, must return an error. Functions that are no
// methods and the methods of Future must do so. Another method must do so if a call such as Stop can end its waits, or
// if it calls a function of the caller that can fail.
func returnsError(calls map[[2]string]*call, c *call) bool {
	callsBack := func(kind string) bool { return strings.HasPrefix(kind, "func(") && strings.HasSuffix(kind, " error") }
	if c.typ == "" || c.typ == "Future" || slices.ContainsFunc(c.params, callsBack) {
		return true
	}
	for _, end := range []string{"Stop", "Shutdown", "Cancel"} {
		if calls[[2]string{c.typ, end}] != nil {
			return true
		}
	}
	return false
}

// checkOpen requires AttachX and XAt beside OpenX. AttachX and XAt must not take a number, such as a capacity,
// because an object that exists has its number already.
func checkOpen(calls map[[2]string]*call, open *call) (found []finding) {
	kind := strings.TrimPrefix(open.name, "Open")
	attach, at := calls[[2]string{"", "Attach" + kind}], calls[[2]string{"", kind + "At"}]
	if attach == nil || at == nil {
		return []finding{open.file.at(open.decl.Pos(), "%s needs Attach%s and %sAt beside it", open.name, kind, kind)}
	}
	for _, c := range []*call{attach, at} {
		for i, kind := range c.params {
			switch {
			case strings.Contains(kind, "int"):
				found = append(found, c.file.at(c.decl.Pos(), "%s takes a number, which an object that exists has", c.name))
			case !slices.Contains(open.names, c.names[i]) && c.names[i] != "off":
				found = append(found, c.file.at(c.decl.Pos(), "%s takes %s, which %s does not", c.name, c.names[i], open.name))
			}
		}
	}
	return found
}

// In an option of type bool, false means unset. This is right only if the option affects only a new object, or only
// this process or handle. ownOrNew matches the comment of such an option.
var ownOrNew = regexp.MustCompile(`\bnew\b|\bthis process\b|\bthis handle\b`)

var optionsRule = rule{
	name: "options with an unset value",
	check: func(files []*file) (found []finding) {
		for _, f := range files {
			if f.ast == nil || f.isTest() || !slices.Contains(faceDirs, f.dir()) {
				continue
			}
			ast.Inspect(f.ast, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					return false
				case *ast.TypeSpec:
					if s, ok := n.Type.(*ast.StructType); ok && n.Name.IsExported() && strings.HasSuffix(n.Name.Name, "Options") {
						for _, field := range s.Fields.List {
							if types.ExprString(field.Type) == "bool" && !ownOrNew.MatchString(field.Doc.Text()) {
								found = append(found, f.at(field.Pos(), "false cannot mean unset: a bool is for a new object, or of this process; else it is a type whose 0 means unset"))
							}
						}
					}
				case *ast.GenDecl:
					if path.Base(f.dir()) == "prims" && n.Tok == token.CONST {
						found = append(found, checkUnset(f, n)...)
					}
				}
				return true
			})
		}
		return found
	},
	good: map[string]string{
		"prims/x.go": "package prims\n\n// XOptions are.\ntype XOptions struct {\n\t// Set makes a new X that is set.\n\tSet bool\n\t// Checked makes this process check.\n\tChecked bool\n\tMode XMode\n}\n\n" +
			"const (\n\t// One is.\n\tOne XMode = iota + 1\n)\n\nconst (\n\tzero xState = iota\n\tStat SignalStat = iota\n)\n",
	},
	bad: []sample{
		{map[string]string{"prims/x.go": "package prims\n\ntype XOptions struct {\n\t// AutoReset makes each Set let one wait go.\n\tAutoReset bool\n}\n"}, "x.go:5: false cannot mean unset"},
		{map[string]string{"arena/x.go": "package arena\n\ntype Options struct {\n\tLock bool\n}\n"}, "x.go:4: false cannot mean unset"},
		{map[string]string{"prims/x.go": "package prims\n\nconst (\n\tOne XMode = iota\n)\n"}, "x.go:4: One is 0, which means unset"},
		{map[string]string{"prims/x.go": "package prims\n\nconst (\n\tOne XPolicy = 0\n)\n"}, "x.go:4: One is 0, which means unset"},
	},
}

// checkUnset finds a constant that is 0 and has the type of an option, that is, a type whose name ends in Mode or
// Policy.
func checkUnset(f *file, d *ast.GenDecl) (found []finding) {
	for _, spec := range d.Specs {
		v := spec.(*ast.ValueSpec)
		if v.Type == nil || !ast.IsExported(types.ExprString(v.Type)) || len(v.Values) != 1 {
			continue
		}
		if kind := types.ExprString(v.Type); !strings.HasSuffix(kind, "Mode") && !strings.HasSuffix(kind, "Policy") {
			continue
		}
		if value := types.ExprString(v.Values[0]); value == "iota" || value == "0" {
			found = append(found, f.at(v.Pos(), "%s is 0, which means unset", v.Names[0].Name))
		}
	}
	return found
}
