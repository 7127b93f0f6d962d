//go:build linux

package main

import "github.com/shmsync/shmsync/prims"

// barrierSubjects are the library's barrier.
var barrierSubjects = []*subject{
	{By: libBy, Prim: "barrier", Segment: newArena, Open: openBarrier, Scenarios: []string{"barrier"}},
}

// barrier is a prims.Barrier as the cells use it.
type barrier struct{ *prims.Barrier }

func openBarrier(w *worker, _ int) (any, error) {
	a, err := joinArena(w)
	if err != nil {
		return nil, err
	}
	b, err := prims.OpenBarrier(a, "barrier", int64(w.procs*w.control.threads), nil)
	return barrier{b}, err
}

func (b barrier) Meet() { b.ArriveAndWait() }
