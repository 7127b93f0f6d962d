//go:build linux

package main

import "time"

// scenario is one kind of cell.
type scenario struct {
	id       uint32
	name     string
	bench    string   // as in BenchmarkLock
	unit     string   // the metric that tables and ratios are about
	higher   bool     // more of it is better
	others   []string // further metrics of the table
	keys     []string // parameters that tell cells of this scenario apart, beside by and prim
	ref      []string // subjects that ratios refer to, the first that ran
	versus   []string // subjects that the library's are held against at the top of a report
	procs    int      // processes of a cell, unless the cell says otherwise
	whole    bool     // a process of one thread is pinned with all that its runtime starts
	perProc  func(*cell) time.Duration
	variants func(*options) []cell // its cells, where plan.go does not list them
	takes    func(*cell) bool      // whether a cell makes sense for its subject; nil: all do
	work     func(*thread) error
	collect  func(*repetition, *account) // checks, and gives the metrics; nil for those that result.go knows
}

// scenarios in the order of reports. The ids are part of the control page.
var scenarios = []*scenario{
	{id: 1, name: "uncontended", bench: "Uncontended", unit: "p50-ns", others: []string{"p99-ns", "max-ns"},
		ref:    []string{"c:pthread", "in-process:sync.Mutex"},
		versus: []string{"in-process:sync.Mutex", "c:robust"}, procs: 1},
	{id: 2, name: "handoff", bench: "Handoff", unit: "p50-ns", others: []string{"p99-ns", "ctxsw/op", "slept"},
		keys: []string{"hog", "place"}, ref: []string{"c:futex", "go:pipe"},
		versus: []string{"c:futex", "c:futex-spin1000", "c:cond"}, procs: 2},
	{id: 3, name: "wake", bench: "Wake", unit: "p50-ns", others: []string{"p99-ns", "waker-p50-ns", "slept"},
		keys: []string{"gap", "place"}, ref: []string{"c:futex", "go:pipe"},
		versus: []string{"c:futex", "c:cond"}, procs: 2},
	{id: 4, name: "lock", bench: "Lock", unit: "ops/s", higher: true, others: []string{"p99-ns", "jain", "ctxsw/op"},
		keys: []string{"cs", "place", "procs", "think", "threads"}, takes: takesSpin, ref: []string{"c:robust", "go:flock"},
		versus: []string{"c:robust"}},
	{id: 5, name: "crash", bench: "Crash", unit: "p50-ns", others: []string{"p90-ns", "p99-ns", "max-ns", "n"},
		keys: []string{"kills", "place"}, takes: takesRole, ref: []string{"c:robust", "go:waitv-floor"},
		versus: []string{"go:waitv-floor", "c:robust"}, whole: true},
	{id: 6, name: "waiters", bench: "Waiters", unit: "B/waiter", others: []string{"threads", "block-ns", "cancel-ns", "wake-ns"},
		keys: []string{"waiters"}, ref: []string{"go:futex", "in-process:chan"},
		versus: []string{"go:futex", "in-process:chan"}, procs: 1},
	{id: 7, name: "idle", bench: "Idle", unit: "cpu-ns", others: []string{"waited-ns"},
		keys: []string{"place", "wait"}, ref: []string{"go:flock"},
		versus: []string{"go:flock"}, procs: 2},
	{id: 8, name: "readers", bench: "Readers", unit: "p50-ns", others: []string{"p99-ns", "ops/s"},
		keys: []string{"place", "procs"}, ref: []string{"c:rwlock", "in-process:sync.RWMutex"},
		versus: []string{"c:rwlock", "in-process:sync.RWMutex"}},
	{id: 9, name: "rw", bench: "RW", unit: "ops/s", higher: true, others: []string{"p99-ns", "write-p50-ns", "write-p99-ns", "jain"},
		keys: []string{"cs", "place", "procs", "read", "think", "threads"}, ref: []string{"c:rwlock", "in-process:sync.RWMutex"},
		versus: []string{"c:rwlock", "in-process:sync.RWMutex"}},
	{id: 10, name: "sem", bench: "Sem", unit: "ops/s", higher: true, others: []string{"p99-ns", "jain", "held-max", "ctxsw/op"},
		keys: []string{"cs", "permits", "place", "procs", "think", "threads"}, ref: []string{"c:sem", "go:eventfd"},
		versus: []string{"c:sem", "go:eventfd"}},
	{id: 11, name: "cond", bench: "Cond", unit: "ops/s", higher: true, others: []string{"p50-ns", "p99-ns", "ctxsw/op"},
		keys: []string{"capacity", "place", "procs", "threads"}, ref: []string{"c:cond", "in-process:sync.Cond"},
		versus: []string{"c:cond", "in-process:sync.Cond"}},
	{id: 12, name: "event", bench: "Event", unit: "p50-ns", others: []string{"p99-ns", "each-p50-ns", "set-p50-ns"},
		keys: []string{"gap", "place", "procs", "threads"}, ref: []string{"c:futex", "go:eventfd"},
		versus: []string{"c:futex", "c:cond"}},
	{id: 13, name: "seq", bench: "Seq", unit: "p50-ns", others: []string{"p99-ns", "all-p50-ns", "lag-p50", "lag-max", "n"},
		keys: []string{"place", "waiters", "wake"}, ref: []string{"in-process:sync.Cond"},
		versus: []string{"in-process:sync.Cond"}, procs: 2},
	{id: 14, name: "multi", bench: "Multi", unit: "ops/s", higher: true, others: []string{"p99-ns", "waited", "jain", "ctxsw/op"},
		keys: []string{"cs", "keys", "locks", "place", "procs", "skew", "think", "threads"}, ref: []string{"c:robust", "go:ofd"},
		versus: []string{"c:robust", "go:ofd"}},
	{id: 15, name: "barrier", bench: "Barrier", unit: "p50-ns", others: []string{"p99-ns", "ops/s", "ctxsw/op"},
		keys: []string{"cs", "place", "procs", "threads"}, ref: []string{"c:barrier", "in-process:sync.Cond"},
		versus: []string{"c:barrier", "in-process:sync.Cond"}},
	{id: 16, name: "queue", bench: "Queue", unit: "ops/s", higher: true, others: []string{"p50-ns", "p99-ns", "jain", "ctxsw/op"},
		keys: []string{"batch", "capacity", "place", "procs", "threads"}, ref: []string{"c:cond", "go:pipe"},
		versus: []string{"c:cond", "go:pipe", "in-process:chan"}},
	{id: 40, name: "mem", bench: "Mem", unit: "chase-ns", others: []string{"scan-MB/s", "data-ns", "as-asked-%"},
		keys: []string{"huge", "mem", "node"}, procs: 1},
	{id: 20, name: "matrix", bench: "Matrix", unit: "p50-ns", others: []string{"p99-ns", "n"}, keys: []string{"place"}, procs: 2},
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
		"readers":     workReaders,
		"rw":          workRW,
		"sem":         workSem,
		"cond":        workQueue,
		"event":       workEvent,
		"seq":         workSeq,
		"multi":       workMulti,
		"barrier":     workBarrier,
		"queue":       workQueue,
		"mem":         workMem,
		"matrix":      workMatrix,
	}
	collects := map[string]func(*repetition, *account){
		"readers": collectReaders,
		"rw":      collectRW,
		"sem":     collectSem,
		"cond":    collectQueue,
		"event":   collectEvent,
		"seq":     collectSeq,
		"multi":   collectMulti,
		"barrier": collectBarrier,
		"queue":   collectQueue,
		"mem":     collectMem,
		"matrix":  collectMatrix,
	}
	for _, s := range scenarios {
		s.work, s.collect = works[s.name], collects[s.name]
	}
}

// scenarioNames lists all of them.
func scenarioNames() []string {
	names := make([]string, len(scenarios))
	for i, sc := range scenarios {
		names[i] = sc.name
	}
	return names
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
var betterHigher = map[string]bool{"ops/s": true, "jain": true, "min-share": true, "n": true,
	"scan-MB/s": true, "as-asked-%": true, "huge-%": true}
