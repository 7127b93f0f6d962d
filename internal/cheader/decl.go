package cheader

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A Decl is a public declaration of the header: a function, a type, or a macro.
type Decl struct {
	Name    string // for an enumeration without a name: the name of its first constant
	Kind    Kind
	Text    string // the declaration without the comment above it and without a function body
	Comment string // the comment above the declaration or on its line, without comment marks but with line breaks
	File    string // the part of the header that contains it
}

// A Kind says what kind of thing a declaration declares.
type Kind int

// The kinds of declarations.
const (
	Func Kind = iota
	Type
	Macro
)

var (
	funcLine  = regexp.MustCompile(`^(static inline )?((?:const )?[a-z_0-9]+ \**)(shmsync_\w+)\((.*)\)`)
	typeLine  = regexp.MustCompile(`^typedef (?:struct \w+|\w+) (shmsync_\w+)`)
	macroLine = regexp.MustCompile(`^#define (SHMSYNC_\w+) `)
	trailing  = regexp.MustCompile(`\s*/\*(.*)\*/\s*$`)
)

// Declarations returns the public declarations of the parts in dir.
func Declarations(dir string) (all []Decl, err error) {
	parts, err := filepath.Glob(filepath.Join(dir, "[01]*.h"))
	if err != nil {
		return nil, err
	}
	slices.Sort(parts)
	for _, p := range parts {
		src, err := os.ReadFile(p)
		if err != nil {
			return nil, err
		}
		all = append(all, declarations(filepath.Base(p), string(src))...)
	}
	return all, nil
}

// declarations returns the public declarations in one part of the header. A comment belongs to the declaration that
// begins on the next line.
func declarations(file, src string) (all []Decl) {
	var comment string
	lines := strings.Split(src, "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		if strings.HasPrefix(line, "/*") {
			from := i
			for i < len(lines)-1 && !strings.Contains(lines[i], "*/") {
				i++
			}
			comment = Uncomment(lines[from : i+1])
			continue
		}
		d := Decl{Comment: comment, File: file}
		comment = ""
		switch {
		case macroLine.MatchString(line):
			d.Kind, d.Name = Macro, macroLine.FindStringSubmatch(line)[1]
			d.Text = line
		case typeLine.MatchString(line) || strings.HasPrefix(line, "enum {"):
			d.Kind = Type
			from := i
			if strings.HasSuffix(trailing.ReplaceAllString(line, ""), "{") {
				for i < len(lines)-1 && !strings.HasPrefix(lines[i], "}") {
					i++
				}
			}
			d.Text = strings.Join(lines[from:i+1], "\n")
			if m := typeLine.FindStringSubmatch(line); m != nil {
				d.Name = m[1]
			} else {
				d.Name = regexp.MustCompile(`SHMSYNC_\w+`).FindString(d.Text)
			}
		case funcLine.MatchString(line):
			d.Kind, d.Name = Func, funcLine.FindStringSubmatch(line)[3]
			d.Text = strings.TrimSuffix(strings.TrimPrefix(trailing.ReplaceAllString(line, ""), "static inline "), ";")
		default:
			continue
		}
		if m := trailing.FindStringSubmatch(line); d.Comment == "" && m != nil {
			d.Comment = strings.TrimSpace(m[1])
		}
		all = append(all, d)
	}
	return all
}

// Uncomment removes the comment marks from the lines of a comment. It keeps indentation within the comment.
func Uncomment(lines []string) string {
	var out []string
	for i, line := range lines {
		line, _, _ = strings.Cut(line, "*/")
		if i == 0 {
			line = strings.TrimPrefix(line, "/*")
		} else {
			line = strings.TrimPrefix(strings.TrimPrefix(line, " "), "*")
		}
		out = append(out, strings.TrimRight(strings.TrimPrefix(line, " "), " "))
	}
	return strings.Trim(strings.Join(out, "\n"), "\n")
}

// Parameters splits the declaration of a function into its result type and its parameters.
func (d *Decl) Parameters() (result string, all []string) {
	m := funcLine.FindStringSubmatch(d.Text)
	if m[4] == "void" {
		return strings.TrimSpace(m[2]), nil
	}
	depth, from := 0, 0
	for i, c := range m[4] + "," {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			all = append(all, strings.TrimSpace(m[4][from:i]))
			from = i + 1
		}
	}
	return strings.TrimSpace(m[2]), all
}

var parameterName = regexp.MustCompile(`\(\*(\w+)\)|(\w+)(?:\[\w*\])?$`)

// nameOf returns the name of a parameter. For example, the name in "int (*repair)(void *)" is repair.
func nameOf(parameter string) string {
	m := parameterName.FindStringSubmatch(parameter)
	if m == nil {
		return parameter
	}
	return m[1] + m[2]
}
