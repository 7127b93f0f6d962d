//go:build linux

package subjects

import (
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/peers"
	"github.com/shmsync/shmsync/prims"
)

// condSubjects are monitors, that is, data that a mutex of the library guards. Threads wait for changes of the data
// with condition variables of the library. The peers in C and in Go that are monitors have the same structure.
var condSubjects = []*bench.Subject{
	{By: bench.Library, Prim: "cond", Segment: newArena, Open: openCond,
		Brief:     []string{"handoff", "cond"},
		Scenarios: []string{"handoff", "wake", "idle", "cond", "event", "seq", "barrier"}},
}

func openCond(w *bench.Worker, thread int) (any, error) {
	a, err := JoinArena(w)
	if err != nil {
		return nil, err
	}
	l, err := prims.OpenMutex(a, "mutex", nil)
	if err != nil {
		return nil, err
	}
	some, err := prims.OpenCond(a, "some", l, nil)
	if err != nil {
		return nil, err
	}
	room, err := prims.OpenCond(a, "room", l, nil)
	if err != nil {
		return nil, err
	}
	m := peers.NewMonitor(w, l, some, room)
	switch bench.ScenarioByID(w.Scenario).Name {
	case "handoff", "wake", "idle":
		return &peers.MonitorToken{Monitor: m, End: bench.End(w, thread)}, nil
	}
	return m, nil
}
