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

// stringOf returns bytes that another participant may change as a string; see copyBytes.
func stringOf(b []byte) string {
	if !race.Enabled {
		return string(b)
	}
	s := make([]byte, len(b))
	copyBytes(s, b)
	return string(s)
}
