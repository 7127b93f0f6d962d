//go:build linux

package prims_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/prims"
)

// askedContext is a context that calls the function then when a wait asks for the channel.
type askedContext struct {
	context.Context
	then func()
}

func (c askedContext) Done() <-chan struct{} {
	c.then()
	return c.Context.Done()
}

// TestPendingThatHasEndedBeatsItsContext: the wait of a Pending ends, and then the context of a call of WaitContext ends,
// before the call looks at either. The call returns the result of the wait.
func TestPendingThatHasEndedBeatsItsContext(t *testing.T) {
	e, err := prims.OpenEvent(newArena(t, nil), "e", nil)
	require.NoError(t, err)
	for range 64 { // a select of Go chooses at random
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
