package arenakernel

import (
	"fmt"
	"hash/fnv"
	"io"
	"reflect"
	"sync"
)

// typeLayout is what this package knows about a type whose values may live in shared memory.
type typeLayout struct {
	fingerprint uint64 // of the sizes, offsets and kinds of its parts; never 0
	err         error  // why values of the type cannot live there, or nil
}

var layouts sync.Map // reflect.Type to typeLayout

// LayoutOf returns a fingerprint of T. It is the same for all types whose values have the same
// numbers at the same places, whatever the types and fields are called. It goes into
// [ObjectSpec]. A T that has pointers, so that it cannot live in shared memory, is an error.
func LayoutOf[T any]() (fingerprint uint64, err error) {
	l := layoutOf(reflect.TypeFor[T]())
	return l.fingerprint, l.err
}

func layoutOf(t reflect.Type) typeLayout {
	if l, ok := layouts.Load(t); ok {
		return l.(typeLayout)
	}
	h := fnv.New64a()
	l := typeLayout{err: describe(h, t)}
	if l.err != nil {
		l.err = fmt.Errorf("a %v cannot live in shared memory: %w", t, l.err)
	}
	l.fingerprint = max(h.Sum64(), 1)
	layouts.Store(t, l)
	return l
}

// describe writes the parts of a value of type t to w.
func describe(w io.Writer, t reflect.Type) error {
	switch t.Kind() {
	case reflect.Struct:
		fmt.Fprintf(w, "{%d ", t.Size())
		for f := range t.Fields() {
			if f.Type.Size() == 0 && f.Type.Kind() == reflect.Struct {
				continue // a marker, such as structs.HostLayout
			}
			fmt.Fprintf(w, "@%d ", f.Offset)
			if err := describe(w, f.Type); err != nil {
				return fmt.Errorf("field %s: %w", f.Name, err)
			}
		}
		fmt.Fprint(w, "} ")
		return nil
	case reflect.Array:
		fmt.Fprintf(w, "[%d] ", t.Len())
		return describe(w, t.Elem())
	case reflect.Bool,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
		reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		fmt.Fprintf(w, "%s%d ", class(t.Kind()), t.Size())
		return nil
	}
	instead := "an arena.Offset, or a number"
	switch t.Kind() {
	case reflect.String:
		instead = "an array of bytes, and its length"
	case reflect.Slice:
		instead = "an array, or the arena.Offset and the length of a block"
	case reflect.Map:
		instead = "an array, or a table of arena.Offset"
	}
	return fmt.Errorf("a %v refers to the memory of one process; take %s", t.Kind(), instead)
}

// class returns the same text for kinds that a C program could not tell apart, such as int and
// int64.
func class(k reflect.Kind) string {
	switch {
	case k == reflect.Bool:
		return "b"
	case k <= reflect.Int64:
		return "i"
	case k <= reflect.Uint64:
		return "u"
	case k <= reflect.Float64:
		return "f"
	}
	return "c"
}
