package typetext

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Value is one part of a value in memory.
type Value struct {
	Path   string // the path of the field, such as Slots[2].Owner; "" if the type has no fields
	Offset uint64 // in bytes, from the start of the whole value
	Kind   string
	Text   string
	Data   any // the value for JSON: a number, a bool, a string, or a slice of these
}

// MaxElements is the maximal number of elements of an array that Values shows.
const MaxElements = 64

// maxSteps bounds the work of Values, because a description of few bytes can have very many parts.
const maxSteps = 100_000

// Values returns the parts of a value of type t, at most as many as the parameter most says. The parameter b has the
// bytes of the value, or only the first of these bytes. The result more is true if Values omitted elements of an
// array beyond MaxElements, parts that are not in b, or parts beyond most.
func Values(t *Type, b []byte, most int) (all []Value, more bool) {
	var walk func(t *Type, path string, off uint64)
	steps := 0
	walk = func(t *Type, path string, off uint64) {
		if steps++; steps > maxSteps || len(all) == most {
			more = true
			return
		}
		kind := t.Kind()
		t = t.Plain()
		switch {
		case t.Class == '{':
			for _, f := range t.Fields {
				below := f.Name
				if path != "" {
					below = path + "." + f.Name
				}
				if f.Name != "_" {
					walk(f.Type, below, off+f.Offset)
				}
			}
		case t.Class == '[' && t.Elem.hasStruct():
			n := min(t.Len, MaxElements)
			more = more || n < t.Len
			for i := uint64(0); i < n && steps <= maxSteps; i++ {
				walk(t.Elem, path+"["+strconv.FormatUint(i, 10)+"]", off+i*t.Elem.Size)
			}
		case off > uint64(len(b)) || min(t.Size, MaxElements*16) > uint64(len(b))-off:
			more = true
		default:
			v := Value{Path: path, Offset: off, Kind: kind}
			var cut bool
			v.Text, v.Data, cut = t.render(b[off:min(off+t.Size, uint64(len(b)))])
			more = more || cut
			all = append(all, v)
		}
	}
	walk(t, "", 0)
	return all, more
}

// hasStruct reports whether t is a struct or an array of structs.
func (t *Type) hasStruct() bool {
	t = t.Plain()
	return t.Class == '{' || t.Class == '[' && t.Elem.hasStruct()
}

// render returns a number or an array of numbers in two forms: as text, and as a value for JSON. The result cut is
// true if render omitted elements.
func (t *Type) render(b []byte) (text string, data any, cut bool) {
	t = t.Plain()
	if t.Class != '[' {
		return t.number(b)
	}
	e := t.Elem.Plain()
	if e.Class == 'u' && e.Size == 1 {
		return bytesText(b)
	}
	n := min(t.Len, MaxElements)
	texts, list := make([]string, 0, n), make([]any, 0, n)
	for i := range n {
		if uint64(len(b)) < (i+1)*e.Size {
			cut = true
			break
		}
		s, d, c := e.render(b[i*e.Size : (i+1)*e.Size])
		texts, list, cut = append(texts, s), append(list, d), cut || c
	}
	if n < t.Len {
		texts, cut = append(texts, "..."), true
	}
	return "[" + strings.Join(texts, " ") + "]", list, cut
}

// bytesText returns bytes as a string, if they are printable text with zeros after it, and otherwise in
// hexadecimal.
func bytesText(b []byte) (string, any, bool) {
	text := strings.TrimRight(string(b), "\x00")
	printable := utf8.ValidString(text)
	for _, r := range text {
		printable = printable && (unicode.IsPrint(r) || r == '\n' || r == '\t')
	}
	if printable {
		return strconv.Quote(text), text, false
	}
	if n := MaxElements * 4; len(b) > n {
		return "0x" + hex.EncodeToString(b[:n]) + "...", hex.EncodeToString(b), true
	}
	return "0x" + hex.EncodeToString(b), hex.EncodeToString(b), false
}

// number returns the number in b in two forms: as text, and as a value for JSON.
func (t *Type) number(b []byte) (string, any, bool) {
	if uint64(len(b)) < t.Size {
		return "...", nil, true
	}
	var word [8]byte
	copy(word[:], b[:min(t.Size, 8)])
	u := binary.LittleEndian.Uint64(word[:])
	switch t.Class {
	case 'b':
		if u > 1 {
			return fmt.Sprintf("%#x, which is no bool", u), u, false
		}
		return strconv.FormatBool(u == 1), u == 1, false
	case 'i':
		shift := 64 - 8*t.Size
		i := int64(u<<shift) >> shift
		return strconv.FormatInt(i, 10), i, false
	case 'f':
		return floatText(t.Size, u)
	case 'c':
		half := &Type{Class: 'f', Size: t.Size / 2}
		re, reData, _ := half.number(b[:half.Size])
		im, imData, _ := half.number(b[half.Size:])
		if !strings.HasPrefix(im, "-") && !strings.HasPrefix(im, "+") {
			im = "+" + im
		}
		return "(" + re + im + "i)", []any{reData, imData}, false
	}
	return strconv.FormatUint(u, 10), u, false
}

func floatText(size, bits uint64) (string, any, bool) {
	f := math.Float64frombits(bits)
	if size == 4 {
		f = float64(math.Float32frombits(uint32(bits)))
	}
	text := strconv.FormatFloat(f, 'g', -1, int(8*size))
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return text, text, false // JSON has no such number
	}
	return text, f, false
}
