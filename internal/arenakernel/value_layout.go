package arenakernel

import (
	"fmt"
	"reflect"
	"sync"

	"github.com/shmsync/shmsync/internal/typetext"
)

// typeLayout is what this package knows about a type for which shared memory is used.
type typeLayout struct {
	fingerprint uint64 // hash of the sizes, offsets and kinds of its parts; never 0
	text        string // the description with the names of fields; "" if it is too long
	err         error  // why values of the type cannot be in shared memory, or nil
}

var layouts sync.Map // reflect.Type to typeLayout

// LayoutOf returns a fingerprint of T, for [ObjectSpec]. Two types have the same fingerprint if
// they consist of numbers of the same sizes and kinds at the same offsets. The names of types and
// fields do not matter. If T contains pointers, its values cannot be in shared memory, and LayoutOf
// returns an error.
func LayoutOf[T any]() (fingerprint uint64, err error) {
	l := layoutOf(reflect.TypeFor[T]())
	return l.fingerprint, l.err
}

// TypeTextOf returns the description of T, for [ObjectSpec]. The description is empty if LayoutOf
// returns an error, or if the type is too large to be described.
func TypeTextOf[T any]() string { return layoutOf(reflect.TypeFor[T]()).text }

func layoutOf(t reflect.Type) typeLayout {
	if l, ok := layouts.Load(t); ok {
		return l.(typeLayout)
	}
	d, err := typetext.Of(t)
	l := typeLayout{fingerprint: 1}
	if err != nil {
		l.err = fmt.Errorf("a %v cannot live in shared memory: %w", t, err)
	} else {
		text := d.String()
		l.fingerprint = typetext.Fingerprint(text)
		if typetext.Check(text, l.fingerprint) {
			l.text = text
		}
	}
	layouts.Store(t, l)
	return l
}

// typeText returns the description of the type in the body of an object. It returns "" if the object
// has no valid description. The caller guards the object, or has it open.
func (c *core) typeText(h *header) string {
	if h.typeLen == 0 || h.typeLen > typetext.MaxText {
		return ""
	}
	if text := stringOf(c.slice(h.typeOff, h.typeLen)); typetext.Check(text, h.Layout) {
		return text
	}
	return ""
}

// differs says how the type of an object differs from a type of this program. The parameters layout
// and text are the fingerprint and the description of the type of this program. The result is "" if
// both types store values in the same way.
func (c *core) differs(h *header, layout uint64, text string) string {
	if h.Layout == layout && text != "" && h.typeLen == uint64(len(text)) && string(c.slice(h.typeOff, h.typeLen)) == text {
		return ""
	}
	what := ""
	if there := c.typeText(h); there != "" && text != "" {
		what = typetext.DifferenceOf(there, text)
	}
	if what == "" && h.Layout != layout {
		what = fmt.Sprintf("its type has fingerprint %#x, asked for %#x", h.Layout, layout)
	}
	return what
}

// TypeDiffers says how the type of an object differs from a type of this program. The arguments
// layout and text are the fingerprint and the description of the type of this program. The result
// is "" if both types store values in the same way. This process has the object open.
func (a *Arena) TypeDiffers(o Object, layout uint64, text string) string {
	h, err := a.headerAt(o.Offset)
	if err != nil {
		return err.Error()
	}
	return a.core.differs(&h, layout, text)
}
