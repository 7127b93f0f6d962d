//go:build linux

package park

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// While calls that Shut does not wait for come and go, Shut still waits for the other call.
func TestShutWaitsBesideCallsThatLast(t *testing.T) {
	b := newNodePool(t)
	p := b.place(b.object())
	require.True(t, p.Enter())
	var stop, left atomic.Bool
	ended, shut := make(chan struct{}), make(chan bool)
	go func() {
		defer close(ended)
		for n := 0; !stop.Load(); n++ {
			p.EnterStay()
			p.ExitLasting()
			if n == 100_000 { // Shut has looked at the counts by now, or looks after the call has left
				left.Store(true)
				p.Exit()
			}
		}
	}()
	go func() {
		Shut(p.Queue)
		shut <- left.Load()
	}()
	require.True(t, <-shut, "Shut returned with a call inside")
	stop.Store(true)
	<-ended
	p.Close()
}
