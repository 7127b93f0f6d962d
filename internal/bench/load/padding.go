//go:build linux

package load

import (
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// paddingBatch is the number of increments after which a thread checks whether the measurement has ended.
const paddingBatch = 256

// workPadding increments a counter that no other thread uses. The measurement determines the distance between the
// counters of two threads. If both counters are on one cache line, the threads share the line (false sharing). Even at
// a distance of 64 bytes, the threads may disturb each other, because some prefetchers fetch lines in pairs.
func workPadding(t *thread) error {
	c, err := as[*atomic.Uint32](t)
	if err != nil {
		return err
	}
	t.await()
	for t.next() {
		for range paddingBatch {
			c.Add(1)
		}
		t.count(paddingBatch)
	}
	t.end()
	if got := c.Load(); got != uint32(t.slot.Total) {
		t.violate("the counter is %d after %d increments", got, t.slot.Total)
	}
	return nil
}

func collectPadding(rep *bench.Repetition, a *bench.Account) {
	rep.Throughput(a)
	rep.Hist = stats.NewHist() // single increments are not timed
	delete(rep.Metrics, "ctxsw/op")
}
