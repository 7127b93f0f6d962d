package prims

import (
	"sync"

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
