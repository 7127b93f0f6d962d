package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"text/template"

	"github.com/shmsync/shmsync/internal/typetext"
)

//go:embed header.tmpl
var source string

var layout = template.Must(template.New("header").Funcs(template.FuncMap{
	"upper": upper, "quote": quote, "dims": dims, "fingerprint": typetext.Fingerprint, "hash": hash,
}).Parse(source))

// text returns the text of the header. guard is the name of its include guard.
func (h *header) text(guard string) string {
	var b bytes.Buffer
	err := layout.Execute(&b, map[string]any{"Guard": guard, "Package": h.pkg.types.Path(), "Structs": h.structs})
	if err != nil {
		panic(err)
	}
	return b.String()
}

// hash returns a hash of the text of a type description. The text contains the names of the fields, so descriptions
// that differ only in names have different hashes.
func hash(text string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(text))
	return h.Sum64()
}

// quote returns a string literal of C. It breaks a long text into several lines.
func quote(text string) string {
	const width = 90
	var lines []string
	for text != "" {
		n := min(width, len(text))
		if n < len(text) {
			if space := strings.LastIndexByte(text[:n], ' '); space > 0 {
				n = space + 1
			}
		}
		lines = append(lines, `"`+text[:n]+`"`)
		text = text[n:]
	}
	return strings.Join(lines, " \\\n    ")
}

// dims returns the lengths of an array as C writes them behind its name.
func dims(d []int64) string {
	var b strings.Builder
	for _, n := range d {
		fmt.Fprintf(&b, "[%d]", n)
	}
	return b.String()
}

// The methods below are used by the template.

func (s *cStruct) Name() string     { return s.name }
func (s *cStruct) Origin() string   { return s.origin }
func (s *cStruct) Size() int64      { return s.size }
func (s *cStruct) Text() string     { return s.text }
func (s *cStruct) Asked() bool      { return s.asked }
func (s *cStruct) Fields() []cField { return s.fields }

// Copied reports whether the type is small enough for a Synchronized and a Queue.
func (s *cStruct) Copied() bool { return s.size <= 64<<10 }

// Atomics returns the atomic fields, with the parts of the C functions that access them.
func (s *cStruct) Atomics() (all []atomicField) {
	for _, f := range s.fields {
		if f.atomic == "" {
			continue
		}
		a := atomicField{Prefix: s.name + "_" + strings.TrimSuffix(f.name, "_"), Struct: s.name, Place: "p->" + f.name, Type: f.cType, Number: true}
		if f.atomic == "Bool" {
			a.Type, a.Word, a.Number = "bool", f.cType, false
		}
		for i, n := range f.dims {
			index := string(rune('i' + i))
			a.Params += ", size_t " + index
			a.Place += "[" + index + "]"
			a.Bounds = append(a.Bounds, index+" < "+strconv.FormatInt(n, 10))
		}
		all = append(all, a)
	}
	return all
}

// atomicField is an atomic field, or an array of atomic fields.
type atomicField struct {
	Prefix string // the prefix of the names of the C functions for the field
	Struct string
	Params string // the parameters for the indices of an array
	Place  string // the C expression for the field
	Type   string // the C type of the value that the functions load and store
	Word   string // the C type of the field in memory, if it differs from Type
	Number bool   // the field is a number, so the header has a function that adds to it
	Bounds []string
}

func (f cField) Name() string   { return f.name }
func (f cField) Origin() string { return f.origin }
func (f cField) Type() string   { return f.cType }
func (f cField) Dims() []int64  { return f.dims }
func (f cField) Offset() int64  { return f.offset }
func (f cField) Atomic() string { return f.atomic }
