//go:build linux

package prims_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// endsLate is a context that ends after its error was asked for once.
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

// A call whose context ends meanwhile keeps no permits, also if it does not wait.
func TestSemaphoreContextEndsDuringTheCall(t *testing.T) {
	a := newArena(t, nil)
	s := newSemaphore(t, a, "s", 2, nil)
	require.ErrorIs(t, s.AcquireContext(&endsLate{Context: t.Context()}, 1), context.Canceled)
	require.EqualValues(t, 2, s.State().Free)
}
