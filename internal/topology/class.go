package topology

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Class says how far apart two CPUs are. A class means the same on every host: for example, two CPUs of the class
// "remote-32" share neither a package nor a node, and their nodes have the distance 32.
type Class string

// Classes without a distance. If the CPUs of a host are of different kinds, a colon and the kinds of the two CPUs
// follow, as in "llc:EP".
const (
	Same        Class = "same"         // one and the same CPU
	SMT         Class = "smt"          // threads of one core
	Module      Class = "module"       // cores that share a cache below the last level
	SameLLC     Class = "llc"          // cores of one node that share a last-level cache
	SameNode    Class = "node"         // cores of one node and package that share no last-level cache
	NodePackage Class = "node-package" // different packages of one node
)

// Classes of two CPUs on different nodes. The name of such a class continues with a dash and the distance of the nodes,
// as in "remote-32".
const (
	LLCNode Class = "llc-node" // they share a last-level cache
	Package Class = "package"  // they share a package, but no last-level cache
	Remote  Class = "remote"   // they share neither
)

// rank orders classes from the nearest to the farthest.
var rank = []Class{Same, SMT, Module, SameLLC, LLCNode, SameNode, NodePackage, Package, Remote}

// Base returns a class without distance and kinds.
func (c Class) Base() Class {
	name, _, _ := strings.Cut(string(c), ":")
	if i := strings.LastIndexByte(name, '-'); i >= 0 && strings.Trim(name[i+1:], "0123456789?") == "" {
		name = name[:i]
	}
	return Class(name)
}

// distance returns the distance in the name of a class, or 0 if it has none.
func (c Class) distance() int {
	name, _, _ := strings.Cut(string(c), ":")
	d, _ := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	return d
}

// Valid reports whether c is the name of a class of two different CPUs.
func (c Class) Valid() bool {
	base := c.Base()
	_, kinds, unequal := strings.Cut(string(c), ":")
	if unequal && !slices.Contains([]string{"EE", "EP", "PP"}, kinds) {
		return false
	}
	switch base {
	case LLCNode, Package, Remote:
		return len(base) < len(strings.TrimSuffix(string(c), ":"+kinds))
	}
	return base != Same && slices.Contains(rank, base) && string(base) == strings.TrimSuffix(string(c), ":"+kinds)
}

// CompareClasses compares two classes by how far apart their CPUs are.
func CompareClasses(a, b Class) int {
	at := func(c Class) int { return slices.Index(rank, c.Base()) }
	return cmp.Or(cmp.Compare(at(a), at(b)), cmp.Compare(a.distance(), b.distance()), cmp.Compare(a, b))
}

// Class returns the class of two CPUs. If one of them is not online, it returns the class of CPUs that are as far apart
// as possible.
func (t *Topology) Class(a, b int) Class {
	x, okx := t.CPU(a)
	y, oky := t.CPU(b)
	if a == b {
		return Same
	}
	if !okx || !oky {
		return Remote + "-?"
	}
	return t.class(x, y)
}

func (t *Topology) class(x, y CPU) Class {
	var class Class
	switch sameLLC := x.LLC == y.LLC; {
	case x.Core == y.Core:
		class = SMT
	case x.Module != 0 && x.Module == y.Module:
		class = Module
	case sameLLC && x.Node == y.Node:
		class = SameLLC
	case sameLLC:
		class = LLCNode
	case x.Node == y.Node && x.Package == y.Package:
		class = SameNode
	case x.Node == y.Node:
		class = NodePackage
	case x.Package == y.Package:
		class = Package
	default:
		class = Remote
	}
	if class == LLCNode || class == Package || class == Remote {
		distance := "?"
		if d := max(t.Distance(x.Node, y.Node), t.Distance(y.Node, x.Node)); d > 0 {
			distance = strconv.Itoa(d)
		}
		class += Class("-" + distance)
	}
	if kinds := []string{x.Kind, y.Kind}; x.Kind != "" {
		slices.Sort(kinds)
		class += Class(":" + kinds[0] + kinds[1])
	}
	return class
}

// Distance returns the distance from one node to another, or 0 if the firmware does not report it.
func (t *Topology) Distance(from, to int) int {
	n, ok := t.Node(from)
	i := slices.IndexFunc(t.Nodes, func(n Node) bool { return n.ID == to })
	if !ok || i < 0 || i >= len(n.Distance) {
		return 0
	}
	return n.Distance[i]
}

// Usable returns the CPUs that this process may use. It omits isolated CPUs, unless all of them are isolated.
func (t *Topology) Usable() []int {
	var all, common []int
	for _, id := range t.Limits.CPUs {
		if _, ok := t.CPU(id); !ok {
			continue
		}
		all = append(all, id)
		if !slices.Contains(t.Settings.Isolated, id) {
			common = append(common, id)
		}
	}
	if len(common) == 0 {
		return all
	}
	return common
}

// Leaf is a set of CPUs that are equally near each other: any two CPUs of different cores in it are in the same class.
type Leaf struct{ CPUs []int }

// Leaves splits CPUs into leaves, that is, into sets of CPUs that have the package, node, last-level cache, module and
// kind in common.
func (t *Topology) Leaves(cpus []int) (list []Leaf) {
	type key struct {
		pkg, node, llc, module int
		kind                   string
	}
	at := map[key]int{}
	for _, id := range t.Near(cpus) {
		c, _ := t.CPU(id)
		k := key{c.Package, c.Node, c.LLC, c.Module, c.Kind}
		i, ok := at[k]
		if !ok {
			i = len(list)
			at[k] = i
			list = append(list, Leaf{})
		}
		list[i].CPUs = append(list[i].CPUs, id)
	}
	return list
}

// ClassesOf returns the classes of all pairs of the CPUs, from the nearest to the farthest. It examines pairs of leaves
// instead of pairs of CPUs. A leaf is a set of CPUs that are equally near each other, so there are far fewer leaves.
func (t *Topology) ClassesOf(cpus []int) (list []Class) {
	seen := map[Class]bool{}
	t.VisitLeaves(cpus, func(class Class, _, _ []int) { seen[class] = true })
	for class := range seen {
		list = append(list, class)
	}
	slices.SortFunc(list, CompareClasses)
	return list
}

// VisitLeaves splits the CPUs into leaves, which are sets of CPUs that are equally near each other. It calls yield for
// each pair of leaves, with the class of any two CPUs from different leaves of the pair.
//
// It also calls yield for single leaves, with the leaf as both a and b. If a core of the leaf has several threads, one
// of these calls has the class of two threads of a core. If the leaf has several cores, one call has the class of two
// cores.
func (t *Topology) VisitLeaves(cpus []int, yield func(class Class, a, b []int)) {
	leaves := t.Leaves(cpus)
	for i, x := range leaves {
		cores := t.Groups(x.CPUs, ByCore)
		for _, core := range cores {
			if len(core) > 1 {
				yield(t.Class(core[0], core[1]), x.CPUs, x.CPUs)
				break
			}
		}
		if len(cores) > 1 {
			yield(t.Class(cores[0][0], cores[1][0]), x.CPUs, x.CPUs)
		}
		for _, y := range leaves[i+1:] {
			yield(t.Class(x.CPUs[0], y.CPUs[0]), x.CPUs, y.CPUs)
		}
	}
}

// Representative returns CPUs for a class. The first two CPUs are a pair of that class. The other CPUs alternate
// between the leaf of the first CPU and the leaf of the second CPU. Representative takes one thread of each core,
// except for the class SMT. It avoids leaves with CPU 0, because CPU 0 serves interrupts on many hosts. It returns nil
// if there is no pair of that class.
func (t *Topology) Representative(cpus []int, class Class) []int {
	var best []int
	busy := true
	t.VisitLeaves(cpus, func(of Class, a, b []int) {
		if of != class || best != nil && !busy {
			return
		}
		list, first := t.between(class, a, b)
		if best == nil || !first {
			best, busy = list, first
		}
	})
	return best
}

// between returns CPUs that alternate between the leaves a and b. The result zero reports whether CPU 0 is among them.
func (t *Topology) between(class Class, a, b []int) (list []int, zero bool) {
	sides := [][]int{t.firstThreads(a), t.firstThreads(b)}
	if slices.Equal(a, b) {
		sides = sides[:1]
		if class.Base() == SMT {
			sides[0] = t.siblings(a)
		}
	}
	for i := range len(a) + len(b) {
		for _, side := range sides {
			if i < len(side) {
				list = append(list, side[i])
			}
		}
	}
	return list, slices.Contains(list, 0)
}

// firstThreads returns one thread of each core, with the core of CPU 0 last.
func (t *Topology) firstThreads(cpus []int) (list []int) {
	var last []int
	for _, core := range t.Groups(cpus, ByCore) {
		if slices.Contains(core, 0) {
			last = core[:1]
			continue
		}
		list = append(list, core[0])
	}
	return append(list, last...)
}

// siblings returns the threads of a core that has several. It avoids the core of CPU 0.
func (t *Topology) siblings(cpus []int) (list []int) {
	for _, core := range t.Groups(cpus, ByCore) {
		if len(core) > 1 && (list == nil || slices.Contains(list, 0)) {
			list = core
		}
	}
	return list
}
