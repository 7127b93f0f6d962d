package typetext

import (
	"fmt"
	"reflect"
	"strings"
)

// Tag is the key of the struct tag that gives a field another name in the description: `shm:"name"`.
const Tag = "shm"

// Of returns the description of t in parsed form. For a type that contains pointers it returns an error that
// names the field.
func Of(t reflect.Type) (*Type, error) {
	out := &Type{Size: uint64(t.Size())}
	switch k := t.Kind(); k {
	case reflect.Struct:
		out.Class = '{'
		return out, out.fields(t)
	case reflect.Array:
		elem, err := Of(t.Elem())
		out.Class, out.Len, out.Elem = '[', uint64(t.Len()), elem
		return out, err
	case reflect.Bool:
		out.Class = 'b'
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		out.Class = 'i'
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		out.Class = 'u'
	case reflect.Float32, reflect.Float64:
		out.Class = 'f'
	case reflect.Complex64, reflect.Complex128:
		out.Class = 'c'
	default:
		return out, Refuse(k.String())
	}
	return out, nil
}

// fields adds the fields of t to out.
func (out *Type) fields(t reflect.Type) error {
	seen := map[string]bool{}
	for f := range t.Fields() {
		if f.Type.Size() == 0 && f.Type.Kind() == reflect.Struct {
			continue // a marker, such as structs.HostLayout
		}
		name, err := FieldName(f.Name, string(f.Tag), t.PkgPath() == "sync/atomic")
		if err == nil && name != "_" && seen[name] {
			err = fmt.Errorf("another field has the name %s", name)
		}
		seen[name] = true
		var below *Type
		if err == nil {
			below, err = Of(f.Type)
		}
		if err != nil {
			return fmt.Errorf("field %s: %w", f.Name, err)
		}
		out.Fields = append(out.Fields, Field{name, uint64(f.Offset), below})
	}
	return nil
}

// FieldName returns the name of a field in a description. If atomic is true, the field belongs to a type of package
// sync/atomic, and the name is "", because such a type means the same as its field.
func FieldName(name, tag string, atomic bool) (string, error) {
	if atomic && name != "_" {
		return "", nil
	}
	if other, ok := reflect.StructTag(tag).Lookup(Tag); ok && name != "_" {
		if !IsName(other) || other == "_" {
			return "", fmt.Errorf("the tag %s:%q is not a name of letters, digits and underscores", Tag, other)
		}
		return other, nil
	}
	return name, nil
}

// Refuse returns the error for a type whose values refer to the memory of one process, such as a pointer. The
// parameter kind is the kind that package reflect gives the type.
func Refuse(kind string) error {
	instead := "an arena.Offset, or a number"
	switch kind {
	case "string":
		instead = "an array of bytes, and its length"
	case "slice":
		instead = "an array, or the arena.Offset and the length of a block"
	case "map":
		instead = "an array, or a table of arena.Offset"
	}
	return fmt.Errorf("a %s refers to the memory of one process; take %s", strings.ToLower(kind), instead)
}
