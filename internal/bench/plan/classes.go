//go:build linux

package plan

import (
	"math/bits"
	"path"
	"slices"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/topology"
)

// classSubjects are the subjects that a suite measures for each class of pairs of CPUs: primitives of the library,
// and other subjects for comparison.
var classSubjects = []struct {
	scenario string
	prims    []string
}{
	{"handoff", []string{"c:futex", bench.Library + ":futex"}},
	{"wake", []string{"c:futex", bench.Library + ":futex"}},
	{"lock", []string{"c:robust", bench.Library + ":mutex", bench.Library + ":mutex-cohort"}},
	{"readers", []string{"c:rwlock", bench.Library + ":rwmutex"}},
	{"queue", []string{"go:pipe", bench.Library + ":queue"}},
	{"matrix", []string{"go:one-line"}},
	{"padding", []string{"go:counters"}},
}

// scaledSubjects are the subjects whose throughput a suite measures with 1 to n workers.
var scaledSubjects = []string{"c:robust", bench.Library + ":mutex", bench.Library + ":mutex-cohort"}

// classes returns the classes of pairs of CPUs that a suite measures. There are none if the host does not describe
// its CPUs.
func (o *Options) classes() []topology.Class {
	if !o.Suite || o.Topology == nil {
		return nil
	}
	if o.known == nil {
		o.known = &known{classes: o.Topology.ClassesOf(o.CPUs), places: map[string][]int{}}
	}
	return o.known.classes
}

// apart returns the default placement that gives each process a CPU of its own. In a suite it is the class of the
// nearest CPUs on different cores, so that the key of a measurement means the same on each host. In other commands the
// processes get the CPUs in the order of the list.
func (o *Options) apart() string {
	list := o.classes()
	for _, class := range list {
		if class.Base() != topology.SMT {
			return string(class)
		}
	}
	if len(list) > 0 {
		return string(list[0])
	}
	return bench.PlaceCross
}

// classCells returns the cells, that is, the measurements, that a suite makes for each class of pairs of CPUs.
func classCells(o *Options) (cells []*bench.Cell) {
	for _, class := range o.classes() {
		for _, s := range classSubjects {
			c := *o
			c.Places, c.Prims = []string{string(class)}, s.prims
			c.Procs, c.Threads = []int{2}, []int{1}
			c.Hogs, c.Gaps, c.Sample = nil, nil, ""
			if len(o.Prims) > 0 {
				c.Prims = slices.DeleteFunc(slices.Clone(s.prims), func(p string) bool { return !matches(o.Prims, p) })
			}
			if len(c.Prims) == 0 {
				continue
			}
			more, err := Cells(&c, s.scenario)
			if err == nil { // on an error, none of the selected subjects takes part
				cells = append(cells, more...)
			}
		}
	}
	return cells
}

// choices describes groups of measurements. Each group shows which value of a parameter is best for the subjects of the
// group.
var choices = []struct {
	scenario string
	prims    []string
	set      func(*Options)
}{
	{"rw", []string{"c:rwlock", bench.Library + ":mutex", bench.Library + ":rwmutex"}, func(o *Options) { o.Read = []int{50, 90, 99} }},
	{"multi", []string{bench.Library + ":multilock"}, stripes},
	{"queue", []string{bench.Library + ":queue"}, func(o *Options) { o.Batch = []int{1, 16} }},
	{"mem", []string{bench.Library + ":arena"}, func(o *Options) { o.Mem, o.Huge = []string{bench.FirstTouch}, []string{"none", "thp"} }},
}

// stripes chooses the numbers of keys for measurements of a striped lock. Each key is a stripe, which has a lock of its
// own. The best number depends on the number of workers. Therefore stripes asks for a worker on each core of the host.
func stripes(o *Options) {
	o.Keys = []int{1, 16, 64}
	if len(o.classes()) == 0 || len(o.Places)+len(o.Procs)+len(o.Threads) > 0 {
		return
	}
	counts := workerCounts(o.busiest(len(o.Topology.Groups(o.CPUs, topology.ByCore))))
	if most := counts[len(counts)-1]; most[0]*most[1] > 2 {
		each := 1 << bits.Len(uint(most[0]*most[1]-1)) // rounded up to a power of two
		o.Keys = []int{1, 4 * each, 16 * each}
		o.Procs, o.Threads, o.Places = []int{most[0]}, []int{most[1]}, []string{bench.PlacePack}
	}
}

// choiceCells returns the measurements that the variable choices describes. It returns none if the user chose values of
// the parameters that these measurements vary.
func choiceCells(o *Options) (cells []*bench.Cell) {
	if len(o.Read)+len(o.Keys)+len(o.Batch)+len(o.Mem)+len(o.Huge) > 0 {
		return nil
	}
	for _, choice := range choices {
		c := *o
		c.Prims = slices.DeleteFunc(slices.Clone(choice.prims), func(p string) bool { return len(o.Prims) > 0 && !matches(o.Prims, p) })
		if len(c.Prims) == 0 {
			continue
		}
		choice.set(&c)
		if more, err := Cells(&c, choice.scenario); err == nil {
			cells = append(cells, more...)
		}
	}
	return cells
}

// mostProcs is the largest number of processes for the workers of a measurement. A measurement with more workers
// has several workers as threads in each process, because starting a process takes time.
const mostProcs = 16

// workerCounts returns the numbers of contending workers that a suite measures: the powers of two below the number
// of cores, and the number of cores. Each number is given as a number of processes and a number of threads per
// process.
func workerCounts(cores int) (list [][2]int) {
	add := func(n int) {
		threads := (n + mostProcs - 1) / mostProcs
		shape := [2]int{n / threads, threads}
		if !slices.Contains(list, shape) {
			list = append(list, shape)
		}
	}
	for n := 1; n < cores; n *= 2 {
		add(n)
	}
	add(cores)
	return list
}

// scalingCells returns the lock cells of a suite with 1 to n workers, once with near and once with far CPUs.
func scalingCells(o *Options) (cells []*bench.Cell) {
	if len(o.classes()) == 0 || len(o.Places)+len(o.Procs)+len(o.Threads) > 0 {
		return nil
	}
	cores := len(o.Topology.Groups(o.CPUs, topology.ByCore))
	places := []string{bench.PlacePack}
	if len(o.Topology.Leaves(o.CPUs)) > 1 {
		places = append(places, bench.PlaceSpread)
	}
	for _, shape := range workerCounts(o.busiest(cores)) {
		c := *o
		c.Procs, c.Threads, c.Places = []int{shape[0]}, []int{shape[1]}, places
		if shape[0] < 2 {
			c.Places = []string{bench.PlaceSame}
		}
		c.Prims = slices.DeleteFunc(slices.Clone(scaledSubjects), func(p string) bool { return len(o.Prims) > 0 && !matches(o.Prims, p) })
		if len(c.Prims) == 0 {
			continue
		}
		if more, err := Cells(&c, "lock"); err == nil {
			cells = append(cells, more...)
		}
	}
	return cells
}

// unique removes each cell whose key an earlier cell has.
func unique(cells []*bench.Cell) []*bench.Cell {
	seen := map[string]bool{}
	return slices.DeleteFunc(cells, func(c *bench.Cell) bool {
		key := c.Key()
		was := seen[key]
		seen[key] = true
		return was
	})
}

// dropOrder lists the scenarios that a suite leaves out, one after the other, until its shortest plan fits its time
// budget. No advice rests on them.
var dropOrder = []string{"event", "barrier", "cond", "seq", "sem", "herd", "open", "waiters", "idle", "oversub", "uncontended"}

// droppedLast is a scenario on which one advice rests, the number of stripes. Before a suite leaves out this scenario,
// it reduces the measurements on which no advice rests to one repetition.
const droppedLast = "multi"

// rarelyFirst is a scenario in dropOrder whose figures the report shows next to a decision. Before a suite leaves out
// this scenario, it reduces the repetitions of all measurements on which no advice rests.
const rarelyFirst = "oversub"

// crowd is the number of workers that must contend on each of two nodes before a NUMA-aware lock can be better than
// another lock.
const crowd = 4

// crowded reports whether the workers of a cell use many CPUs on each of two or more nodes. The constant crowd says how
// many CPUs of a node are enough.
func crowded(o *Options, c *bench.Cell) bool {
	if o.Topology == nil {
		return false
	}
	on := map[int]map[int]bool{}
	for slot := range c.Slots() {
		if cpu, ok := o.Topology.CPU(c.CPUOf(slot, o.CPUs)); ok {
			if on[cpu.Node] == nil {
				on[cpu.Node] = map[int]bool{}
			}
			on[cpu.Node][cpu.ID] = true
		}
	}
	full := 0
	for _, cpus := range on {
		if len(cpus) >= crowd {
			full++
		}
	}
	return full > 1
}

// decisive reports whether advice rests on a cell of a suite. Advice rests on contrasts: package report compares two
// cells round by round. A test checks that decisive selects the cells of the contrasts.
func decisive(o *Options, c *bench.Cell) bool {
	name := c.Subject.Name()
	switch c.Scenario.Name {
	case "matrix": // the map of all pairs is decisive only if there are no classes to compare
		return name == "go:one-line" && (topology.Class(c.Place).Valid() || len(o.classes()) < 2)
	case "mem", "padding", "stream":
		return true
	case "intruder":
		return name == bench.Library+":mutex" || name == bench.Library+":mutex-checked"
	case "home":
		return name == bench.Library+":mutex"
	case "wake":
		return name == bench.Library+":futex" && topology.Class(c.Place).Valid() && c.Gap == UsualGap
	case "lock":
		ours := name == bench.Library+":mutex" || name == bench.Library+":mutex-cohort"
		return ours && (crowded(o, c) || topology.Class(c.Place).Valid() && name == bench.Library+":mutex" && c.Procs == 2 && c.Threads == 1)
	case "rw":
		return name == bench.Library+":rwmutex" || name == bench.Library+":mutex"
	case "multi":
		return name == bench.Library+":multilock"
	case "queue":
		return name == bench.Library+":queue"
	}
	return false
}

// quickly reports whether a cell belongs to the shortest suite. That suite maps the classes of CPUs, and measures
// wakes, handoffs, locks and deaths. Of the lock cells with 1 to n workers, it measures those with 1, 4, 16 or another
// power of 4.
func quickly(c *bench.Cell) bool {
	switch c.Scenario.Name {
	case "matrix", "handoff", "wake", "crash":
		return true
	case "lock":
		return !c.Spreads() || isPowerOfFour(c.Slots())
	}
	return false
}

func isPowerOfFour(n int) bool {
	for n > 1 && n%4 == 0 {
		n /= 4
	}
	return n == 1
}

// matches reports whether one of the patterns, with which the user selects subjects, matches the subject.
func matches(patterns []string, subject string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, subject)
		return ok && err == nil
	})
}
