//go:build linux && (amd64 || arm64) && gc && !race && !msan && !asan && !noasm

package arenakernel

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestQuietWatchAsksAboutALongEndingInTime: a process may need an hour to free its memory. The pause
// between two checks whether it has ended stays below an upper limit.
func TestQuietWatchAsksAboutALongEndingInTime(t *testing.T) {
	q := &quietWatch{asking: 1, now: time.Hour.Nanoseconds()}
	q.held()
	require.EqualValues(t, askMost, q.frees[0].at-q.now)
	q.now = time.Millisecond.Nanoseconds()
	q.held()
	require.EqualValues(t, q.now/freePart, q.frees[0].at-q.now)
}
