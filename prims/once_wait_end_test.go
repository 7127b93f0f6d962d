//go:build linux

package prims_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/prims"
)

// parkedContext is a context that calls a function when a wait has parked and is about to wait for the end of the
// context. A wait calls Done twice: when it begins, and when it has parked.
type parkedContext struct {
	context.Context
	asked *int
	then  func()
}

func (c parkedContext) Done() <-chan struct{} {
	if *c.asked++; *c.asked == 2 {
		c.then()
	}
	return c.Context.Done()
}

// TestOnceFreeTurnBeatsTheEndOfTheContext checks that a waiting call takes the turn if the turn of the runner ends,
// and then the context of the call ends, before the call is woken.
func TestOnceFreeTurnBeatsTheEndOfTheContext(t *testing.T) {
	a := newArena(t, nil)
	o := newOnce(t, a, "o")
	// At most DirectMax waits sleep in the kernel. So many waits for a Futex sleep there that the wait for the Once
	// parks.
	f, err := prims.OpenFutex(a, "f", nil)
	require.NoError(t, err)
	ended := make(chan error)
	for range park.DirectMax {
		go func() { ended <- f.Wait(1) }()
	}
	eventually(t, "all sleep", f.String, func() bool { return waitsAt(a, f.Offset()) == park.DirectMax })
	runs, release, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		o.Do(func() { close(runs); <-release })
		close(over)
	}()
	<-runs
	ctx, end := context.WithCancel(t.Context())
	defer end()
	asked, ran := 0, false
	err = o.DoContext(parkedContext{ctx, &asked, func() {
		require.True(t, o.EndTurnWithoutWake())
		end()
	}}, func() { ran = true })
	close(release)
	<-over
	f.Post()
	for range park.DirectMax {
		require.NoError(t, <-ended)
	}
	require.Error(t, ctx.Err(), "the wait had parked")
	require.NoError(t, err)
	require.True(t, ran)
	require.True(t, o.Done())
}
