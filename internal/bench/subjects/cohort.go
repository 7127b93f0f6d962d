//go:build linux

package subjects

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/topology"
	"github.com/shmsync/shmsync/prims"
)

// cohortSubjects are the library's locks for hosts with several NUMA nodes. Such a lock has a local lock for each node.
// The subjects have at least two local locks, so that even a host with one node shows what local locks cost.
var cohortSubjects = []*bench.Subject{
	{By: bench.Library, Prim: "mutex-cohort", Spins: true, Segment: newArena, Check: shmsync.FeatureMembarrier.Check, Open: openCohortMutex,
		Brief:     []string{},
		Scenarios: []string{"uncontended", "lock", "crash", "idle"}},
}

// cohortMutex gives a prims.CohortMutex the methods that the scenarios call.
type cohortMutex struct{ *prims.CohortMutex }

func openCohortMutex(w *bench.Worker, _ int) (any, error) {
	a, err := JoinArena(w)
	if err != nil {
		return nil, err
	}
	if err := awaitFence(a); err != nil {
		return nil, err
	}
	nodes := 2
	if t, err := topology.Host(); err == nil {
		nodes = min(max(nodes, len(t.Nodes)), 32)
	}
	m, err := prims.OpenCohortMutex(a, "cohort", &prims.CohortMutexOptions{Nodes: nodes})
	if err != nil {
		return nil, err
	}
	if w.Shape.Spin > 0 {
		m.SetSpin(spinOption(w.Shape.Spin))
	}
	if bench.ScenarioByID(w.Scenario).Name == "uncontended" {
		return cohortMutex{m}, untilBiased(func() (word string) {
			m.Lock()
			word = m.State().Word
			m.Unlock()
			return word
		})
	}
	return cohortMutex{m}, nil
}

func (m cohortMutex) Pairs(n int, counter *uint64) {
	for range n {
		m.Lock()
		*counter++
		m.Unlock()
	}
}

func (m cohortMutex) Inherit() (bench.Succession, error) { return inherit(m) }
