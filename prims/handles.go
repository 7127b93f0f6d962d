package prims

import (
	"sync"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
)

// handles are the open handles of this process. All that this process opens of
// one object share one handle, so that what a process knows about an object is
// in one place.
var handles struct {
	sync.Mutex
	of map[*arena.Arena]map[arena.Offset]*shared // guarded by: Mutex
}

// shared is a handle and how often it was opened.
type shared struct {
	handle any
	opens  int // guarded by: handles
}

// share gives the handle that this process has of the object, or makes one.
// The caller has opened the object.
func share[H any](a *arena.Arena, o arena.Object, build func() (H, error)) (H, error) {
	handles.Lock()
	defer handles.Unlock()
	if handles.of == nil {
		handles.of = map[*arena.Arena]map[arena.Offset]*shared{}
	}
	objects := handles.of[a]
	if objects == nil {
		objects = map[arena.Offset]*shared{}
		handles.of[a] = objects
		a.OnClose(&handles, func() {
			handles.Lock()
			defer handles.Unlock()
			delete(handles.of, a)
		})
	}
	if s := objects[o.Offset]; s != nil {
		s.opens++
		return s.handle.(H), nil
	}
	h, err := build()
	if err == nil {
		objects[o.Offset] = &shared{handle: h, opens: 1}
	}
	return h, err
}

// unshare gives one opening back and calls end if it was the last, before
// anybody can make another handle. It reports false for a handle that is not
// open any more.
func unshare(a *arena.Arena, o arena.Object, end func()) (open bool) {
	handles.Lock()
	defer handles.Unlock()
	s := handles.of[a][o.Offset]
	if s == nil {
		return false
	}
	if s.opens--; s.opens == 0 {
		delete(handles.of[a], o.Offset)
		end()
	}
	return true
}

// closeHandle is the Close of a handle: end is called when it was the last of this
// process on the object.
func closeHandle(a *arena.Arena, o arena.Object, op string, end func()) error {
	if !unshare(a, o, end) {
		return &shmsync.Error{Op: op, Object: objectName(o), Err: shmsync.ErrClosed}
	}
	a.CloseObject(o)
	return nil
}

// objectAt opens the object at off, an offset that may have come from a peer, if it
// is of that kind.
func objectAt(a *arena.Arena, off arena.Offset, op string, kind arena.Kind, version uint16, size uint64) (arena.Object, error) {
	o, err := a.ObjectAt(off)
	if err != nil {
		return o, err
	}
	if o.Kind != kind || o.Version != version || o.Size < size {
		a.CloseObject(o)
		return o, wrongKind(op, o, kind, version)
	}
	return o, nil
}
