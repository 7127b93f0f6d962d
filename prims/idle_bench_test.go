//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// BenchmarkIdleWaits measures the CPU time that a process uses while its goroutines wait and
// nothing happens. Each goroutine waits for its own Event. SHMSYNC_TEST_CROWD is the number of
// goroutines; the default is 1,000. The result is in percent of one CPU.
func BenchmarkIdleWaits(b *testing.B) {
	n := 1000
	if v, err := strconv.Atoi(os.Getenv("SHMSYNC_TEST_CROWD")); err == nil {
		n = v
	}
	for what, mode := range map[string]prims.EventMode{"events": prims.EventManualReset, "auto-reset": prims.EventAutoReset} {
		b.Run(fmt.Sprintf("%s=%d", what, n), func(b *testing.B) { idleWaits(b, n, mode) })
	}
}

func idleWaits(b *testing.B, n int, mode prims.EventMode) {
	a := newArena(b, &arena.Options{Size: int64(16<<20 + 8192*n)})
	events := make([]*prims.Event, n)
	for i := range events {
		var err error
		events[i], err = prims.OpenEvent(a, "", &prims.EventOptions{Mode: mode})
		require.NoError(b, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var waiting sync.WaitGroup
	for _, e := range events {
		waiting.Go(func() { e.WaitContext(ctx) })
	}
	for i := range events {
		for s := events[i].State(); !s.Waiting; s = events[i].State() {
			<-after(time.Millisecond)
		}
	}
	const window = time.Second
	runtime.GC()
	for range 3 { // so long that a periodic check has run twice for each Event
		<-after(window)
	}
	cpu, start := cpuTime(), time.Now()
	for range b.N {
		<-after(window)
	}
	b.ReportMetric(100*float64(cpuTime()-cpu)/float64(time.Since(start)), "%cpu")
	cancel()
	waiting.Wait()
}
