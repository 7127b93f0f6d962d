package arenakernel

import "github.com/shmsync/shmsync/internal/race"

// putLabel writes at most labelBytes bytes of a label, after a byte with their number.
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

// copyBytes copies bytes of a slot, a death record or a header, which another participant may change at the
// same time. The caller tolerates a mixture, or detects it. A loop copies the bytes, so that the race detector,
// which watches the arenas of package arenatest, reports no race.
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

// stringOf returns such bytes as a string.
func stringOf(b []byte) string {
	if !race.Enabled {
		return string(b)
	}
	s := make([]byte, len(b))
	copyBytes(s, b)
	return string(s)
}
