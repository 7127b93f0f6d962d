package tidy

import (
	"bytes"
	"go/ast"
	"go/format"
	"path"
	"regexp"
	"strings"
)

// sleepRule: a test that sleeps for a fixed time is slow. On a busy machine the time may be too short all the same.
var sleepRule = rule{
	name: "tests do not sleep",
	check: func(files []*file) (found []finding) {
		for _, f := range files {
			pkg := f.importName("time")
			if pkg == "" || !f.isTest() {
				continue
			}
			ast.Inspect(f.ast, func(n ast.Node) bool {
				if e, ok := n.(ast.Expr); ok && selected(e, pkg) == "Sleep" {
					found = append(found, f.at(e.Pos(), "sleeps: wait for what is waited for"))
				}
				return true
			})
		}
		return found
	},
	good: map[string]string{
		"a/x.go":      "package a\n\nimport \"time\"\n\nfunc f() { time.Sleep(1) }\n",
		"a/x_test.go": "package a\n\nimport \"time\"\n\n// no time.Sleep here\nvar _ = time.After\n",
	},
	bad: []sample{
		{map[string]string{"a/x_test.go": "package a\n\nimport \"time\"\n\nfunc f() { time.Sleep(1) }\n"}, "a/x_test.go:5: sleeps"},
		{map[string]string{"a/x_test.go": "package a\n\nimport clock \"time\"\n\nvar f = clock.Sleep\n"}, "a/x_test.go:5: sleeps"},
	},
}

// The words are split here so that this file does not contain them.
var marker = regexp.MustCompile(`\b(` + "TO" + "DO|FIX" + "ME|XX" + "X|HA" + `CK)\b`)

var markerRule = rule{
	name: "nothing is left for later",
	check: func(files []*file) (found []finding) {
		for _, f := range files {
			if !f.isText() || path.Base(f.path) == "go.sum" {
				continue
			}
			for _, m := range marker.FindAllIndex(f.src, -1) {
				found = append(found, f.atOffset(m[0], "%s", f.src[m[0]:m[1]]))
			}
		}
		return found
	},
	good: map[string]string{
		"a/x.go": "package a\n\n// todo lists and hacks, and a template named x.XX" + "XX, are words like any others.\n",
		"go.sum": "h1:abc+XX" + "X/def=\n",
	},
	bad: []sample{
		{map[string]string{"a/x.go": "package a\n\n// TO" + "DO: more\n"}, "a/x.go:3: TO" + "DO"},
		{map[string]string{"README.md": "one\nFIX" + "ME\n"}, "README.md:2"},
		{map[string]string{"x.s": "// XX" + "X(me)\n"}, "x.s:1"},
		{map[string]string{"x.sh": "# HA" + "CK\n"}, "x.sh:1"},
	},
}

var formatRule = rule{
	name: "gofmt",
	check: func(files []*file) (found []finding) {
		for _, f := range files {
			if f.err != nil {
				found = append(found, finding{f.path, "does not parse: " + f.err.Error()})
			}
			if f.ast == nil {
				continue
			}
			if formatted, err := format.Source(f.src); err != nil || !bytes.Equal(formatted, f.src) {
				found = append(found, finding{f.path, "is not as gofmt has it"})
			}
		}
		return found
	},
	good: map[string]string{"a/x.go": "package a\n\nvar x = 1\n", "a/x.txt": "package  a"},
	bad: []sample{
		{map[string]string{"a/x.go": "package a\nvar  x = 1\n"}, "a/x.go: is not as gofmt has it"},
		{map[string]string{"a/x.go": "package a\n\nvar x = \n"}, "a/x.go: does not parse"},
	},
}

// maxLines is the maximal length of a file. A longer file has more than one concept.
const maxLines = 450

var lengthRule = rule{
	name: "files are short",
	check: func(files []*file) (found []finding) {
		for _, f := range files {
			if n := bytes.Count(f.src, []byte("\n")); path.Ext(f.path) == ".go" && !f.isTest() && n > maxLines {
				found = append(found, f.atOffset(len(f.src), "%d lines, more than %d", n, maxLines))
			}
		}
		return found
	},
	good: map[string]string{
		"a/x.go":      "package a\n" + strings.Repeat("\n", maxLines-1),
		"a/x_test.go": "package a\n" + strings.Repeat("\n", 2*maxLines),
		"x.md":        strings.Repeat("\n", 2*maxLines),
	},
	bad: []sample{
		{map[string]string{"a/x.go": "package a\n" + strings.Repeat("\n", maxLines)}, "451 lines"},
	},
}

// machinePath matches absolute paths that exist on one machine and not on the reader's. It does not match a part
// of an address or of a longer path.
var machinePath = regexp.MustCompile(`(?:^|[^A-Za-z0-9_.:/~$}-])/(?:` + "wo" + "rk|ro" + `ot)/`)

var machinePathRule = rule{
	name: "no path of a machine",
	check: func(files []*file) (found []finding) {
		for _, f := range files {
			if !f.isText() {
				continue
			}
			for _, m := range machinePath.FindAllIndex(f.src, -1) {
				found = append(found, f.atOffset(m[1]-1, "absolute path %s", bytes.TrimSpace(f.src[m[0]:m[1]])))
			}
		}
		return found
	},
	good: map[string]string{
		"x.md": "https://example.org/wo" + "rk/x, ./wo" + "rk/x, $HOME/wo" + "rk/x, /dev/shm/x, frame/wo" + "rk/x\n",
	},
	bad: []sample{
		{map[string]string{"x.md": "see\n/wo" + "rk/main\n"}, "x.md:2: absolute path"},
		{map[string]string{"a/x.go": "package a\n\nconst p = \"/ro" + "ot/x\"\n"}, "a/x.go:3: absolute path"},
	},
}

var newlineRule = rule{
	name: "text ends in a newline",
	check: func(files []*file) (found []finding) {
		for _, f := range files {
			if !f.isText() || len(f.src) == 0 {
				continue
			}
			if !bytes.HasSuffix(f.src, []byte("\n")) {
				found = append(found, f.atOffset(len(f.src), "no newline at the end"))
			}
			if bytes.Contains(f.src, []byte("\r\n")) {
				found = append(found, f.atOffset(bytes.Index(f.src, []byte("\r\n")), "line ends in CR LF"))
			}
		}
		return found
	},
	good: map[string]string{"x.md": "text\n", "empty": "", "x.bin": "\x00\x01"},
	bad: []sample{
		{map[string]string{"x.md": "one\ntext"}, "x.md:2: no newline"},
		{map[string]string{"x.md": "one\r\ntwo\n"}, "x.md:1: line ends in CR LF"},
	},
}
