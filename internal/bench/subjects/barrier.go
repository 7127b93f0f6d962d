//go:build linux

package subjects

import (
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/prims"
)

// barrierSubjects has the barrier of the library, as a subject that can be measured.
var barrierSubjects = []*bench.Subject{
	{By: bench.Library, Prim: "barrier", Segment: newArena, Open: openBarrier, Scenarios: []string{"barrier"}},
}

// barrier gives a prims.Barrier the methods that the barrier scenario calls.
type barrier struct{ *prims.Barrier }

func openBarrier(w *bench.Worker, _ int) (any, error) {
	a, err := JoinArena(w)
	if err != nil {
		return nil, err
	}
	b, err := prims.OpenBarrier(a, "barrier", int64(w.Procs*w.Control.Threads), nil)
	return barrier{b}, err
}

func (b barrier) Meet() { b.ArriveAndWait() }
