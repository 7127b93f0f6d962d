//go:build linux

package main

import "github.com/shmsync/shmsync/prims"

// condSubjects are the library's condition variables, with its mutex, as the
// monitor that C and Go programs make of theirs.
var condSubjects = []*subject{
	{By: libBy, Prim: "cond", Segment: newArena, Open: openCond,
		Brief:     []string{"handoff", "cond"},
		Scenarios: []string{"handoff", "wake", "idle", "cond", "event", "seq", "barrier"}},
}

func openCond(w *worker, thread int) (any, error) {
	a, err := joinArena(w)
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
	m := newMonitor(w, l, some, room)
	switch scenarioByID(w.scenario).name {
	case "handoff", "wake", "idle":
		return &monitorToken{monitor: m, end: end(w, thread)}, nil
	}
	return m, nil
}
