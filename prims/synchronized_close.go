package prims

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/park"
)

// left reports whether the waits of this handle have ended and its Updates and Views have returned. A Close waits
// for that, because until then these calls use bytes that may belong to another object once this object is deleted.
func (s *synchronized) left() bool {
	switch {
	case !park.Left(s.lock.queue):
		return false
	case !s.holds():
		return true
	case s.inside.any():
		s.heldSince = 0
		return false
	case s.othersInside():
		return true // another handle of this process has the lock
	case s.heldSince == 0:
		s.heldSince = shmsync.Monotonic()
	}
	// A goroutine of this process has the lock for a moment before and after it uses the copies. The scheduler may stop
	// the goroutine at such a moment. But if the owner word still names this process after synchronizedForged, a peer
	// has forged the owner word.
	return shmsync.Monotonic()-s.heldSince >= synchronizedForged
}

// synchronizedForged is how long a Close waits if this process has the lock according to the owner word, but no handle
// of this process uses the copies of the value.
const synchronizedForged = 2e9 // ns

// othersInside reports whether a goroutine that got the lock through another handle of this process uses the copies
// of the value.
func (s *synchronized) othersInside() bool {
	handles.Lock()
	defer handles.Unlock()
	on := handles.of[s.lock.a.Segment()][s.lock.object.Offset]
	if on == nil {
		return false
	}
	for _, h := range on.open {
		if o, ok := h.(interface{ core() *synchronized }); ok && o.core() != s && o.core().inside.any() {
			return true
		}
	}
	return false
}

func (s *synchronized) core() *synchronized { return s }
