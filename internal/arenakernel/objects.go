package arenakernel

import (
	"iter"
	"strconv"
)

// ObjectAt opens the object whose header is at off, an offset that may have come
// from a peer: one that is no object's is an error that Is
// [shmsync.ErrIncompatible], an object with an impossible header one that Is
// [shmsync.ErrCorrupt].
func (a *Arena) ObjectAt(off Offset) (Object, error) {
	if err := a.use("arena.object"); err != nil {
		return Object{}, err
	}
	a.handles.Lock()
	defer a.handles.Unlock()
	h, err := a.openAt(off)
	if err != nil {
		return Object{}, err
	}
	return h.Object, nil
}

// CloseObject gives back one open of o. Closing what is not open is the caller's
// mistake and panics.
func (a *Arena) CloseObject(o Object) {
	a.handles.Lock()
	defer a.handles.Unlock()
	if !a.forget(o.Offset) {
		panic("shmsync: arena " + strconv.Quote(a.label) + ": close of object " +
			strconv.Quote(o.String()) + ", which is not open")
	}
}

// Objects goes through the objects of the arena, the anonymous ones included.
// Each is open while the loop has it, so it cannot be deleted. Objects that
// come or go meanwhile may be seen or not; objects with impossible headers are
// passed over.
func (a *Arena) Objects() iter.Seq[Object] {
	return func(yield func(Object) bool) {
		a.mustUse("arena.objects")
		a.eachBlock(func(off Offset, _ uint64, w blockWord) bool {
			if w.kind() != blockObject {
				return true
			}
			o, err := a.ObjectAt(off)
			if err != nil {
				return true
			}
			defer a.CloseObject(o)
			return yield(o)
		})
	}
}

// visit calls f for the objects of the arena, without opening them. An object may be
// deleted meanwhile; then f reads bytes that belong to no object any more, but never those
// of another object. f does not walk itself.
func (a *Arena) visit(f func(Object)) { a.visitIn(a.eachBlock, f) }

// visitTouched is visit for the objects that the participant in a slot may have touched, and
// those beside them.
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

// restGuard sets the guard of walks to what it is while no walk is under way.
func (a *Arena) restGuard(rest Offset) {
	a.handles.walking.Lock()
	defer a.handles.walking.Unlock()
	a.handles.rest = rest
	a.u64(a.slot(a.mySlot) + slotWalking).Store(uint64(rest))
}

// lookAt reads what object is at off, without opening it: it may be gone by the
// time this returns.
func (c *core) lookAt(off Offset) (Object, error) {
	c.handles.Lock()
	defer c.handles.Unlock()
	c.guard(off)
	defer c.unguard()
	h, err := c.headerAt(off)
	if err != nil {
		return Object{}, err
	}
	if !h.load().there() {
		return Object{}, c.noObject(off)
	}
	return h.Object, nil
}
