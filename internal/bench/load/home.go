//go:build linux

package load

import (
	"slices"

	"github.com/shmsync/shmsync/internal/bench"
)

// workHome measures memory on a chosen NUMA node. It runs the loop of a lock measurement or of a matrix measurement.
// Only the place of the memory differs.
func workHome(t *thread) error {
	if _, ok := t.view.(shuttle); ok {
		return workMatrix(t)
	}
	return workLock(t)
}

func collectHome(rep *bench.Repetition, a *bench.Account) {
	if !slices.Contains(a.Cell.Subject.Scenarios, "matrix") { // a lock
		if a.Counter != a.Total() {
			rep.Violate("counter under the lock is %d after %d acquisitions", a.Counter, a.Total())
		}
		rep.Throughput(a)
		return
	}
	if a.Ns > 0 && a.Ops > 0 {
		rep.Metrics["ops/s"] = float64(a.Ops) / a.Ns * 1e9
	}
	collectMatrix(rep, a)
}
