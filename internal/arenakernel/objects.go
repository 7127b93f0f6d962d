package arenakernel

import (
	"errors"
	"iter"
	"strconv"

	"github.com/shmsync/shmsync"
)

// ObjectAt opens the object whose header is at off. The offset may have come from a peer. If there
// is no object at off, the error Is [shmsync.ErrIncompatible]. If the header is impossible, the
// error Is [shmsync.ErrCorrupt].
func (a *Arena) ObjectAt(off Offset) (Object, error) {
	if err := a.BeginCall("arena.object"); err != nil {
		return Object{}, err
	}
	defer a.EndCall()
	a.handles.Lock()
	defer a.handles.Unlock()
	h, err := a.openAt(off)
	if err != nil {
		return Object{}, err
	}
	return h.Object, nil
}

// CloseObject undoes one call of OpenObject for o. After this process has left the arena,
// CloseObject does nothing. It panics if the object is not open.
func (a *Arena) CloseObject(o Object) {
	a.handles.Lock()
	defer a.handles.Unlock()
	if !a.handles.left && !a.forget(o.Offset) {
		panic("shmsync: arena " + strconv.Quote(a.label) + ": close of object " +
			strconv.Quote(o.String()) + ", which is not open")
	}
}

// Objects iterates over the objects of the arena, including anonymous objects. Each object is open
// during its iteration of the loop, so it cannot be deleted during that iteration. Objects that are
// created or deleted during the loop may be missing. Objects with impossible headers are skipped.
//
// Close does not wait for the loop. When Close has begun, the loop ends with the present iteration.
// If this Close leaves the arena, the object of that iteration is no longer open.
func (a *Arena) Objects() iter.Seq[Object] {
	return func(yield func(Object) bool) {
		for o, err := range a.ObjectsAndErrors() {
			if err == nil && !yield(o) {
				return
			}
		}
	}
}

// ObjectsAndErrors is Objects, but also yields an error for each object that it cannot open. The
// error Is [shmsync.ErrCorrupt] if the header is impossible. When Close has begun, the last error
// Is [shmsync.ErrClosed].
//
// The body of the loop may take any time, and may call Close. So Close waits only for the steps between two
// executions of the body.
func (a *Arena) ObjectsAndErrors() iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		a.mustUse("arena.objects")
		var found []Offset
		for i := a.chunkFrom(0); i < a.geo.chunkCount; i = a.chunkFrom(i + 1) {
			if err := a.BeginCall("arena.objects"); err != nil {
				yield(Object{}, err)
				return
			}
			found = a.objectsIn(i, found[:0])
			a.EndCall()
			for _, off := range found {
				if !a.yieldObject(off, yield) {
					return
				}
			}
		}
	}
}

// objectsIn appends the offsets of the objects in one chunk to the list.
func (a *Arena) objectsIn(chunk uint64, list []Offset) []Offset {
	a.eachBlockOf(chunk, func(off Offset, _ uint64, w blockWord) bool {
		if w.kind() == blockObject {
			list = append(list, off)
		}
		return true
	})
	return list
}

// yieldObject does one iteration of a loop over the objects. It reports whether the loop goes on.
func (a *Arena) yieldObject(off Offset, yield func(Object, error) bool) bool {
	o, err := a.ObjectAt(off)
	switch {
	case errors.Is(err, shmsync.ErrIncompatible):
		return true // the object was deleted
	case err == nil:
		defer a.CloseObject(o)
	case errors.Is(err, shmsync.ErrClosed):
		yield(o, err)
		return false
	}
	return yield(o, err)
}

// visit calls f for the objects of the arena, without opening them. If an object is deleted while f
// runs, f reads bytes that belong to no object any more. But f never reads the bytes of another
// object. The function f must not call visit itself.
func (a *Arena) visit(f func(Object)) { a.visitIn(a.eachBlock, f) }

// visitTouched calls f as the method visit does, but only for objects in chunks that the
// participant in the slot may have changed.
func (a *Arena) visitTouched(slot int, f func(Object)) {
	a.visitIn(func(f func(Offset, uint64, blockWord) bool) {
		a.eachTouched(slot, func(chunk uint64) { a.eachBlockOf(chunk, f) })
	}, f)
}

func (a *Arena) visitIn(each func(func(Offset, uint64, blockWord) bool), f func(Object)) {
	a.handles.walking.Lock()
	defer a.handles.walking.Unlock()
	guard := a.u64(a.slot(a.mySlot) + slotWalking)
	defer func() { guard.Store(uint64(a.handles.rest)) }()
	each(func(off Offset, _ uint64, w blockWord) bool {
		if w.kind() == blockObject {
			// sync(arena.guard): release
			guard.Store(uint64(off))
			if h, err := a.headerAt(off); err == nil && h.load().there() {
				f(h.Object)
			}
		}
		return true
	})
}

// restGuard sets the value that the word slotWalking in the slot of this participant has between
// walks over the objects.
func (a *Arena) restGuard(rest Offset) {
	a.handles.walking.Lock()
	defer a.handles.walking.Unlock()
	a.handles.rest = rest
	a.u64(a.slot(a.mySlot) + slotWalking).Store(uint64(rest))
}
