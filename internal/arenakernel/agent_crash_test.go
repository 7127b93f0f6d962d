//go:build crashpoint && linux

package arenakernel

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
)

// soon is the longest time for something that a process does at once, and not only in its next
// check, once a second.
func soon() time.Duration { return proctest.Scale(250 * time.Millisecond) }

// inTime makes attempts until one takes no longer than soon. A busy machine delays only some of
// them. Work that waits for the next check is late every time.
func inTime(t *testing.T, attempt func() time.Duration) {
	t.Helper()
	n := 1
	for begun := time.Now(); ; n++ {
		took := attempt()
		if took < soon() {
			return
		}
		t.Logf("late: %v", took)
		if n >= 10 && time.Since(begun) > bound() {
			break
		}
	}
	t.Fatalf("late in each of %d attempts", n)
}

// leftovers cleans the arena and requires that nothing is left.
func (r *remote) leftovers(t *testing.T) {
	t.Helper()
	r.must(t, order{Do: "clean"})
	s := r.stats(t)
	require.Zero(t, s.Raw+s.Objects+s.Claimed+s.Nodes, "%+v", s)
	require.Zero(t, s.BytesUsed)
}
