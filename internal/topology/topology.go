// Package topology reads what Linux reports about the CPUs, caches and memory of a host: of this host, or of another
// one whose files were recorded.
package topology

import (
	"cmp"
	"slices"
)

// Topology has the CPUs, caches and NUMA nodes of a host. It also says which of them this process may use.
type Topology struct {
	Model  string `json:"model,omitempty"`
	Kernel string `json:"kernel,omitempty"`

	CPUs    []CPU  `json:"cpus"`              // online, ascending
	Offline []int  `json:"offline,omitempty"` // CPUs that exist and are offline
	LLCs    []LLC  `json:"llcs"`              // in the order of their first CPUs
	Nodes   []Node `json:"nodes"`             // online, ascending

	Limits   Limits   `json:"limits"`
	Settings Settings `json:"settings"`
	Notes    []string `json:"notes,omitempty"` // facts that the host does not report, and what is assumed instead
}

// CPU is a hardware thread.
type CPU struct {
	ID      int `json:"id"`
	Package int `json:"package"`
	Die     int `json:"die"`    // within the package
	Core    int `json:"core"`   // numbered over the whole host
	Thread  int `json:"thread"` // within the core
	LLC     int `json:"llc"`    // index in LLCs
	Node    int `json:"node"`   // number of its node

	// Module is the number of a group of cores that share a cache below the last level. The groups are numbered over
	// the whole host, from 1. Module is 0 if the CPU is in no such group.
	Module   int    `json:"module,omitempty"`
	Kind     string `json:"kind,omitempty"` // Fast or Slow if the CPUs of the host differ; otherwise empty
	Capacity int    `json:"capacity,omitempty"`
	MaxMHz   int    `json:"max_mhz,omitempty"`
}

// Kinds of CPUs.
const (
	Fast = "P" // for a CPU that is not Slow
	Slow = "E" // for a CPU with much less capacity, or a much lower frequency, than the best CPU; see kindsOfCPU
)

// LLC is a last-level cache that some CPUs share.
type LLC struct {
	Level int   `json:"level"` // 0 if the host does not say
	Bytes int64 `json:"bytes"`
	CPUs  []int `json:"cpus"`
}

// Node is a NUMA node. It may lack CPUs, or memory.
type Node struct {
	ID        int        `json:"id"`
	CPUs      []int      `json:"cpus"`
	Bytes     int64      `json:"bytes"` // bytes of memory
	Free      int64      `json:"free"`
	Distance  []int      `json:"distance"` // distance to each of Nodes, from the SLIT of the firmware
	HugePages []HugePool `json:"huge_pages,omitempty"`
	Access    *Access    `json:"access,omitempty"` // from the HMAT
	Weight    int        `json:"weight,omitempty"` // weight for weighted interleaving
}

// HugePool counts the huge pages of one size.
type HugePool struct {
	Bytes int64 `json:"bytes"` // bytes of a page
	Total int   `json:"total"`
	Free  int   `json:"free"`
}

// Access has what the firmware reports about a node's memory, as seen from the nearest CPUs. A field that is 0 is not
// known.
type Access struct {
	Initiators                    []int `json:"initiators,omitempty"` // the nodes of the nearest CPUs
	ReadLatency, WriteLatency     int   // ns
	ReadBandwidth, WriteBandwidth int   // MB/s
}

// Limits say which resources this process may use.
type Limits struct {
	CPUs   []int   `json:"cpus"`             // CPUs that the affinity and the cpuset allow
	Nodes  []int   `json:"nodes"`            // by cpuset.mems
	Quota  float64 `json:"quota,omitempty"`  // CPU time in CPUs, by the cgroup; 0 for no limit
	Memory int64   `json:"memory,omitempty"` // bytes, by the cgroup; 0 for no limit
	Pids   int64   `json:"pids,omitempty"`   // processes and threads, by the cgroup; 0 for no limit
	Filter bool    `json:"filter,omitempty"` // a seccomp filter is active
}

// Settings are the kernel's settings that concern placement.
type Settings struct {
	Isolated      []int  `json:"isolated,omitempty"`
	NoHz          []int  `json:"nohz_full,omitempty"`
	THP           string `json:"thp,omitempty"`       // for anonymous memory
	ShmemTHP      string `json:"shmem_thp,omitempty"` // for memfd and for shared anonymous memory
	NUMABalancing bool   `json:"numa_balancing"`
	Governor      string `json:"governor,omitempty"` // frequency governor of the first CPU
}

// CPU returns the CPU with a number. It returns false if that CPU is not online.
func (t *Topology) CPU(id int) (CPU, bool) {
	i, ok := slices.BinarySearchFunc(t.CPUs, id, func(c CPU, id int) int { return cmp.Compare(c.ID, id) })
	if !ok {
		return CPU{}, false
	}
	return t.CPUs[i], true
}

// Node returns the node with a number. It returns false if there is no such node.
func (t *Topology) Node(id int) (Node, bool) {
	i, ok := slices.BinarySearchFunc(t.Nodes, id, func(n Node, id int) int { return cmp.Compare(n.ID, id) })
	if !ok {
		return Node{}, false
	}
	return t.Nodes[i], true
}

// IDs returns the numbers of all CPUs.
func (t *Topology) IDs() []int {
	ids := make([]int, len(t.CPUs))
	for i, c := range t.CPUs {
		ids[i] = c.ID
	}
	return ids
}

// NodeIDs returns the numbers of all nodes.
func (t *Topology) NodeIDs() []int {
	ids := make([]int, len(t.Nodes))
	for i, n := range t.Nodes {
		ids[i] = n.ID
	}
	return ids
}

// Groups splits CPUs into groups. Two CPUs are in one group if the parameter key returns the same number for both. The
// groups are in the order of their first CPUs. CPUs that are not online are omitted.
func (t *Topology) Groups(cpus []int, key func(CPU) int) (groups [][]int) {
	at := map[int]int{}
	for _, id := range cpus {
		c, ok := t.CPU(id)
		if !ok {
			continue
		}
		i, ok := at[key(c)]
		if !ok {
			i = len(groups)
			at[key(c)] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], id)
	}
	return groups
}

// Functions for the parameter key of Groups.
var (
	ByPackage = func(c CPU) int { return c.Package }
	ByNode    = func(c CPU) int { return c.Node }
	ByLLC     = func(c CPU) int { return c.LLC }
	ByCore    = func(c CPU) int { return c.Core }
	ByID      = func(c CPU) int { return c.ID }
	ByModule  = func(c CPU) int { return c.Module }
)

// Near sorts CPUs so that neighbours in the list are near each other: by package, node, last-level cache, core and
// number.
func (t *Topology) Near(cpus []int) []int {
	list := slices.DeleteFunc(slices.Clone(cpus), func(id int) bool { _, ok := t.CPU(id); return !ok })
	slices.SortFunc(list, func(a, b int) int {
		x, _ := t.CPU(a)
		y, _ := t.CPU(b)
		return cmp.Or(cmp.Compare(x.Package, y.Package), cmp.Compare(x.Node, y.Node), cmp.Compare(x.LLC, y.LLC),
			cmp.Compare(x.Core, y.Core), cmp.Compare(x.ID, y.ID))
	})
	return list
}

// HasMemory reports whether a node has memory. The only node of a host is assumed to have memory.
func (t *Topology) HasMemory(n Node) bool { return n.Bytes > 0 || len(t.Nodes) == 1 }

// Nearest returns the node with memory that is nearest to the node with the number id, by the reported distances. If
// a CPU of node id is the first to touch a page, the kernel takes the page from that nearest node. Nearest returns -1
// if no node has memory.
func (t *Topology) Nearest(id int) int {
	best, least := -1, 0
	n, ok := t.Node(id)
	for i, m := range t.Nodes {
		if !ok || !t.HasMemory(m) || i >= len(n.Distance) {
			continue
		}
		if d := n.Distance[i]; best < 0 || d < least {
			best, least = m.ID, d
		}
	}
	return best
}
