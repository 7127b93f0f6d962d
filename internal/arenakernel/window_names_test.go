//go:build linux

package arenakernel

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// forgetTimes clears the creation times of the objects, because the bytes of a time may happen to look
// like an ID. A joiner that renews a slot also searches the headers of objects. So a test that expects
// an exact window calls forgetTimes before the joiner searches.
func (a *Arena) forgetTimes() {
	a.eachBlock(func(off Offset, _ uint64, w blockWord) bool {
		if w.kind() == blockObject {
			a.u64(off + objCreated).Store(0)
		}
		return true
	})
}

// requireWindow checks that a slot has the given window. If not, it shows the words that contain an ID
// of the slot, and the test fails.
func (a *Arena) requireWindow(t *testing.T, slot int, want window) {
	t.Helper()
	if got := a.mustWindow(t, slot); got != want {
		require.FailNow(t, "another window", "slot %d: %v; want %v\nwords that name the slot:\n%s", slot, got, want, a.wordsNaming(slot))
	}
}

// wordsNaming lists the words of the arena that have an ID of a slot in bits 0..28 or 3..31. It also
// lists words that the search of a joiner leaves out.
func (a *Arena) wordsNaming(slot int) string {
	var b strings.Builder
	for off := Offset(0); uint64(off) < a.size; off += 4 {
		w := a.u32(off).Load()
		for shift := 0; shift <= 3; shift += 3 {
			if n := ParticipantID(w >> shift & ParticipantIDMask); n.Slot() == slot && n.Generation() != 0 {
				fmt.Fprintf(&b, "%v: %#x: %v\n", off, w, n)
			}
		}
	}
	return b.String()
}
