package cheader

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ABI lists everything in the header on which a compiled program depends: functions with their types, structs with
// their sizes, fields with their offsets, and constants. Each has a line, and the lines are sorted. The sizes and
// offsets are those of 64-bit Linux.
func ABI(decls []Decl) (lines []string, err error) {
	known := shapesByName{}
	for name, size := range map[string]int{
		"char": 1, "unsigned char": 1, "int": 4, "unsigned": 4, "uint32_t": 4, "int32_t": 4,
		"int64_t": 8, "uint64_t": 8, "size_t": 8,
	} {
		known[name] = shape{size, size}
	}
	for _, d := range decls {
		text := blank.ReplaceAllString(comment.ReplaceAllString(d.Text, ""), " ")
		switch {
		case d.Kind == Func:
			lines = append(lines, "function "+strings.TrimSpace(text))
		case d.Kind == Macro && d.Name != "SHMSYNC_VERSION":
			lines = append(lines, "constant "+strings.TrimSpace(strings.TrimPrefix(text, "#define ")))
		case d.Kind == Type && strings.HasPrefix(text, "enum"):
			lines = append(lines, enumerators(text)...)
		case d.Kind == Type:
			open := strings.Index(text, "{")
			if open < 0 { // an alias of another type
				of := strings.TrimSuffix(strings.TrimPrefix(text, "typedef "), " "+d.Name+";")
				known[d.Name] = known[of]
				lines = append(lines, "type "+d.Name+" is "+of)
				continue
			}
			s, fields, err := known.structure(text[open+1 : strings.LastIndex(text, "}")])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", d.Name, err)
			}
			known[d.Name] = s
			lines = append(lines, fmt.Sprintf("type %s has %d bytes", d.Name, s.size))
			for _, f := range fields {
				lines = append(lines, fmt.Sprintf("field %s.%s at %d is %s", d.Name, f.name, f.offset, f.kind))
			}
		}
	}
	slices.Sort(lines)
	return lines, nil
}

// A shape is the size and the alignment of a type.
type shape struct{ size, align int }

// shapesByName maps the name of a type to its size and alignment.
type shapesByName map[string]shape

// A field is a field of a struct.
type field struct {
	name, kind string
	offset     int
}

var (
	comment    = regexp.MustCompile(`(?s)/\*.*?\*/`)
	blank      = regexp.MustCompile(`\s+`)
	enumerator = regexp.MustCompile(`^(SHMSYNC_\w+)(?: = (\d+))?$`)
	declarator = regexp.MustCompile(`^(.*?)(\**)(?:\(\*(\w+)\)(\(.*\))|(\w+)((?:\[\w+\])*))$`)
	dimension  = regexp.MustCompile(`\[(\d+)\]`)
)

// enumerators returns a line for each constant of an enumeration.
func enumerators(text string) (lines []string) {
	value := 0
	for _, one := range split(text[strings.Index(text, "{")+1:strings.LastIndex(text, "}")], ',') {
		m := enumerator.FindStringSubmatch(one)
		if m == nil {
			continue
		}
		if m[2] != "" {
			value, _ = strconv.Atoi(m[2])
		}
		lines = append(lines, fmt.Sprintf("constant %s %d", m[1], value))
		value++
	}
	return lines
}

// structure computes the layout of a struct from the text of its body. It returns the size and alignment of the struct,
// and its fields.
func (known shapesByName) structure(body string) (s shape, fields []field, err error) {
	s.align = 1
	for _, statement := range split(body, ';') {
		base := ""
		for i, one := range split(statement, ',') {
			if i > 0 {
				one = base + one
			}
			m := declarator.FindStringSubmatch(one)
			if m == nil {
				return s, nil, fmt.Errorf("no field is read in %q", one)
			}
			base = m[1]
			f := field{name: m[3] + m[5], kind: strings.TrimSpace(m[1]) + m[2] + m[6]}
			if m[2] != "" {
				f.kind = strings.TrimSpace(m[1]) + " " + m[2] + m[6]
			}
			of := shape{8, 8} // a pointer
			if m[3] != "" {
				f.kind = strings.TrimSpace(m[1]) + " (*)" + m[4]
			} else if m[2] == "" {
				name := strings.TrimSpace(strings.TrimPrefix(m[1], "const "))
				if inner, found := strings.CutPrefix(name, "struct {"); found {
					if of, _, err = known.structure(strings.TrimSuffix(inner, "}")); err != nil {
						return s, nil, err
					}
				} else if of, found = known[name]; !found || of.align == 0 {
					return s, nil, fmt.Errorf("the size of %q is not known", name)
				}
			}
			for _, d := range dimension.FindAllStringSubmatch(m[6], -1) {
				n, _ := strconv.Atoi(d[1])
				of.size *= n
			}
			f.offset = (s.size + of.align - 1) / of.align * of.align
			s.size = f.offset + of.size
			s.align = max(s.align, of.align)
			fields = append(fields, f)
		}
	}
	s.size = (s.size + s.align - 1) / s.align * s.align
	return s, fields, nil
}

// split splits text at each separator that is not inside brackets.
func split(text string, at rune) (all []string) {
	depth, from := 0, 0
	for i, c := range text + string(at) {
		switch {
		case c == '(' || c == '{':
			depth++
		case c == ')' || c == '}':
			depth--
		case c == at && depth == 0:
			if part := strings.TrimSpace(text[from:i]); part != "" {
				all = append(all, part)
			}
			from = i + 1
		}
	}
	return all
}
