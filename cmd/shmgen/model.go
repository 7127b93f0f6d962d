package main

import (
	"fmt"
	"go/types"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/shmsync/shmsync/internal/typetext"
)

// header is the contents of a C header.
type header struct {
	pkg     *goPackage
	structs []*cStruct // a struct comes after the structs that it contains
	byName  map[string]*cStruct
	known   map[string]*cStruct // the key is the result of keyOf
}

// cStruct is a struct of the header.
type cStruct struct {
	name   string // in C
	origin string // the Go type, for comments
	size   int64
	fields []cField
	text   string // the description
	asked  bool   // the user asked for this type by its name
}

// cField is a field of a struct, or padding.
type cField struct {
	name   string
	origin string // the Go field, for comments; "" for padding
	cType  string
	dims   []int64 // the dimensions of an array, the outermost first
	offset int64
	size   int64
	atomic string // the type of package sync/atomic, such as Uint64; "" for others
}

// shape is how C declares a value of a Go type.
type shape struct {
	cType  string
	dims   []int64
	atomic string
	text   *typetext.Type
}

// describe returns the header for the named types.
func describe(pkg *goPackage, names []string) (*header, error) {
	h := &header{pkg: pkg, byName: map[string]*cStruct{}, known: map[string]*cStruct{}}
	for _, name := range names {
		obj, _ := pkg.types.Scope().Lookup(name).(*types.TypeName)
		if obj == nil {
			return nil, fmt.Errorf("package %s has no type %s", pkg.types.Path(), name)
		}
		where := h.at(obj) + "type " + name
		if n, ok := obj.Type().(*types.Named); ok && n.TypeParams().Len() > 0 && n.TypeArgs().Len() == 0 {
			return nil, fmt.Errorf("%s has type parameters; declare a type for one instance of it", where)
		}
		if _, ok := obj.Type().Underlying().(*types.Struct); !ok || atomicOf(obj.Type()) != "" {
			return nil, fmt.Errorf("%s is no struct; put it into one", where)
		}
		if sizes.Sizeof(obj.Type()) == 0 {
			return nil, fmt.Errorf("%s has no fields", where)
		}
		s, err := h.shape(obj.Type(), "")
		if err != nil {
			return nil, fmt.Errorf("%s cannot live in shared memory: %w", where, err)
		}
		if _, err := typetext.Parse(s.text.String()); err != nil {
			return nil, fmt.Errorf("%s cannot be described: %w", where, err)
		}
		h.known[keyOf(obj.Type())].asked = true
	}
	return h, nil
}

// keyOf returns a text that is the same for identical types, and differs for other types.
func keyOf(t types.Type) string { return types.TypeString(types.Unalias(t), nil) }

// qualify returns the name of a package to be written in front of its types, for comments and messages.
func (h *header) qualify(p *types.Package) string {
	if p == h.pkg.types {
		return ""
	}
	return p.Name()
}

// at returns the position in the source at which an object is declared, for messages.
func (h *header) at(obj types.Object) string {
	if p := h.pkg.fset.Position(obj.Pos()); p.IsValid() {
		return p.String() + ": "
	}
	return ""
}

// atomicOf returns the name of t if it is a type of package sync/atomic, or "".
func atomicOf(t types.Type) string {
	n, ok := types.Unalias(t).(*types.Named)
	if !ok || n.Obj().Pkg() == nil || n.Obj().Pkg().Path() != "sync/atomic" {
		return ""
	}
	return n.Obj().Name()
}

// numbers are the Go kinds that are numbers in C.
var numbers = map[types.BasicKind]struct{ cType, text string }{
	types.Bool: {"bool", "b1"},
	types.Int:  {"int64_t", "i8"}, types.Int8: {"int8_t", "i1"}, types.Int16: {"int16_t", "i2"},
	types.Int32: {"int32_t", "i4"}, types.Int64: {"int64_t", "i8"},
	types.Uint: {"uint64_t", "u8"}, types.Uint8: {"uint8_t", "u1"}, types.Uint16: {"uint16_t", "u2"},
	types.Uint32: {"uint32_t", "u4"}, types.Uint64: {"uint64_t", "u8"},
	types.Float32: {"float", "f4"}, types.Float64: {"double", "f8"},
	types.Complex64: {"float", "c8"}, types.Complex128: {"double", "c16"},
}

// shape returns how C declares the type t. If t is a struct without a name, path becomes its C name.
func (h *header) shape(t types.Type, path string) (shape, error) {
	if n, ok := types.Unalias(t).(*types.Named); ok && n.Obj().Pkg() != nil {
		switch n.Obj().Pkg().Path() + "." + n.Obj().Name() {
		case "time.Time":
			return shape{}, fmt.Errorf("a time.Time refers to the memory of one process; take an int64 with its UnixNano")
		case "sync.Mutex", "sync.RWMutex", "sync.Once", "sync.WaitGroup", "sync.Cond":
			return shape{}, fmt.Errorf("a %s works in one process only; take an object of package prims beside the value", n.Obj().Pkg().Name()+"."+n.Obj().Name())
		case "sync/atomic.Pointer", "sync/atomic.Value", "sync/atomic.Uintptr":
			return shape{}, fmt.Errorf("an atomic.%s refers to the memory of one process; take an atomic.Uint64 with an arena.Offset", n.Obj().Name())
		}
	}
	switch u := t.Underlying().(type) {
	case *types.Basic:
		if c, ok := numbers[u.Kind()]; ok {
			size, _ := strconv.ParseUint(c.text[1:], 10, 8)
			out := shape{cType: c.cType, text: &typetext.Type{Class: c.text[0], Size: size}}
			if u.Info()&types.IsComplex != 0 {
				out.dims = []int64{2} // the real part, and the imaginary part
			}
			if isOffset(t) {
				out.cType = "shmsync_offset"
			}
			return out, nil
		}
		return shape{}, typetext.Refuse(strings.ToLower(u.Name()))
	case *types.Array:
		out, err := h.shape(u.Elem(), path)
		if err == nil && sizes.Sizeof(t) == 0 {
			err = fmt.Errorf("an array without bytes has no form in C; remove it")
		}
		if err != nil {
			return shape{}, err
		}
		out.dims = append([]int64{u.Len()}, out.dims...)
		out.text = &typetext.Type{Class: '[', Len: uint64(u.Len()), Size: uint64(sizes.Sizeof(t)), Elem: out.text}
		return out, nil
	case *types.Struct:
		if name := atomicOf(t); name != "" {
			return h.atomicShape(u, name)
		}
		return h.structShape(t, u, path)
	case *types.Pointer:
		return shape{}, typetext.Refuse("pointer")
	case *types.Slice:
		return shape{}, typetext.Refuse("slice")
	case *types.Map:
		return shape{}, typetext.Refuse("map")
	case *types.Chan:
		return shape{}, fmt.Errorf("a chan refers to the memory of one process; take a prims.Queue beside the value")
	case *types.Signature:
		return shape{}, fmt.Errorf("a func refers to the memory of one process; take a number that says which")
	}
	return shape{}, typetext.Refuse("interface")
}

// isOffset reports whether t is arena.Offset.
func isOffset(t types.Type) bool {
	n, ok := types.Unalias(t).(*types.Named)
	return ok && n.Obj().Name() == "Offset" && n.Obj().Pkg() != nil && strings.HasSuffix(n.Obj().Pkg().Path(), "shmsync/internal/arenakernel")
}

// atomicShape returns how C declares a type of package sync/atomic. Only one field of such a struct has a name other
// than _ and a size other than 0. In C, the type of this field stands for the struct.
func (h *header) atomicShape(u *types.Struct, name string) (shape, error) {
	for i := range u.NumFields() {
		f := u.Field(i)
		if f.Name() == "_" || sizes.Sizeof(f.Type()) == 0 {
			continue
		}
		out, err := h.shape(f.Type(), "")
		if err != nil {
			return out, err
		}
		out.atomic = name
		out.text = &typetext.Type{Class: '{', Size: out.text.Size, Fields: []typetext.Field{{Type: out.text}}}
		return out, nil
	}
	return shape{}, fmt.Errorf("an atomic.%s has no form in C", name)
}

// structShape adds the declaration of a struct to the header, and returns the shape of its values.
func (h *header) structShape(t types.Type, u *types.Struct, path string) (shape, error) {
	text := &typetext.Type{Class: '{', Size: uint64(sizes.Sizeof(t))}
	s := &cStruct{size: sizes.Sizeof(t), origin: types.TypeString(t, h.qualify)}
	var err error
	if s.name, err = h.nameOf(t, path); err != nil {
		return shape{}, err
	}
	var vars []*types.Var
	for i := range u.NumFields() {
		vars = append(vars, u.Field(i))
	}
	offsets := sizes.Offsetsof(vars)
	end, names := int64(0), map[string]bool{}
	for i, f := range vars {
		if _, ok := f.Type().Underlying().(*types.Struct); ok && sizes.Sizeof(f.Type()) == 0 {
			continue // a marker, such as structs.HostLayout
		}
		c, below, err := h.field(s, f, u.Tag(i), offsets[i])
		if err == nil && names[c.name] {
			err = fmt.Errorf("another field has the name %s in C; give it another one by a tag %s:\"name\"", c.name, typetext.Tag)
		}
		if err != nil {
			return shape{}, fmt.Errorf("%sfield %s: %w", h.at(f), f.Name(), err)
		}
		names[c.name] = true
		text.Fields = append(text.Fields, below)
		s.pad(end, c.offset)
		s.fields = append(s.fields, c)
		end = c.offset + c.size
	}
	s.pad(end, s.size)
	out := shape{cType: "struct " + s.name, text: text}
	if old := h.known[keyOf(t)]; old != nil {
		return out, nil
	}
	s.text = text.String()
	h.known[keyOf(t)] = s
	h.byName[s.name] = s
	h.structs = append(h.structs, s)
	return out, nil
}

// nameOf returns the C name of a struct. It begins with the name of the package if the type is from another package.
func (h *header) nameOf(t types.Type, path string) (string, error) {
	if s := h.known[keyOf(t)]; s != nil {
		return s.name, nil
	}
	name := path
	if n, ok := types.Unalias(t).(*types.Named); ok {
		name = n.Obj().Name()
		for arg := range n.TypeArgs().Types() {
			name += "_" + strings.Map(func(r rune) rune {
				if strings.ContainsRune("[]./*{} ;", r) {
					return '_'
				}
				return r
			}, types.TypeString(arg, func(p *types.Package) string { return "" }))
		}
		name = snake(name)
		if n.Obj().Pkg() != h.pkg.types && n.Obj().Pkg() != nil {
			name = snake(n.Obj().Pkg().Name()) + "_" + name
		}
	}
	if !isC(name) {
		return "", fmt.Errorf("the type %s has no name in C; give it one of ASCII letters", t)
	}
	if other := h.byName[name]; other != nil {
		return "", fmt.Errorf("the types %s and %s have the same name in C, %s", other.origin, t, name)
	}
	return name, nil
}

// paddingName matches the names of fields that fill gaps.
var paddingName = regexp.MustCompile(`^(padding|reserved)_[0-9]+$`)

// field returns the declaration of a field of s in C, and its description.
func (h *header) field(s *cStruct, f *types.Var, tag string, offset int64) (c cField, below typetext.Field, err error) {
	name, err := typetext.FieldName(f.Name(), tag, false)
	if err != nil {
		return c, below, err
	}
	cName := snake(name)
	if name == "_" {
		cName = "reserved_" + strconv.FormatInt(offset, 10)
	}
	if !isC(cName) || name != "_" && paddingName.MatchString(cName) {
		return c, below, fmt.Errorf("the name %s cannot be used in C; give it another one by a tag %s:\"name\"", name, typetext.Tag)
	}
	sh, err := h.shape(f.Type(), s.name+"_"+cName)
	if err != nil {
		return c, below, err
	}
	origin := f.Name() + " " + types.TypeString(f.Type(), h.qualify)
	if _, anonymous := f.Type().(*types.Struct); anonymous {
		origin = f.Name() + " struct"
	}
	c = cField{name: cName, origin: origin, cType: sh.cType, dims: slices.Clone(sh.dims), offset: offset,
		size: sizes.Sizeof(f.Type()), atomic: sh.atomic}
	return c, typetext.Field{Name: name, Offset: uint64(offset), Type: sh.text}, nil
}

// pad declares padding between two fields. The parameter end is the offset after the first field, and the parameter
// next is the offset of the second field.
func (s *cStruct) pad(end, next int64) {
	if end < next {
		s.fields = append(s.fields, cField{name: "padding_" + strconv.FormatInt(end, 10), cType: "uint8_t", dims: []int64{next - end}, offset: end, size: next - end})
	}
}
