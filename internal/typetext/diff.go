package typetext

import (
	"fmt"
	"strings"
)

// leaf is the smallest part of a type that Changes compares: a number, or an array of numbers.
type leaf struct {
	path   string // such as Slots[].Owner; "" if the type has no fields
	offset uint64 // where the part begins; in an array of structs, where it begins in the first element
	kind   string
}

func leaves(t *Type) (all []leaf) {
	var walk func(t *Type, path string, offset uint64, within bool)
	walk = func(t *Type, path string, offset uint64, within bool) {
		kind := t.Kind()
		t = t.Plain()
		if t.Class != '{' && !within {
			all = append(all, leaf{path, offset, kind})
		}
		switch t.Class {
		case '[':
			walk(t.Elem, path+"[]", offset, true)
		case '{':
			for _, f := range t.Fields {
				if f.Name == "_" {
					continue
				}
				below := f.Name
				if path != "" {
					below = path + "." + f.Name
				}
				walk(f.Type, below, offset+f.Offset, false)
			}
		}
	}
	walk(t, "", 0, false)
	return all
}

// Change is one difference between two types.
type Change struct {
	Path     string // the path of the field; "" if the types are not structs
	Old, New string // kind and offset, such as "int64 at 8"; "" if the type does not have the field
}

// Changes lists the differences between an old and a new description of a type. The fields of the new type come
// first, and then the fields that only the old type has. Suppose that a field of only the new type and a field of only
// the old type have the same offset and kind. Changes then takes them for one field with a new name, and lists neither.
func Changes(old, now *Type) (all []Change) {
	if was, is := old.Kind(), now.Kind(); was != is && (was == "struct" || is == "struct") {
		return []Change{{Old: was, New: is}}
	}
	before, after := leaves(old), leaves(now)
	index := func(in []leaf) map[string]leaf {
		m := make(map[string]leaf, len(in))
		for _, l := range in {
			m[l.path] = l
		}
		return m
	}
	was, is := index(before), index(after)
	text := func(l leaf) string { return fmt.Sprintf("%s at %d", l.kind, l.offset) }
	renamed := func(l leaf, in []leaf, own map[string]leaf) bool {
		for _, o := range in {
			if _, both := own[o.path]; !both && o.offset == l.offset && o.kind == l.kind {
				return true
			}
		}
		return false
	}
	for _, l := range after {
		o, both := was[l.path]
		switch {
		case both && (o.offset != l.offset || o.kind != l.kind):
			all = append(all, Change{Path: l.path, Old: text(o), New: text(l)})
		case !both && !renamed(l, before, is):
			all = append(all, Change{Path: l.path, New: text(l)})
		}
	}
	for _, o := range before {
		if _, both := is[o.path]; !both && !renamed(o, after, was) {
			all = append(all, Change{Path: o.path, Old: text(o)})
		}
	}
	return all
}

// namedMost is the maximal number of fields that a difference names.
const namedMost = 3

// Difference returns a phrase that says how the type of an object in an arena differs from the type of this program.
// The phrase names a few of the fields that only one type has or whose kinds differ, and says how many more there
// are. It also says how many fields have only moved. If nothing but offsets differs, it names the first of these
// fields. Difference returns "" if no field differs.
func Difference(arena, program *Type) string {
	var named []string
	others, moved, first := 0, 0, ""
	for _, c := range Changes(arena, program) {
		switch {
		case c.moved():
			if moved++; moved == 1 {
				first = c.phrase()
			}
		case len(named) < namedMost:
			named = append(named, c.phrase())
		default:
			others++
		}
	}
	if len(named) == 0 && moved > 0 {
		named = []string{first}
		moved--
	}
	text := strings.Join(named, ", and ")
	text += count(others, "more field differs", "more fields differ")
	return text + count(moved, "more field has moved", "more fields have moved")
}

func count(n int, one, many string) string {
	switch n {
	case 0:
		return ""
	case 1:
		return ", and 1 " + one
	}
	return fmt.Sprintf(", and %d %s", n, many)
}

// moved reports whether only the offset of the field differs.
func (c Change) moved() bool {
	was, _, _ := strings.Cut(c.Old, " at ")
	is, _, _ := strings.Cut(c.New, " at ")
	return was == is
}

func (c Change) phrase() string {
	what := "field " + c.Path
	if c.Path == "" {
		what = "the type"
	}
	switch {
	case c.Old == "":
		return fmt.Sprintf("%s, %s, is in this program only", what, c.New)
	case c.New == "":
		return fmt.Sprintf("%s, %s, is in the arena only", what, c.Old)
	}
	return fmt.Sprintf("%s is %s in the arena, and %s in this program", what, c.Old, c.New)
}

// DifferenceOf is Difference for two descriptions. It returns "" if one of them is not a valid description.
func DifferenceOf(arena, program string) string {
	if arena == program {
		return ""
	}
	a, err := Parse(arena)
	if err != nil {
		return ""
	}
	p, err := Parse(program)
	if err != nil {
		return ""
	}
	return Difference(a, p)
}
