package arena

import (
	"iter"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// Kind says what an object is by four letters, such as "MUTX" for a Mutex. Its String method
// returns them. A [Value] has the kind "VALU", and a block of [Arena.Block] has the kind "BLOK".
type Kind = arenakernel.Kind

// Object is an object of the arena: an immutable header and a body that
// belongs to the object's kind.
type Object struct {
	Offset  Offset // offset of the header; the Offset methods of primitives return it
	Body    Offset // offset of the body, a multiple of 64
	Size    uint64 // of the body
	Kind    Kind
	Version uint16 // layout version of the kind
	Layout  uint64 // fingerprint of the type in the body; 0 if the kind needs none
	Name    string // empty when anonymous
}

// String returns the name of the object, or its offset if it has no name.
func (o Object) String() string { return arenakernel.Object(o).String() }

// Objects iterates over the objects of the arena, including those without a name. Each object is
// open during its iteration of the loop, so it cannot be deleted then. Objects that are created or
// deleted meanwhile may be seen or not. Objects with impossible headers are skipped.
func (a *Arena) Objects() iter.Seq[Object] {
	return func(yield func(Object) bool) {
		for o := range a.kernel().Objects() {
			if !yield(Object(o)) {
				return
			}
		}
	}
}

// Object returns the object at off, an offset that the Offset method of a primitive returned. If
// there is no object at off, the error Is [shmsync.ErrIncompatible]. If the header of the object is
// impossible, the error Is [shmsync.ErrCorrupt]. The call does not keep the object open: unless a
// handle has it open, it can be deleted.
func (a *Arena) Object(off Offset) (Object, error) {
	k := a.kernel()
	o, err := k.ObjectAt(off)
	if err != nil {
		return Object{}, err
	}
	k.CloseObject(o)
	return Object(o), nil
}

// Delete removes the object of that name, and its name, for good. If there is no such object the
// error Is [fs.ErrNotExist]. While living participants, including this one, have the object open,
// or still hold something of it after they closed their handles, the object stays. Then the error
// Is [syscall.EBUSY] and names those participants.
//
// If a process died in an [Upgrade], it may have left the contents of the object in a successor,
// which has another name. Delete removes the successor first, even if there is no object of the
// name itself, so that the next Upgrade does not bring the contents back.
func (a *Arena) Delete(name string) error { return a.kernel().Delete(name) }

// DeleteObject is Delete for an object that may have no name. If an interrupted [Upgrade] has left
// the contents of an earlier object of the same name, DeleteObject leaves them for the next
// Upgrade.
func (a *Arena) DeleteObject(o Object) error {
	return a.kernel().DeleteObject(arenakernel.Object(o))
}
