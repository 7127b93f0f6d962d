//go:build linux

package bench

// Scenario is one kind of measurement, such as a contended lock.
type Scenario struct {
	ID     uint32
	Name   string
	Bench  string   // the scenario's part of the name of a benchmark, such as Lock in BenchmarkLock
	Unit   string   // name of the main metric, for tables and ratios
	Higher bool     // more of the main metric is better
	Others []string // further metrics that a table shows
	Keys   []string // parameters that distinguish measurements of this scenario, in addition to "by" and "prim"
	Ref    []string // subjects to which ratios refer; a report uses the first one that ran
	Versus []string // subjects with which the top of a report compares the library
	procs  int      // number of processes of a cell that does not set Procs
	Whole  bool     // all threads of a process are pinned to one CPU, even those of the Go runtime; for processes with one worker thread
}

// Scenarios are all kinds of measurement, in the order of reports. Their ids are part of the control page, through
// which the parent and its workers communicate.
var Scenarios = []*Scenario{
	{ID: 1, Name: "uncontended", Bench: "Uncontended", Unit: "p50-ns", Others: []string{"mean-ns", "p99-ns", "max-ns"},
		Ref:    []string{"c:pthread", "in-process:sync.Mutex"},
		Versus: []string{"in-process:sync.Mutex", "c:robust"}, procs: 1},
	{ID: 2, Name: "handoff", Bench: "Handoff", Unit: "p50-ns", Others: []string{"p99-ns", "ctxsw/op", "slept"},
		Keys: []string{"hog", "place"}, Ref: []string{"c:futex", "go:pipe"},
		Versus: []string{"c:futex", "c:futex-spin1000", "c:cond"}, procs: 2},
	{ID: 3, Name: "wake", Bench: "Wake", Unit: "p50-ns", Others: []string{"p99-ns", "waker-p50-ns", "slept"},
		Keys: []string{"gap", "place"}, Ref: []string{"c:futex", "go:pipe"},
		Versus: []string{"c:futex", "c:cond"}, procs: 2},
	{ID: 4, Name: "lock", Bench: "Lock", Unit: "ops/s", Higher: true, Others: []string{"p99-ns", "jain", "ctxsw/op"},
		Keys: []string{"cs", "place", "procs", "think", "threads"}, Ref: []string{"c:robust", "go:flock"},
		Versus: []string{"c:robust"}},
	{ID: 5, Name: "crash", Bench: "Crash", Unit: "p50-ns", Others: []string{"p90-ns", "p99-ns", "max-ns", "n"},
		Keys: []string{"kills", "place"}, Ref: []string{"c:robust", "go:waitv-floor"},
		Versus: []string{"go:waitv-floor", "c:robust"}, Whole: true},
	{ID: 6, Name: "waiters", Bench: "Waiters", Unit: "B/waiter", Others: []string{"threads", "block-ns", "cancel-ns", "wake-ns"},
		Keys: []string{"waiters"}, Ref: []string{"go:futex", "in-process:chan"},
		Versus: []string{"go:futex", "in-process:chan"}, procs: 1},
	{ID: 7, Name: "idle", Bench: "Idle", Unit: "cpu-ns", Others: []string{"waited-ns"},
		Keys: []string{"place", "wait"}, Ref: []string{"go:flock"},
		Versus: []string{"go:flock"}, procs: 2},
	{ID: 8, Name: "readers", Bench: "Readers", Unit: "p50-ns", Others: []string{"p99-ns", "ops/s"},
		Keys: []string{"place", "procs"}, Ref: []string{"c:rwlock", "in-process:sync.RWMutex"},
		Versus: []string{"c:rwlock", "in-process:sync.RWMutex"}},
	{ID: 9, Name: "rw", Bench: "RW", Unit: "ops/s", Higher: true, Others: []string{"p99-ns", "write-p50-ns", "write-p99-ns", "jain"},
		Keys: []string{"cs", "place", "procs", "read", "think", "threads"}, Ref: []string{"c:rwlock", "in-process:sync.RWMutex"},
		Versus: []string{"c:rwlock", "in-process:sync.RWMutex"}},
	{ID: 10, Name: "sem", Bench: "Sem", Unit: "ops/s", Higher: true, Others: []string{"p99-ns", "jain", "held-max", "ctxsw/op"},
		Keys: []string{"cs", "permits", "place", "procs", "think", "threads"}, Ref: []string{"c:sem", "go:eventfd"},
		Versus: []string{"c:sem", "go:eventfd"}},
	{ID: 11, Name: "cond", Bench: "Cond", Unit: "ops/s", Higher: true, Others: []string{"p50-ns", "p99-ns", "ctxsw/op"},
		Keys: []string{"capacity", "place", "procs", "threads"}, Ref: []string{"c:cond", "in-process:sync.Cond"},
		Versus: []string{"c:cond", "in-process:sync.Cond"}},
	{ID: 12, Name: "event", Bench: "Event", Unit: "p50-ns", Others: []string{"p99-ns", "each-p50-ns", "set-p50-ns"},
		Keys: []string{"gap", "place", "procs", "threads"}, Ref: []string{"c:futex", "go:eventfd"},
		Versus: []string{"c:futex", "c:cond"}},
	{ID: 13, Name: "seq", Bench: "Seq", Unit: "p50-ns", Others: []string{"p99-ns", "all-p50-ns", "lag-p50", "lag-max", "n"},
		Keys: []string{"place", "waiters", "wake"}, Ref: []string{"in-process:sync.Cond"},
		Versus: []string{"in-process:sync.Cond"}, procs: 2},
	{ID: 14, Name: "multi", Bench: "Multi", Unit: "ops/s", Higher: true, Others: []string{"p99-ns", "waited", "jain", "ctxsw/op"},
		Keys: []string{"cs", "keys", "locks", "place", "procs", "skew", "think", "threads"}, Ref: []string{"c:robust", "go:ofd"},
		Versus: []string{"c:robust", "go:ofd"}},
	{ID: 15, Name: "barrier", Bench: "Barrier", Unit: "p50-ns", Others: []string{"p99-ns", "ops/s", "ctxsw/op"},
		Keys: []string{"cs", "place", "procs", "threads"}, Ref: []string{"c:barrier", "in-process:sync.Cond"},
		Versus: []string{"c:barrier", "in-process:sync.Cond"}},
	{ID: 16, Name: "queue", Bench: "Queue", Unit: "ops/s", Higher: true, Others: []string{"p50-ns", "p99-ns", "jain", "ctxsw/op"},
		Keys: []string{"batch", "capacity", "place", "procs", "threads"}, Ref: []string{"c:cond", "go:pipe"},
		Versus: []string{"c:cond", "go:pipe", "in-process:chan"}},
	{ID: 40, Name: "mem", Bench: "Mem", Unit: "chase-ns", Others: []string{"scan-MB/s", "data-ns", "as-asked-%"},
		Keys: []string{"huge", "mem", "node"}, procs: 1},
	{ID: 30, Name: "intruder", Bench: "Intruder", Unit: "ops/s", Higher: true, Others: []string{"p50-ns", "p99-ns", "n"},
		Keys: []string{"gap", "place"}, Ref: []string{"c:robust"}, Versus: []string{"c:robust"}, procs: 2},
	{ID: 31, Name: "fence", Bench: "Fence", Unit: "p50-ns", Others: []string{"p99-ns", "n"}, Keys: []string{"procs", "threads"}},
	{ID: 29, Name: "stream", Bench: "Stream", Unit: "chase-ns", Others: []string{"MB/s", "as-asked-%"},
		Keys: []string{"data", "duty", "read", "streams"}},
	{ID: 20, Name: "matrix", Bench: "Matrix", Unit: "p50-ns", Others: []string{"mean-ns", "n"}, Keys: []string{"place"}, procs: 2},
	{ID: 28, Name: "home", Bench: "Home", Unit: "ops/s", Higher: true, Others: []string{"p99-ns", "as-asked-%"},
		Keys: []string{"home", "place"}, Ref: []string{"c:robust"}, Versus: []string{"c:robust"}},
	{ID: 27, Name: "padding", Bench: "Padding", Unit: "ops/s", Higher: true, Others: []string{"jain"},
		Keys: []string{"pad", "place", "procs", "threads"}},
	{ID: 24, Name: "herd", Bench: "Herd", Unit: "p50-ns", Others: []string{"p99-ns", "each-p50-ns", "waker-p50-ns"},
		Keys: []string{"gap", "place", "waiters", "wake"}, Ref: []string{"c:futex", "go:futex"},
		Versus: []string{"c:futex", "go:futex"}},
	{ID: 25, Name: "open", Bench: "Open", Unit: "p99-ns", Others: []string{"p50-ns", "p99.9-ns", "closed-p99-ns", "corrected-p99-ns", "behind"},
		Keys: []string{"cs", "place", "procs", "rate", "threads"}, Ref: []string{"c:robust", "go:flock"},
		Versus: []string{"c:robust", "go:flock"}},
	{ID: 26, Name: "oversub", Bench: "Oversub", Unit: "ops/s", Higher: true, Others: []string{"p99-ns", "jain", "ctxsw/op"},
		Keys: []string{"cs", "load", "noise", "quota", "spin", "think"}, Ref: []string{"c:robust", "c:futex"},
		Versus: []string{"c:robust", "c:futex"}},
}

// ScenarioNames returns the names of all scenarios.
func ScenarioNames() []string {
	names := make([]string, len(Scenarios))
	for i, sc := range Scenarios {
		names[i] = sc.Name
	}
	return names
}

// ScenarioByID returns the scenario with the id that a control page contains, or nil if there is none.
func ScenarioByID(id uint32) *Scenario {
	for _, s := range Scenarios {
		if s.ID == id {
			return s
		}
	}
	return nil
}

// ScenarioByName returns the scenario with a name, or nil if there is none.
func ScenarioByName(name string) *Scenario {
	for _, s := range Scenarios {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// BetterHigher has the metrics for which more is better. For all other metrics, less is better.
var BetterHigher = map[string]bool{"ops/s": true, "jain": true, "min-share": true, "n": true,
	"scan-MB/s": true, "MB/s": true, "as-asked-%": true, "huge-%": true}
