package tidy

import (
	"go/ast"
	"iter"
	"path"
	"slices"
	"strconv"
	"strings"
)

// imports yields the paths that a file imports.
func (f *file) imports() iter.Seq2[*ast.ImportSpec, string] {
	return func(yield func(*ast.ImportSpec, string) bool) {
		if f.ast == nil {
			return
		}
		for _, spec := range f.ast.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err == nil && !yield(spec, name) {
				return
			}
		}
	}
}

// unsafeRule: memory safety can break only in files whose names say so.
var unsafeRule = rule{
	name: "unsafe only in _unsafe files",
	check: func(files []*file) (found []finding) {
		for _, f := range files {
			named := strings.HasSuffix(f.path, "_unsafe.go") || strings.HasSuffix(f.path, "_unsafe_test.go")
			for spec, name := range f.imports() {
				if name == "unsafe" && !named {
					found = append(found, f.at(spec.Pos(), "imports unsafe, but is not called *_unsafe.go"))
				}
				if name == "C" {
					found = append(found, f.at(spec.Pos(), "uses cgo"))
				}
			}
		}
		return found
	},
	good: map[string]string{
		"a/x_unsafe.go":      "package a\n\nimport \"unsafe\"\n",
		"a/x_unsafe_test.go": "package a\n\nimport \"unsafe\"\n",
		"a/y.go":             "package a // unsafe\n",
	},
	bad: []sample{
		{map[string]string{"asm/x.go": "package asm\n\nimport \"unsafe\"\n"}, "asm/x.go:3: imports unsafe"},
		{map[string]string{"a/x_test.go": "package a\n\nimport _ \"unsafe\"\n"}, "a/x_test.go:3: imports unsafe"},
		{map[string]string{"a/unsafe.go": "package a\n\nimport \"unsafe\"\n"}, "a/unsafe.go:3"},
		{map[string]string{"a/x.go": "package a\n\nimport \"C\"\n"}, "uses cgo"},
	},
}

// layer says which packages of this module the packages below a directory may import. Of several layers that
// match a package, the one with the longest directory applies.
type layer struct {
	dir     string
	may     []string // directories; one with a trailing slash includes all directories below it
	library bool     // imports no other module except x/sys
}

var layers = []layer{
	{".", nil, true},
	{"asm", nil, true},
	{"shm", []string{".", "internal/crashpoint"}, true},
	{"arena", []string{"internal/arenakernel", "internal/diagnose", "shm", "."}, true}, // exports the functions of internal/arenakernel
	{"prims", []string{"arena", ".", "asm", "internal/"}, true},
	{"arenatest", []string{"internal/", "arena", "shm", ".", "asm"}, true}, // imported by the tests of users
	{"internal", []string{".", "asm", "internal/"}, true},
	{"internal/arenakernel", []string{"shm", ".", "asm", "internal/"}, true},
	{"internal/park", []string{"internal/arenakernel", ".", "asm", "internal/"}, true}, // between prims and arenakernel
	{"internal/cmdline", nil, false},                                                   // uses the parser of cmd
	{"internal/diagnose", []string{"internal/arenakernel", "shm", "."}, true},
	{"internal/gosuite", []string{"shm", "arena", "prims", "internal/gosuite/"}, false}, // has only tests, so it may import everything, like cmd
	{"internal/crashpoint", []string{"internal/linger"}, true},
	{"internal/linger", nil, true},
	{"internal/race", nil, true},
	{"internal/proctest", []string{"internal/crashpoint", "internal/linger", "internal/race"}, true}, // race says whether the race detector is on
	{"internal/tidy", nil, true},
	{"internal/bench", []string{".", "asm", "shm", "arena", "prims", "include", "internal/"}, false}, // parts of cmd/shmbench
	{"include", nil, true}, // contains the C library as text
	{"internal/torture", []string{".", "asm", "shm", "arena", "prims", "include", "internal/"}, false},
	{"internal/stopstorm", []string{".", "asm", "shm", "arena", "prims", "include", "internal/"}, false},
	{"internal/selftest", []string{".", "asm", "shm", "arena", "prims", "internal/"}, false},
	{"internal/environ", []string{".", "asm", "shm", "arena", "prims", "internal/"}, false},
	{"cmd", []string{".", "asm", "shm", "arena", "prims", "internal/", "cmd/"}, false},
	{"examples", []string{".", "asm", "shm", "arena", "prims", "examples/"}, false},
	{"docs", []string{".", "asm", "shm", "arena", "prims", "docs/"}, false},
}

func layerOf(dir string) (l layer, ok bool) {
	for _, candidate := range layers {
		if dir == candidate.dir || strings.HasPrefix(dir, candidate.dir+"/") {
			if !ok || len(candidate.dir) > len(l.dir) {
				l, ok = candidate, true
			}
		}
	}
	return l, ok
}

func (l layer) allows(dir string) bool {
	return slices.ContainsFunc(l.may, func(may string) bool {
		return dir == may || strings.HasSuffix(may, "/") && strings.HasPrefix(dir, may)
	})
}

// importRule: imports go in one direction. Tests are exempt: they may import packages of higher layers.
var importRule = rule{
	name: "import direction",
	check: func(files []*file) (found []finding) {
		nested := nestedModules(files)
		for _, f := range files {
			if f.ast == nil || f.isTest() || inAny(nested, f.dir()) {
				continue
			}
			l, ok := layerOf(f.dir())
			if !ok {
				found = append(found, f.at(f.ast.Pos(), "package %s has no place in the layers of internal/tidy", f.dir()))
				continue
			}
			for spec, name := range f.imports() {
				if why := l.refuses(f.dir(), name); why != "" {
					found = append(found, f.at(spec.Pos(), "imports %s: %s", name, why))
				}
			}
		}
		return found
	},
	good: map[string]string{
		"doc.go":                    "package shmsync\n\nimport \"golang.org/x/sys/unix\"\n",
		"asm/twin.go":               "package asm\n\nimport \"sync/atomic\"\n",
		"shm/x.go":                  "package shm\n\nimport (\n\t\"os\"\n\t\"" + module + "\"\n\t\"" + module + "/internal/crashpoint\"\n)\n",
		"arena/x.go":                "package arena\n\nimport (\n\t\"" + module + "/shm\"\n\t\"" + module + "/internal/arenakernel\"\n)\n",
		"internal/arenakernel/x.go": "package arenakernel\n\nimport (\n\t\"" + module + "/shm\"\n\t\"" + module + "/internal/race\"\n)\n",
		"prims/x.go":                "package prims\n\nimport \"" + module + "/arena\"\n",
		"prims/x_test.go":           "package prims\n\nimport \"" + module + "/internal/proctest\"\n",
		"cmd/shmbench/main.go":      "package main\n\nimport (\n\t\"" + module + "/prims\"\n\t\"github.com/alecthomas/kong\"\n)\n",
		"internal/lincheck/go.mod":  "module x\n",
		"internal/lincheck/x.go":    "package x\n\nimport \"github.com/anishathalye/porcupine\"\n",
	},
	bad: []sample{
		{map[string]string{"x.go": "package shmsync\n\nimport \"" + module + "/asm\"\n"}, "x.go:3: imports " + module + "/asm"},
		{map[string]string{"asm/x.go": "package asm\n\nimport \"runtime\"\n"}, "imports runtime"},
		{map[string]string{"asm/x.go": "package asm\n\nimport \"golang.org/x/sys/cpu\"\n"}, "imports golang.org/x/sys/cpu"},
		{map[string]string{"shm/x.go": "package shm\n\nimport \"" + module + "/arena\"\n"}, "/arena"},
		{map[string]string{"shm/x.go": "package shm\n\nimport \"" + module + "/internal/park\"\n"}, "/internal/park"},
		{map[string]string{"arena/x.go": "package arena\n\nimport \"" + module + "/prims\"\n"}, "/prims"},
		{map[string]string{"internal/arenakernel/x.go": "package arenakernel\n\nimport \"" + module + "/arena\"\n"}, "/arena"},
		{map[string]string{"internal/park/x.go": "package park\n\nimport \"" + module + "/arena\"\n"}, "/arena"},
		{map[string]string{"prims/x.go": "package prims\n\nimport \"" + module + "/shm\"\n"}, "/shm"},
		{map[string]string{"prims/x.go": "package prims\n\nimport \"" + module + "/internal/proctest\"\n"}, "for tests"},
		{map[string]string{"prims/x.go": "package prims\n\nimport \"github.com/pkg/errors\"\n"}, "third party"},
		{map[string]string{"internal/park/x.go": "package park\n\nimport \"" + module + "/prims\"\n"}, "/prims"},
		{map[string]string{"internal/race/x.go": "package race\n\nimport \"" + module + "\"\n"}, "imports " + module},
		{map[string]string{"examples/a/x.go": "package main\n\nimport \"" + module + "/internal/park\"\n"}, "/internal/park"},
		{map[string]string{"util/x.go": "package util\n"}, "no place in the layers"},
	},
}

// refuses returns why a package in the directory dir, which is in layer l, may not import name, or "" if it may.
func (l layer) refuses(dir, name string) string {
	switch {
	case name == module || strings.HasPrefix(name, module+"/"):
		target := path.Clean("./" + strings.TrimPrefix(strings.TrimPrefix(name, module), "/"))
		if target == "internal/proctest" {
			return "it is for tests"
		}
		if !l.allows(target) {
			return "imports run cmd, examples → prims → arena, internal/park → internal/arenakernel → shm → root"
		}
	case l.dir == "asm":
		if name != "sync/atomic" {
			return "asm imports nothing but sync/atomic"
		}
	case strings.Contains(strings.SplitN(name, "/", 2)[0], "."):
		if l.library && !strings.HasPrefix(name, "golang.org/x/sys/") && name != mmapGo {
			return "a library package of ours has no third party but x/sys and mmap-go"
		}
	}
	return ""
}

// nestedModules returns the directories of modules within this one.
func nestedModules(files []*file) (dirs []string) {
	for _, f := range files {
		if path.Base(f.path) == "go.mod" && f.dir() != "." {
			dirs = append(dirs, f.dir())
		}
	}
	return dirs
}

func inAny(dirs []string, dir string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return dir == d || strings.HasPrefix(dir, d+"/") })
}

// testifyRule: helper processes do not use testify. A helper process that fails must say so to its parent, and
// testify can only fail a test.
var testifyRule = rule{
	name: "testify only in tests",
	check: func(files []*file) (found []finding) {
		for _, f := range files {
			for spec, name := range f.imports() {
				if strings.HasPrefix(name, "github.com/stretchr/testify") && !f.isTest() {
					found = append(found, f.at(spec.Pos(), "imports testify outside of a test"))
				}
			}
		}
		return found
	},
	good: map[string]string{"a/x_test.go": "package a\n\nimport \"github.com/stretchr/testify/require\"\n"},
	bad: []sample{
		{map[string]string{"a/x.go": "package a\n\nimport \"github.com/stretchr/testify/require\"\n"}, "a/x.go:3"},
		{map[string]string{"internal/proctest/x.go": "package proctest\n\nimport \"github.com/stretchr/testify/assert\"\n"}, "x.go:3"},
	},
}

const mmapGo = "github.com/edsrzf/mmap-go"

var mmapRule = rule{
	name: "mmap-go only in shm/map_linux.go",
	check: func(files []*file) (found []finding) {
		for _, f := range files {
			for spec, name := range f.imports() {
				if name == mmapGo && f.path != "shm/map_linux.go" {
					found = append(found, f.at(spec.Pos(), "imports mmap-go"))
				}
			}
		}
		return found
	},
	good: map[string]string{"shm/map_linux.go": "package shm\n\nimport \"" + mmapGo + "\"\n"},
	bad: []sample{
		{map[string]string{"shm/x.go": "package shm\n\nimport \"" + mmapGo + "\"\n"}, "shm/x.go:3"},
		{map[string]string{"arena/x_test.go": "package arena\n\nimport \"" + mmapGo + "\"\n"}, "arena/x_test.go:3"},
	},
}
