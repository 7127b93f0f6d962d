//go:build linux

package main

import "time"

// scenario is one kind of cell.
type scenario struct {
	id      uint32
	name    string
	bench   string   // as in BenchmarkLock
	unit    string   // the metric that tables and ratios are about
	higher  bool     // more of it is better
	others  []string // further metrics of the table
	keys    []string // parameters that tell cells of this scenario apart, beside by and prim
	ref     []string // subjects that ratios refer to, the first that ran
	versus  []string // subjects that the library's are held against at the top of a report
	procs   int      // processes of a cell, unless the cell says otherwise
	perProc func(*cell) time.Duration
	work    func(*thread) error
}

// scenarios in the order of reports. The ids are part of the control page.
var scenarios = []*scenario{
	{id: 1, name: "uncontended", bench: "Uncontended", unit: "p50-ns", others: []string{"p99-ns", "max-ns"},
		ref:    []string{"c:pthread", "in-process:sync.Mutex"},
		versus: []string{"in-process:sync.Mutex", "c:robust"}, procs: 1},
	{id: 2, name: "handoff", bench: "Handoff", unit: "p50-ns", others: []string{"p99-ns", "ctxsw/op"},
		keys: []string{"hog", "place"}, ref: []string{"c:futex", "go:pipe"},
		versus: []string{"c:futex", "c:futex-spin1000", "c:cond"}, procs: 2},
	{id: 3, name: "wake", bench: "Wake", unit: "p50-ns", others: []string{"p99-ns", "waker-p50-ns"},
		keys: []string{"gap", "place"}, ref: []string{"c:futex", "go:pipe"},
		versus: []string{"c:futex", "c:cond"}, procs: 2},
	{id: 4, name: "lock", bench: "Lock", unit: "ops/s", higher: true, others: []string{"p99-ns", "jain", "ctxsw/op"},
		keys: []string{"cs", "place", "procs", "think", "threads"}, ref: []string{"c:robust", "go:flock"},
		versus: []string{"c:robust"}},
	{id: 5, name: "crash", bench: "Crash", unit: "p50-ns", others: []string{"p99-ns", "max-ns", "n"},
		keys: []string{"kills", "place"}, ref: []string{"c:robust", "go:waitv-floor"},
		versus: []string{"go:waitv-floor", "c:robust"}},
	{id: 6, name: "waiters", bench: "Waiters", unit: "B/waiter", others: []string{"threads", "block-ns", "cancel-ns", "wake-ns"},
		keys: []string{"waiters"}, ref: []string{"go:futex", "in-process:chan"},
		versus: []string{"go:futex", "in-process:chan"}, procs: 1},
	{id: 7, name: "idle", bench: "Idle", unit: "cpu-ns", others: []string{"waited-ns"},
		keys: []string{"place", "wait"}, ref: []string{"go:flock"},
		versus: []string{"go:flock"}, procs: 2},
}

func init() {
	works := map[string]func(*thread) error{
		"uncontended": workUncontended,
		"handoff":     workHandoff,
		"wake":        workWake,
		"lock":        workLock,
		"crash":       workCrash,
		"waiters":     workWaiters,
		"idle":        workIdle,
	}
	for _, s := range scenarios {
		s.work = works[s.name]
	}
}

func scenarioByID(id uint32) *scenario {
	for _, s := range scenarios {
		if s.id == id {
			return s
		}
	}
	return nil
}

func scenarioByName(name string) *scenario {
	for _, s := range scenarios {
		if s.name == name {
			return s
		}
	}
	return nil
}

// betterHigher tells the metrics of which more is better; of all others, less
// is.
var betterHigher = map[string]bool{"ops/s": true, "jain": true, "min-share": true, "n": true}
