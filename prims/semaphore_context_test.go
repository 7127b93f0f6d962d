//go:build linux

package prims_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// endsLate is a context whose Err returns nil once, and then an error.
type endsLate struct {
	context.Context
	asked int
}

func (c *endsLate) Err() error {
	if c.asked++; c.asked == 1 {
		return nil
	}
	return context.Canceled
}

// TestSemaphoreContextEndsDuringTheCall: a call whose context ends during the call keeps no permits, even if it
// did not have to wait.
func TestSemaphoreContextEndsDuringTheCall(t *testing.T) {
	a := newArena(t, nil)
	s := newSemaphore(t, a, "s", 2, nil)
	require.ErrorIs(t, s.AcquireContext(&endsLate{Context: t.Context()}, 1), context.Canceled)
	require.EqualValues(t, 2, s.State().Free)
}
