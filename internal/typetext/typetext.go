// Package typetext reads and compares the descriptions of types whose values are in shared memory. The header of an
// object that stores a value has the description of the type of that value. From the description, a process can say
// which field of the type differs from its own, and a tool can print the value field by field.
//
//	type  = class size " "                                     a number: class i, u, f, b or c, size in bytes
//	      | "[" length "] " type                               an array
//	      | "{" size " " { [name] "@" offset " " type } "} "   a struct
//
// A field with the name _ is blank. A struct that has one field, without a name, means the same as that field.
// This is the description of types such as atomic.Uint64. The fingerprint of a type is the hash of its
// description without the names.
package typetext

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits for a description. If the description of a type exceeds one of them, objects of this type have a fingerprint
// and no description.
const (
	MaxText  = 4095 // bytes of the description; every ISO C compiler accepts a string literal of this length
	maxDepth = 16   // nesting of arrays and structs
	maxPath  = 255  // bytes of the path of a field
)

// Type is a type in parsed form.
type Type struct {
	Class  byte   // i, u, f, b or c for numbers; '[' for an array, '{' for a struct
	Size   uint64 // in bytes
	Len    uint64 // of an array
	Elem   *Type  // of an array
	Fields []Field
}

// Field is a field of a struct.
type Field struct {
	Name   string // "" if the struct means the same as its only field; "_" for a blank field
	Offset uint64
	Type   *Type
}

// IsName reports whether s can be the name of a field: it consists of letters, digits and underscores, and does
// not begin with a digit.
func IsName(s string) bool {
	for i, r := range s {
		if r != '_' && !unicode.IsLetter(r) && (i == 0 || !unicode.IsDigit(r)) {
			return false
		}
	}
	return s != "" && utf8.ValidString(s)
}

// String returns the description of t.
func (t *Type) String() string {
	var b strings.Builder
	t.write(&b)
	return b.String()
}

func (t *Type) write(b *strings.Builder) {
	switch t.Class {
	case '[':
		fmt.Fprintf(b, "[%d] ", t.Len)
		t.Elem.write(b)
	case '{':
		fmt.Fprintf(b, "{%d ", t.Size)
		for _, f := range t.Fields {
			fmt.Fprintf(b, "%s@%d ", f.Name, f.Offset)
			f.Type.write(b)
		}
		b.WriteString("} ")
	default:
		fmt.Fprintf(b, "%c%d ", t.Class, t.Size)
	}
}

// Fingerprint returns the hash of a description without its names. It is never 0.
func Fingerprint(text string) uint64 {
	h := fnv.New64a()
	for text != "" {
		token, rest, found := strings.Cut(text, " ")
		if at := strings.IndexByte(token, '@'); at >= 0 {
			token = token[at:]
		}
		h.Write([]byte(token))
		if found {
			h.Write([]byte{' '})
		}
		text = rest
	}
	return max(h.Sum64(), 1)
}

// Check reports whether text, which came from another process, describes a type with the given fingerprint.
func Check(text string, fingerprint uint64) bool {
	if len(text) > MaxText || Fingerprint(text) != fingerprint {
		return false
	}
	_, err := Parse(text)
	return err == nil
}

var errEnds = errors.New("the description ends early")

// Parse parses a description, which may be any bytes.
func Parse(text string) (*Type, error) {
	if len(text) > MaxText {
		return nil, fmt.Errorf("a description of %d bytes; the most is %d", len(text), MaxText)
	}
	p := parser{text}
	t, err := p.next(0, 0)
	if err == nil && p.rest != "" {
		err = errors.New("bytes after the description")
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

type parser struct{ rest string }

// token returns the next token, without the blank after it.
func (p *parser) token() (string, error) {
	s, rest, found := strings.Cut(p.rest, " ")
	if !found || s == "" {
		return "", errEnds
	}
	p.rest = rest
	return s, nil
}

func number(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 48)
	if err != nil || s != strconv.FormatUint(n, 10) {
		return 0, fmt.Errorf("%q is no number", s)
	}
	return n, nil
}

// next parses a type. path is the number of bytes in the path of the type, and depth is the number of arrays and
// structs around the type.
func (p *parser) next(path, depth int) (*Type, error) {
	s, err := p.token()
	if err != nil {
		return nil, err
	}
	if depth > maxDepth {
		return nil, errors.New("too many types in each other")
	}
	switch c := s[0]; c {
	case '[':
		return p.array(s, path, depth)
	case '{':
		return p.structure(s, path, depth)
	case 'i', 'u', 'f', 'b', 'c':
		size, err := number(s[1:])
		if err == nil && !legal(c, size) {
			err = fmt.Errorf("there is no number %q", s)
		}
		return &Type{Class: c, Size: size}, err
	}
	return nil, fmt.Errorf("%q is no type", s)
}

func legal(class byte, size uint64) bool {
	switch class {
	case 'b':
		return size == 1
	case 'f':
		return size == 4 || size == 8
	case 'c':
		return size == 8 || size == 16
	}
	return size == 1 || size == 2 || size == 4 || size == 8
}

func (p *parser) array(s string, path, depth int) (*Type, error) {
	digits, ok := strings.CutSuffix(s[1:], "]")
	if !ok {
		return nil, fmt.Errorf("%q is no array", s)
	}
	n, err := number(digits)
	if err != nil {
		return nil, err
	}
	elem, err := p.next(path+len("[]"), depth+1)
	if err != nil {
		return nil, err
	}
	if elem.Size > 0 && n > 1<<48/elem.Size {
		return nil, fmt.Errorf("an array of %d times %d bytes", n, elem.Size)
	}
	return &Type{Class: '[', Size: n * elem.Size, Len: n, Elem: elem}, nil
}

func (p *parser) structure(s string, path, depth int) (*Type, error) {
	size, err := number(s[1:])
	if err != nil {
		return nil, err
	}
	t := &Type{Class: '{', Size: size}
	seen := map[string]bool{}
	for {
		s, err := p.token()
		if err != nil {
			return nil, err
		}
		if s == "}" {
			break
		}
		name, digits, ok := strings.Cut(s, "@")
		if !ok || name != "" && !IsName(name) || name != "_" && seen[name] {
			return nil, fmt.Errorf("%q is no field", s)
		}
		seen[name] = true
		f := Field{Name: name}
		if f.Offset, err = number(digits); err != nil {
			return nil, err
		}
		below := path
		if name != "" {
			below += 1 + len(name)
		}
		if below > maxPath {
			return nil, fmt.Errorf("field %s has a path of %d bytes", name, below)
		}
		if f.Type, err = p.next(below, depth+1); err != nil {
			return nil, err
		}
		if f.Offset > size || f.Type.Size > size-f.Offset {
			return nil, fmt.Errorf("field %s does not fit into its struct", name)
		}
		t.Fields = append(t.Fields, f)
	}
	if seen[""] && (len(t.Fields) != 1 || t.Fields[0].Offset != 0) {
		return nil, errors.New("a field without a name")
	}
	return t, nil
}

// Plain returns the type of the only field, if t is a struct that means the same as that field, and otherwise t.
func (t *Type) Plain() *Type {
	for t.Class == '{' && len(t.Fields) == 1 && t.Fields[0].Name == "" {
		t = t.Fields[0].Type
	}
	return t
}

// Kind returns the type as a Go programmer writes it. For every struct it returns "struct". For a type of package
// sync/atomic it returns "atomic" and the kind of the number, such as "atomic uint64".
func (t *Type) Kind() string {
	if p := t.Plain(); p != t {
		return "atomic " + p.Kind()
	}
	switch t.Class {
	case '[':
		return fmt.Sprintf("[%d]%s", t.Len, t.Elem.Kind())
	case '{':
		return "struct"
	case 'b':
		return "bool"
	}
	return map[byte]string{'i': "int", 'u': "uint", 'f': "float", 'c': "complex"}[t.Class] + strconv.FormatUint(8*t.Size, 10)
}
