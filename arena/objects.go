package arena

import (
	"iter"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// Kind says by four letters what an object is, such as "MUTX" for a Mutex. Its String method returns
// the four letters. A [Value] has the kind "VALU", and a block of [Arena.Block] has the kind "BLOK".
type Kind = arenakernel.Kind

// Object is an object of the arena. It consists of an immutable header, and of a body whose layout the
// kind of the object defines.
type Object struct {
	Offset  Offset // offset of the header; the Offset methods of primitives return it
	Body    Offset // offset of the body, a multiple of 64
	Size    uint64 // size of the body
	Kind    Kind
	Version uint16 // layout version of the kind
	Layout  uint64 // fingerprint of the type in the body; 0 if the kind needs none
	Name    string // empty when anonymous
}

// String returns the name of the object, or its offset if it has no name.
func (o Object) String() string { return arenakernel.Object(o).String() }

// Objects iterates over the objects of the arena, including objects without a name. Each object is open
// during its iteration of the loop, so it cannot be deleted during that iteration. Objects that are
// created or deleted during the loop may be seen or not. Objects with impossible headers are skipped.
//
// Close does not wait for the loop. When Close has begun, the loop ends with the present iteration.
// If this Close leaves the arena, the object of that iteration is no longer open.
func (a *Arena) Objects() iter.Seq[Object] {
	return func(yield func(Object) bool) {
		for o := range a.kernel().Objects() {
			if !yield(Object(o)) {
				return
			}
		}
	}
}

// Object returns the object at off. off is an offset that the Offset method of a primitive returned. If
// there is no object at off, the error Is [shmsync.ErrIncompatible]. If the header of the object is
// impossible, the error Is [shmsync.ErrCorrupt]. The call does not keep the object open: the object can
// be deleted, unless a handle has it open.
func (a *Arena) Object(off Offset) (Object, error) {
	k := a.kernel()
	if err := k.BeginCall("arena.object"); err != nil {
		return Object{}, err
	}
	defer k.EndCall()
	o, err := k.Within().ObjectAt(off)
	if err != nil {
		return Object{}, err
	}
	k.CloseObject(o)
	return Object(o), nil
}

// Delete removes the object of that name, and its name, for good. If there is no such object, the
// error Is [fs.ErrNotExist]. The object stays while living participants, including this one, have
// it open. It also stays while living participants hold the object, or a part of it, although they
// have closed their handles. In both cases, the error Is [syscall.EBUSY] and names those
// participants.
//
// A process that died in an [Upgrade] may have left the contents of the object in a successor, an
// object with another name. Delete removes the successor first, even if the object does not exist any
// more. Otherwise the next Upgrade would bring the contents back.
func (a *Arena) Delete(name string) error { return a.kernel().Delete(name) }

// DeleteObject is Delete for an object that may have no name. It deletes the object at the offset of o
// if this object has the name, kind, type and size of o. Otherwise the error Is
// [shmsync.ErrIncompatible].
//
// If an interrupted [Upgrade] has left the contents of an earlier object of the same name,
// DeleteObject does not remove them. The next Upgrade finds them.
func (a *Arena) DeleteObject(o Object) error {
	return a.kernel().DeleteObject(arenakernel.Object(o))
}
