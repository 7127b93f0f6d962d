//go:build linux

package park

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// endWaits does the first part of closing the handle of the queues.
func endWaits(queues ...*Queue) {
	Refuse(queues...)
	for !Left(queues...) {
		runtime.Gosched()
	}
}

// TestShutWaitsBesideCallsThatLast checks that Left does not return true while a call of Enter has not ended, even if
// calls of EnterStay begin and end all the time.
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
			if n == 100_000 { // enough rounds for many calls of Left
				left.Store(true)
				p.Exit()
			}
		}
	}()
	go func() {
		endWaits(p.Queue)
		shut <- left.Load()
	}()
	require.True(t, <-shut, "Left has missed a call inside")
	stop.Store(true)
	<-ended
	p.Close()
}
