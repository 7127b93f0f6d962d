//go:build linux

package main

import "slices"

// loadScenarios are about more load than there are CPUs, about load that comes when it
// comes, and about waking some of many.
func loadScenarios() []*scenario {
	return []*scenario{
		{id: 24, name: "herd", bench: "Herd", unit: "p50-ns", others: []string{"p99-ns", "each-p50-ns", "waker-p50-ns"},
			keys: []string{"gap", "place", "waiters", "wake"}, ref: []string{"c:futex", "go:futex"},
			versus: []string{"c:futex", "go:futex"}, variants: herdCells, work: workHerd, collect: collectHerd},
		{id: 25, name: "open", bench: "Open", unit: "p99-ns", others: []string{"p50-ns", "p99.9-ns", "closed-p99-ns", "corrected-p99-ns", "behind"},
			keys: []string{"cs", "place", "procs", "rate", "threads"}, ref: []string{"c:robust", "go:flock"},
			versus: []string{"c:robust", "go:flock"}, variants: openCells, work: workOpen, collect: collectOpen},
		{id: 26, name: "oversub", bench: "Oversub", unit: "ops/s", higher: true, others: []string{"p99-ns", "jain", "ctxsw/op"},
			keys: []string{"cs", "load", "noise", "quota", "spin", "think"}, ref: []string{"c:robust", "c:futex"},
			versus: []string{"c:robust", "c:futex"}, variants: oversubCells, takes: takesSpin, work: workLock, collect: collectOversub},
	}
}

// loadSubjects are who takes part in them.
var loadSubjects = map[string][]string{
	"herd": {"c:futex", "c:sem", "c:cond", "go:futex", "go:futex-bitset", "go:futex-waitv", "go:futex-requeue", "go:futex2", "go:futex2-numa", "go:eventfd", "shmsync:semaphore"},
	"open": {"c:futex", "c:robust", "c:sem", "go:flock", "go:eventfd", "in-process:sync.Mutex", "in-process:chan",
		"shmsync:mutex", "shmsync:semaphore", "test:stall"},
	"oversub": {"c:futex", "c:futex-spin1000", "c:pthread", "c:robust", "c:spin", "c:pthread-spin", "shmsync:mutex"},
}

// loadBrief are who does in a quick suite.
var loadBrief = map[string][]string{
	"herd":    {"c:futex", "go:futex", "shmsync:semaphore"},
	"open":    {"c:robust", "shmsync:mutex"},
	"oversub": {"c:robust", "c:futex-spin1000", "shmsync:mutex"},
}

func init() {
	scenarios = append(scenarios, loadScenarios()...)
	for scenario, names := range loadSubjects {
		for _, name := range names {
			s, err := findSubject(name)
			if err != nil {
				panic(err)
			}
			s.Scenarios = append(s.Scenarios, scenario)
			if brief := slices.Contains(loadBrief[scenario], name); brief && s.Brief != nil {
				s.Brief = append(s.Brief, scenario)
			} else if !brief && s.Brief == nil {
				s.Brief = slices.DeleteFunc(slices.Clone(s.Scenarios), func(n string) bool { return n == scenario })
			}
		}
	}
}
