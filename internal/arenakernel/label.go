package arenakernel

import "github.com/shmsync/shmsync/internal/race"

// putLabel stores the length of a label at off, in one byte, followed by the label, cut to
// labelBytes bytes.
func (a *Arena) putLabel(off Offset, label string) {
	var b [1 + labelBytes]byte
	b[0] = byte(copy(b[1:], label))
	copyBytes(a.slice(off, 1+labelBytes), b[:])
}

func (a *Arena) getLabel(off Offset) string {
	var b [1 + labelBytes]byte
	copyBytes(b[:], a.slice(off, 1+labelBytes))
	return string(b[1 : 1+min(int(b[0]), labelBytes)])
}

// copyBytes copies bytes of a slot, a death record or a header. Another participant may change
// these bytes at the same time. The caller tolerates or detects a mixture of old and new bytes. The
// copy is a loop, because the race detector, which checks the arenas of package arenatest, would
// report a race in a call of the built-in function copy.
//
//go:norace
func copyBytes(to, from []byte) {
	if !race.Enabled {
		copy(to, from)
		return
	}
	//lint:ignore S1001 the builtin copy would report to the race detector
	for i, b := range from {
		to[i] = b
	}
}

// stringOf returns a string with the given bytes, which another participant may change meanwhile; see
// copyBytes.
func stringOf(b []byte) string {
	if !race.Enabled {
		return string(b)
	}
	s := make([]byte, len(b))
	copyBytes(s, b)
	return string(s)
}

// clearBeforeLabel stores 0 in w so that other CPUs see this store before the later plain stores of putLabel.
// For this purpose, it loads w after the store: the load is an acquire, and no CPU executes it before the
// store. A swap instead of the store and the load would not be enough. On an arm64 CPU without the instructions
// of LSE, later plain stores may overtake the store of a swap.
func clearBeforeLabel[T uint32 | uint64](w interface {
	Store(T)
	Load() T
}) {
	w.Store(0)
	w.Load()
}
