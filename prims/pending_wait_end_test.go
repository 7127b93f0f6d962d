//go:build linux

package prims_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/prims"
)

// askedContext is a context that calls a function when a wait calls Done.
type askedContext struct {
	context.Context
	then func()
}

func (c askedContext) Done() <-chan struct{} {
	c.then()
	return c.Context.Done()
}

// TestPendingThatHasEndedBeatsItsContext checks that WaitContext returns the result of the wait if the wait of a
// Pending ends, and then the context ends, before WaitContext checks them.
func TestPendingThatHasEndedBeatsItsContext(t *testing.T) {
	e, err := prims.OpenEvent(newArena(t, nil), "e", nil)
	require.NoError(t, err)
	for range 64 { // a select with two ready cases chooses at random, so one try would prove little
		p := e.WaitAsync()
		ctx, end := context.WithCancel(t.Context())
		require.NoError(t, p.WaitContext(askedContext{ctx, func() {
			e.Set()
			<-p.Done()
			end()
		}}))
		e.Reset()
	}
}
