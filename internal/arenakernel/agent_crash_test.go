//go:build crashpoint && linux

package arenakernel

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
)

// soon is the time limit for work that a process must do immediately. If a process does the work
// only in a check that it makes once a second, the work exceeds the limit.
func soon() time.Duration { return proctest.Scale(250 * time.Millisecond) }

// inTime repeats attempt until it takes no longer than soon. A busy machine delays only some of the attempts. But
// work that waits for a check that comes once a second is late in every attempt.
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

// leftovers makes the agent clean the arena, and requires that nothing is left in it.
func (r *remote) leftovers(t *testing.T) {
	t.Helper()
	r.must(t, order{Do: "clean"})
	s := r.stats(t)
	require.Zero(t, s.Raw+s.Objects+s.Claimed+s.Nodes, "%+v", s)
	require.Zero(t, s.BytesUsed)
}
