//go:build linux

package plan

import (
	"path"
	"slices"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/topology"
)

// classSubjects are those whose cells a suite has for each class of CPUs: the library's, and a peer.
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
}

// scaledSubjects are those whose throughput a suite has for 1 to n workers.
var scaledSubjects = []string{"c:robust", bench.Library + ":mutex", bench.Library + ":mutex-cohort"}

// classes lists the classes of the CPUs of a suite; none where the host does not say.
func (o *Options) classes() []topology.Class {
	if !o.Suite || o.Topology == nil {
		return nil
	}
	if o.known == nil {
		o.known = &known{classes: o.Topology.ClassesOf(o.CPUs), places: map[string][]int{}}
	}
	return o.known.classes
}

// apart is the placement of cells whose processes have a CPU each, where the user does not say. In a
// suite it is the nearest class of different cores, so that the key of a cell means the same on each
// host. Another command takes the CPUs in their order.
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

// classCells are a suite's cells of each class of CPUs.
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
			if err == nil { // else none of the asked subjects takes part
				cells = append(cells, more...)
			}
		}
	}
	return cells
}

// mostProcs is how many processes the workers of a cell are in at most: each takes time to start.
const mostProcs = 16

// workerCounts lists how many workers a suite lets contend, as processes and threads of each: powers of
// two up to the number of cores.
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

// scalingCells are a suite's locks with 1 to n workers, near each other and far from each other.
func scalingCells(o *Options) (cells []*bench.Cell) {
	if len(o.classes()) == 0 || len(o.Places)+len(o.Procs)+len(o.Threads) > 0 {
		return nil
	}
	cores := len(o.Topology.Groups(o.CPUs, topology.ByCore))
	places := []string{bench.PlacePack}
	if len(o.Topology.Leaves(o.CPUs)) > 1 {
		places = append(places, bench.PlaceSpread)
	}
	for _, shape := range workerCounts(cores) {
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

// unique leaves out cells whose key another one has.
func unique(cells []*bench.Cell) []*bench.Cell {
	seen := map[string]bool{}
	return slices.DeleteFunc(cells, func(c *bench.Cell) bool {
		key := c.Key()
		was := seen[key]
		seen[key] = true
		return was
	})
}

// dropOrder lists the scenarios that a suite leaves out, the first one first, where its least is too
// much for its budget. Those that classes and decisions rest on are not among them.
var dropOrder = []string{"event", "barrier", "cond", "seq", "sem", "herd", "open", "multi", "waiters", "idle"}

// matches tells a subject that the user asked for.
func matches(patterns []string, subject string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, subject)
		return ok && err == nil
	})
}
