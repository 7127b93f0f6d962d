package topology

import (
	"cmp"
	"fmt"
	"slices"
)

// facts has what a host reports about its CPUs and nodes. The method assemble derives the topology from it.
type facts struct {
	cpus  []cpuFacts // online, ascending
	nodes []Node     // ascending; a CPU may be in several of them, or in none
}

type cpuFacts struct {
	CPU
	core    []int // all CPUs of the same core; nil if the host does not say
	socket  []int // all CPUs of the same package; used if the package has no number
	cluster []int
	caches  []cacheFacts // caches that hold data
}

type cacheFacts struct {
	level int
	bytes int64
	cpus  []int
}

// assemble derives the topology from the facts.
func (r *reader) assemble(f *facts) {
	r.placeNodes(f)
	r.packages(f)
	r.cores(f)
	r.lastLevels(f)
	r.modules(f)
	for _, c := range f.cpus {
		r.t.CPUs = append(r.t.CPUs, c.CPU)
	}
	r.kindsOfCPU()
}

// at returns the facts about the CPU with the number id. It returns nil if that CPU is not online.
func (f *facts) at(id int) *cpuFacts {
	i, ok := slices.BinarySearchFunc(f.cpus, id, func(c cpuFacts, id int) int { return cmp.Compare(c.ID, id) })
	if !ok {
		return nil
	}
	return &f.cpus[i]
}

// packages gives numbers to packages for which the host reports none. CPUs that name each other as siblings are in one
// package.
func (r *reader) packages(f *facts) {
	found := map[string]int{}
	next := 0
	for i := range f.cpus {
		next = max(next, f.cpus[i].Package+1)
	}
	for i := range f.cpus {
		c := &f.cpus[i]
		if c.Package >= 0 {
			continue
		}
		key := FormatList(c.socket)
		n, ok := found[key]
		if !ok {
			n = next + len(found)
			found[key] = n
		}
		c.Package = n
	}
	if len(found) > 1 || len(found) == 1 && next > 0 {
		r.repair("of packages", "some packages have no number: they are told apart by the CPUs that name each other")
	}
}

// cores numbers the cores over the whole host, and the threads within each core.
func (r *reader) cores(f *facts) {
	numbers := map[string]int{}
	threads := map[int]int{}
	for i := range f.cpus {
		c := &f.cpus[i]
		key := fmt.Sprintf("%d %s", c.Package, FormatList(c.core))
		if c.core == nil {
			key = fmt.Sprintf("CPU %d", c.ID)
		}
		n, ok := numbers[key]
		if !ok {
			n = len(numbers)
			numbers[key] = n
		}
		c.Core, c.Thread = n, threads[n]
		threads[n]++
	}
}

// coresOf returns the number of cores that the given CPUs have. It ignores CPUs that are not online.
func (f *facts) coresOf(ids []int) int {
	seen := map[int]bool{}
	for _, id := range ids {
		if c := f.at(id); c != nil {
			seen[c.Core] = true
		}
	}
	return len(seen)
}

// lastLevels finds the last-level cache of each CPU. If the host reports no cache that several cores share, all cores
// in the same package and node count as sharing one.
func (r *reader) lastLevels(f *facts) {
	shared, told := false, false
	for _, c := range f.cpus {
		for _, cache := range c.caches {
			told = true
			shared = shared || f.coresOf(cache.cpus) > 1
		}
	}
	if !shared && len(f.cpus) > 1 && f.coresOf(f.ids()) > 1 {
		what := "the host does not say which CPUs share caches"
		if told {
			what = "no cache that the host tells of is shared by two cores"
		}
		r.note("%s: those of a package and node are taken for one group", what)
	}
	at := map[string]int{}
	for i := range f.cpus {
		c := &f.cpus[i]
		best := LLC{}
		key := fmt.Sprintf("package %d node %d", c.Package, c.Node)
		for _, cache := range c.caches {
			if (shared || f.coresOf(f.ids()) == 1) && cache.level > best.Level {
				best.Level, best.Bytes = cache.level, cache.bytes
				key = fmt.Sprintf("L%d %s", cache.level, FormatList(cache.cpus))
			}
		}
		n, known := at[key]
		if !known {
			n = len(r.t.LLCs)
			at[key] = n
			r.t.LLCs = append(r.t.LLCs, best)
		}
		c.LLC = n
		r.t.LLCs[n].CPUs = append(r.t.LLCs[n].CPUs, c.ID)
	}
}

func (f *facts) ids() []int {
	list := make([]int, len(f.cpus))
	for i, c := range f.cpus {
		list[i] = c.ID
	}
	return list
}

// modules finds groups of several cores within one last-level cache and one node. The cores of a group share another
// cache, or the kernel reports them as a cluster.
func (r *reader) modules(f *facts) {
	at := map[string]int{}
	for i := range f.cpus {
		c := &f.cpus[i]
		around := f.coresOf(slices.DeleteFunc(slices.Clone(r.t.LLCs[c.LLC].CPUs), func(id int) bool { return f.at(id).Node != c.Node }))
		sets := [][]int{c.cluster}
		for _, cache := range c.caches {
			if cache.level > 1 {
				sets = append(sets, cache.cpus)
			}
		}
		best, most := "", 1
		for _, set := range sets {
			if n := f.coresOf(set); n > most && n < around {
				best, most = FormatList(set), n
			}
		}
		if best == "" {
			continue
		}
		if at[best] == 0 {
			at[best] = len(at) + 1
		}
		c.Module = at[best]
	}
}

// sameKind separates fast CPUs from slow ones. A CPU counts as fast if its capacity, or its frequency, is at least this
// share of the best one.
const sameKind = 0.85

// kindsOfCPU divides the CPUs into fast and slow ones, if some CPUs are slow. It compares their capacities. If by these
// no CPU is slow, it compares their frequencies: many hosts do not tell the capacities, or tell the same for each CPU.
func (r *reader) kindsOfCPU() {
	for _, of := range []func(CPU) int{func(c CPU) int { return c.Capacity }, func(c CPU) int { return c.MaxMHz }} {
		best, unequal := 0, false
		for _, c := range r.t.CPUs {
			best = max(best, of(c))
		}
		slow := func(c CPU) bool { return of(c) > 0 && float64(of(c)) < sameKind*float64(best) }
		for _, c := range r.t.CPUs {
			unequal = unequal || slow(c)
		}
		if !unequal {
			continue
		}
		for i := range r.t.CPUs {
			c := &r.t.CPUs[i]
			c.Kind = Fast
			if slow(*c) {
				c.Kind = Slow
			}
		}
		return
	}
}
