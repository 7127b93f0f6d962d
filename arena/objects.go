package arena

import (
	"iter"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// Kind tells what an object is by four letters, such as "MUTX" for a Mutex, which its String
// method gives. A [Value] has the kind "VALU" and a block of [Arena.Block] "BLOK".
type Kind = arenakernel.Kind

// Object is an object of the arena: an immutable header and a body that
// belongs to the object's kind.
type Object struct {
	Offset  Offset // offset of the header; the Offset methods of primitives return it
	Body    Offset // offset of the body, a multiple of 64
	Size    uint64 // of the body
	Kind    Kind
	Version uint16 // layout version of the kind
	Layout  uint64 // fingerprint of the type in the body; 0 where the kind needs none
	Name    string // empty when anonymous
}

// String names the object to people: by name, or by offset when it has none.
func (o Object) String() string { return arenakernel.Object(o).String() }

// Objects goes through the objects of the arena, the anonymous ones included.
// Each is open while the loop has it, so it cannot be deleted. Objects that
// come or go meanwhile may be seen or not; objects with impossible headers are
// passed over.
func (a *Arena) Objects() iter.Seq[Object] {
	return func(yield func(Object) bool) {
		for o := range a.kernel().Objects() {
			if !yield(Object(o)) {
				return
			}
		}
	}
}

// Object gives the object at off, an offset that the Offset method of a primitive returned. An
// offset that is no object's is an error that Is [shmsync.ErrIncompatible], an object with an
// impossible header one that Is [shmsync.ErrCorrupt]. The call does not keep the object open:
// unless a handle has it open, it can be deleted.
func (a *Arena) Object(off Offset) (Object, error) {
	k := a.kernel()
	o, err := k.ObjectAt(off)
	if err != nil {
		return Object{}, err
	}
	k.CloseObject(o)
	return Object(o), nil
}

// Delete removes the object of that name, and its name, for good. If there is no such
// object the error Is [fs.ErrNotExist]. The object stays while a living participant, this
// one included, has it open, or holds something of it although its handle is closed. Then
// the error Is [syscall.EBUSY] and names those participants.
//
// A process that died in an [Upgrade] may have left the contents of the object in a successor, which has another name.
// Delete removes the successor first, also if there is nothing else: the next Upgrade brings nothing back.
func (a *Arena) Delete(name string) error { return a.kernel().Delete(name) }

// DeleteObject is Delete for an object that may have no name. If an interrupted [Upgrade] keeps the contents of an
// earlier object of the same name, these stay for the next Upgrade.
func (a *Arena) DeleteObject(o Object) error {
	return a.kernel().DeleteObject(arenakernel.Object(o))
}
