//go:build linux

package subjects

import "slices"

// loadSubjects maps the name of a scenario about load to the names of the subjects that it measures.
var loadSubjects = map[string][]string{
	"herd": {"c:futex", "c:sem", "c:cond", "go:futex", "go:futex-bitset", "go:futex-waitv", "go:futex-requeue", "go:futex2", "go:futex2-numa", "go:eventfd", "shmsync:semaphore"},
	"open": {"c:futex", "c:robust", "c:sem", "go:flock", "go:eventfd", "in-process:sync.Mutex", "in-process:chan",
		"shmsync:mutex", "shmsync:semaphore", "test:stall"},
	"oversub": {"c:futex", "c:futex-spin1000", "c:pthread", "c:robust", "c:spin", "c:pthread-spin", "shmsync:mutex"},
}

// loadBrief maps the name of a scenario about load to the names of the subjects that a quick suite measures.
var loadBrief = map[string][]string{
	"herd":    {"c:futex", "go:futex", "shmsync:semaphore"},
	"open":    {"c:robust", "shmsync:mutex"},
	"oversub": {"c:robust", "c:futex-spin1000", "shmsync:mutex"},
}

func init() {
	for scenario, names := range loadSubjects {
		for _, name := range names {
			s, err := Find(name)
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
