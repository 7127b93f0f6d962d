//go:build linux && crashpoint

package prims_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
)

// TestSignalWorkersFindWhatAStoppedProcessAnnounces: a process is stopped after it has scheduled a queue, and before
// a worker can find the queue. The workers of another process never sleep, because they always have other work. They
// must find and serve the queue nevertheless.
func TestSignalWorkersFindWhatAStoppedProcessAnnounces(t *testing.T) {
	const queue, busy = 1000, 70
	for _, x := range []struct {
		point  string
		orders []string
	}{
		{"signal.schedule.gated", []string{"schedule"}},
		{"signal.publish.bit_set", []string{"schedule"}},
		{"signal.finish.released", []string{"inline", "finish-again"}},
	} {
		t.Run(x.point, func(t *testing.T) {
			a := newArena(t, nil)
			w := newWaker(t, a, nil)
			stopped := actorOf(t, a, "signal/actor", "stopped", proctest.Env("SHMSYNC_CRASHPOINT_STOP="+x.point))
			last := len(x.orders) - 1
			for _, op := range x.orders[:last] {
				num(t, stopped, op, queue)
			}
			id := stopped.start(order{Op: x.orders[last], Object: "w", N: queue})
			stopped.proc.AwaitStop(t)
			w.Gate(busy).Schedule()
			for end := time.Now().Add(timeout()); ; {
				w.Gate(queue).Schedule()
				g, ok := w.Next(queue)
				require.True(t, ok)
				if g.Queue() == queue {
					require.False(t, g.Finish())
					break
				}
				require.Equal(t, busy, g.Queue())
				g.FinishAndSchedule()
				require.True(t, time.Now().Before(end), "no worker finds the queue")
			}
			stopped.proc.Cont(t)
			stopped.wait(t, id)
		})
	}
}
