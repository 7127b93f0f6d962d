//go:build linux

package prims_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// TestWaitAnyOnAFutexKeepsItsDate checks that Inspect shows when a WaitAny on a Futex began, and still shows the same
// time after posts that do not reach the token of the WaitAny.
func TestWaitAnyOnAFutexKeepsItsDate(t *testing.T) {
	a := newArena(t, nil)
	f, err := prims.OpenFutex(a, "f", nil)
	require.NoError(t, err)
	const posts = 20
	ended := make(chan error, 1)
	go func() {
		_, err := prims.WaitAny(f.At(f.Get() + posts + 1))
		ended <- err
	}()
	date := func() (since int64) {
		require.Eventually(t, func() bool {
			for _, w := range a.Inspect(arena.Object(f.Object())).Waits {
				since = w.Since
			}
			return since != 0
		}, proctest.Scale(time.Minute), time.Millisecond, f)
		return since
	}
	began := date()
	for range posts {
		f.Post()
		require.Equal(t, began, date())
	}
	f.Post()
	require.NoError(t, <-ended)
}
