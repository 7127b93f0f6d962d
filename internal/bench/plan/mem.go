//go:build linux

package plan

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/host"
	"github.com/shmsync/shmsync/internal/bench/place"
	"github.com/shmsync/shmsync/shm"
)

// memLeastTime is how long a mem cell measures at least: a few times through the
// memory, on a slow machine.
const memLeastTime = 60 * time.Millisecond

// sysNodes is where the system describes its NUMA nodes. Tests have another.
var sysNodes = "/sys/devices/system/node"

// memHost is what mem cells need to know of this host.
type memHost struct {
	cpus   map[int][]int // by node, of those that are used
	nodes  []int         // with CPUs that are used, ascending
	memory []int         // with memory, ascending
}

// readMemHost describes this host, as one node if it does not describe itself.
func readMemHost(used []int) memHost {
	h := memHost{cpus: map[int][]int{}}
	list := func(file string) []int {
		all, err := parseCPUList(host.ReadLine(file))
		if err != nil {
			return nil
		}
		return all
	}
	for _, node := range list(sysNodes + "/online") {
		for _, cpu := range list(fmt.Sprintf("%s/node%d/cpulist", sysNodes, node)) {
			if slices.Contains(used, cpu) {
				h.cpus[node] = append(h.cpus[node], cpu)
			}
		}
		if len(h.cpus[node]) > 0 {
			h.nodes = append(h.nodes, node)
		}
	}
	h.memory = list(sysNodes + "/has_memory")
	if len(h.nodes) == 0 || len(h.memory) == 0 {
		return memHost{cpus: map[int][]int{0: used}, nodes: []int{0}, memory: []int{0}}
	}
	return h
}

// parseCPUList reads the form in which the kernel lists CPUs and nodes: 0-3,8.
func parseCPUList(text string) ([]int, error) {
	if text == "" {
		return nil, nil
	}
	return place.ParseInts(text)
}

// memPolicies gives the policies that are asked for, or those that are worth a look.
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

// memShapes multiplies what mem cells differ in.
func memShapes(o *Options) (list []*bench.MemShape, err error) {
	h := readMemHost(o.CPUs)
	policies, err := h.memPolicies(o.Mem)
	if err != nil {
		return nil, err
	}
	nodes := h.nodes
	if o.Brief && len(nodes) > 4 {
		nodes = []int{nodes[0], nodes[len(nodes)-1]}
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
	for _, node := range bench.Or(o.Nodes, nodes...) {
		for _, p := range policies {
			for _, name := range bench.Or(o.Huge, huge...) {
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

// How much memory a mem cell goes through, in MiB: several times what caches hold.
const (
	memLeast, memMost           = 64, 512
	memLeastBrief, memMostBrief = 32, 64
	memCaches                   = 4
	memMostAsked                = 64 << 10
)

// memSize is how much that is here, in MiB.
func memSize(o *Options) int {
	if o.MiB != 0 {
		return o.MiB
	}
	mib := memCaches * int(lastCache()>>20)
	if o.Brief {
		return min(max(mib, memLeastBrief), memMostBrief)
	}
	return min(max(mib, memLeast), memMost)
}

// lastCache is the size of the largest cache of the first CPU, in bytes, 0 if it is
// not told.
var lastCache = sync.OnceValue(func() (largest int64) {
	files, _ := filepath.Glob("/sys/devices/system/cpu/cpu0/cache/index*/size")
	for _, f := range files {
		text := host.ReadLine(f)
		unit := int64(1)
		switch {
		case strings.HasSuffix(text, "K"):
			unit = 1 << 10
		case strings.HasSuffix(text, "M"):
			unit = 1 << 20
		}
		if n, err := strconv.ParseInt(strings.TrimRight(text, "KM"), 10, 64); err == nil && n < math.MaxInt64/unit {
			largest = max(largest, n*unit)
		}
	}
	return largest
})
