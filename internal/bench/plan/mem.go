//go:build linux

package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/place"
	"github.com/shmsync/shmsync/internal/topology"
	"github.com/shmsync/shmsync/shm"
)

// memLeastTime is the least time for which a mem cell measures. In this time a slow machine reads the whole memory a
// few times.
const memLeastTime = 60 * time.Millisecond

// memHost has the facts about a host that mem measurements need.
type memHost struct {
	cpus   map[int][]int // the CPUs of the run, by node
	nodes  []int         // nodes with CPUs of the run, ascending
	memory []int         // nodes with memory, ascending
}

// memHostOf returns the facts about a host that mem measurements need. A host without a topology counts as one node.
func memHostOf(t *topology.Topology, used []int) memHost {
	h := memHost{cpus: map[int][]int{}}
	if t != nil {
		for _, n := range t.Nodes {
			for _, cpu := range n.CPUs {
				if slices.Contains(used, cpu) {
					h.cpus[n.ID] = append(h.cpus[n.ID], cpu)
				}
			}
			if len(h.cpus[n.ID]) > 0 {
				h.nodes = append(h.nodes, n.ID)
			}
			if t.HasMemory(n) && slices.Contains(t.Limits.Nodes, n.ID) {
				h.memory = append(h.memory, n.ID)
			}
		}
	}
	if len(h.nodes) == 0 || len(h.memory) == 0 {
		return memHost{cpus: map[int][]int{0: used}, nodes: []int{0}, memory: []int{0}}
	}
	return h
}

// memPolicies returns the NUMA policies that the user asked for, or those that are worth measuring.
func (h *memHost) memPolicies(asked []string) (list []shm.Policy, err error) {
	if len(asked) == 0 {
		asked = []string{bench.FirstTouch, "bind"}
		if len(h.memory) > 1 {
			asked = append(asked, "interleave", "weighted-interleave")
		}
	}
	for _, text := range asked {
		name, nodes, given := strings.Cut(text, ":")
		if is, ok := bench.MemNames[name]; ok {
			name = is
		}
		each := []string{name}
		switch {
		case given:
			each = []string{name + ":" + nodes}
		case name == "bind" || name == "preferred": // each node in turn
			each = nil
			for _, node := range h.memory {
				each = append(each, fmt.Sprintf("%s:%d", name, node))
			}
		case name != "default" && name != "local": // all nodes
			each = []string{name + ":" + strings.Trim(strings.ReplaceAll(fmt.Sprint(h.memory), " ", ","), "[]")}
		}
		for _, one := range each {
			p, err := shm.ParsePolicy(one)
			if err != nil {
				return nil, fmt.Errorf("--mem %q: %w", text, err)
			}
			for _, node := range p.Nodes {
				if !slices.Contains(h.memory, node) {
					return nil, fmt.Errorf("--mem %q: no node %d with memory here (nodes with memory: %s)", text, node, place.JoinInts(h.memory))
				}
			}
			list = append(list, p)
		}
	}
	return list, nil
}

// mostMemory is the largest number of nodes with memory for which a brief plan measures every node. If there are more,
// briefPolicies chooses some of the nodes.
const mostMemory = 4

// briefPolicies selects the NUMA policies of a brief plan. If more than mostMemory nodes have memory, it drops most
// policies that bind memory to a single node. It keeps the policies for these nodes: nodes with CPUs of the plan, nodes
// without CPUs, and one node for each distance from the first node of the plan.
func (h *memHost) briefPolicies(t *topology.Topology, nodes []int, policies []shm.Policy) []shm.Policy {
	if t == nil || len(h.memory) <= mostMemory {
		return policies
	}
	keep := map[int]bool{}
	seen := map[int]bool{}
	for _, node := range h.memory {
		d := t.Distance(nodes[0], node)
		n, _ := t.Node(node)
		keep[node] = slices.Contains(nodes, node) || !seen[d] || len(n.CPUs) == 0
		seen[d] = true
	}
	return slices.DeleteFunc(policies, func(p shm.Policy) bool { return p.Mode == shm.PolicyBind && !keep[p.Nodes[0]] })
}

// mostMemShapes is the largest number of combinations of CPU, memory and page size that a long suite measures in full.
// The suite has about ten minutes for them, and a combination takes a third of a second in each of twelve rounds.
const mostMemShapes = 60

// evenly returns n elements of a list: the first, the last, and others at equal distances between these.
func evenly(list []int, n int) []int {
	if len(list) <= n {
		return list
	}
	taken := make([]int, n)
	for i := range taken {
		taken[i] = list[i*(len(list)-1)/(n-1)]
	}
	return taken
}

// memShapes returns all combinations of the parameters of mem measurements.
func memShapes(o *Options) (list []*bench.MemShape, err error) {
	h := memHostOf(o.Topology, o.CPUs)
	policies, err := h.memPolicies(o.Mem)
	if err != nil {
		return nil, err
	}
	nodes := h.nodes
	if o.Brief && len(nodes) > 4 {
		nodes = []int{nodes[0], nodes[len(nodes)-1]}
	}
	if o.Brief && len(o.Mem) == 0 {
		policies = h.briefPolicies(o.Topology, nodes, policies)
	}
	for _, node := range o.Nodes {
		if len(h.cpus[node]) == 0 {
			return nil, fmt.Errorf("--nodes %d: none of its CPUs is used here (nodes with such: %s)", node, place.JoinInts(h.nodes))
		}
	}
	huge := []string{"none", "thp", "2M"}
	if o.Brief {
		huge = []string{"none"}
	}
	o.MemNote = ""
	few := o.Suite && !o.Brief && len(o.Nodes) == 0 && len(nodes)*len(policies)*len(huge) > mostMemShapes
	if few {
		all := len(nodes)
		nodes = evenly(nodes, mostMemory)
		if len(o.Mem) == 0 {
			policies = h.briefPolicies(o.Topology, nodes, policies)
		}
		o.MemNote = fmt.Sprintf("mem: CPUs of %d of %d nodes, memory of those nodes and of one at each distance, other pages with first touch only; "+
			"shmbench mem --nodes LIST takes others", len(nodes), all)
	}
	for _, node := range bench.Or(o.Nodes, nodes...) {
		for _, p := range policies {
			for i, name := range bench.Or(o.Huge, huge...) {
				if few && len(o.Huge) == 0 && i > 0 && p.Mode != shm.PolicyDefault {
					continue
				}
				kind, ok := bench.HugeByName[name]
				if !ok {
					return nil, fmt.Errorf("--huge %q: want none, thp, 2M or 1G", name)
				}
				list = append(list, &bench.MemShape{Policy: p, Huge: kind, Node: node, CPU: h.cpus[node][0]})
			}
		}
	}
	return list, nil
}

// A mem cell reads an amount of memory, in MiB, that is memCaches times the largest cache, but within these limits.
const (
	memLeast, memMost           = 64, 512
	memLeastBrief, memMostBrief = 32, 64
	memCaches                   = 4
	memMostAsked                = 64 << 10
)

// memSize returns how much memory a mem measurement reads on this host, in MiB.
func memSize(o *Options) int {
	if o.MiB != 0 {
		return o.MiB
	}
	mib := memCaches * int(lastCache(o.Topology)>>20)
	if o.Brief {
		return min(max(mib, memLeastBrief), memMostBrief)
	}
	return min(max(mib, memLeast), memMost)
}

// lastCache returns the size of the largest cache of a host in bytes, or 0 if it is not known.
func lastCache(t *topology.Topology) (largest int64) {
	if t == nil {
		return 0
	}
	for _, c := range t.LLCs {
		largest = max(largest, c.Bytes)
	}
	return largest
}
