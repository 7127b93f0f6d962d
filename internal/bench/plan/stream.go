//go:build linux

package plan

import (
	"fmt"
	"slices"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/internal/topology"
	"github.com/shmsync/shmsync/shm"
)

// These constants limit the memory of a stream measurement, in MiB, and the number of its streaming threads.
const (
	mostChain    = 128     // MiB of the chain of loads, at most
	leastPart    = 8       // MiB of each streaming thread, at least
	mostPart     = 32      //
	mostStreamed = 2 << 10 // MiB of the whole cell, at most
	mostStreams  = 255
)

// streamHost has the facts about a host that stream measurements need, in addition to memHost. The field cores has the
// first CPU of each core, by NUMA node. The field node is the NUMA node whose memory is under load.
type streamHost struct {
	memHost
	t     *topology.Topology
	cores map[int][]int
	node  int
}

func streamHostOf(o *Options) streamHost {
	h := streamHost{memHost: memHostOf(o.Topology, o.CPUs), t: o.Topology, cores: map[int][]int{}}
	for _, node := range h.nodes {
		h.cores[node] = h.cpus[node]
		if h.t != nil {
			var first []int
			for _, core := range h.t.Groups(h.cpus[node], topology.ByCore) {
				first = append(first, core[0])
			}
			h.cores[node] = bench.Or(first, h.cpus[node]...)
		}
	}
	h.node = h.nodes[0]
	for _, node := range h.nodes {
		if slices.Contains(h.memory, node) && (len(h.cores[node]) > len(h.cores[h.node]) || !slices.Contains(h.memory, h.node)) {
			h.node = node
		}
	}
	return h
}

// near returns CPUs of the node whose memory is under load, one for each core. If the node has only one core, near
// returns all CPUs of that core. If the core has only one CPU, near returns the CPUs of all nodes.
func (h *streamHost) near() []int {
	for _, list := range [][]int{h.cores[h.node], h.cpus[h.node]} {
		if len(list) > 1 {
			return list
		}
	}
	return h.all()
}

// all returns the first CPU of each core of all nodes. The CPUs of the node whose memory is under load come first.
func (h *streamHost) all() []int {
	list := slices.Clone(h.cores[h.node])
	for _, node := range h.nodes {
		if node != h.node {
			list = append(list, h.cores[node]...)
		}
	}
	return list
}

// shape returns where the threads of a measurement run and where their memory lies. The parameter cpus has the CPUs of
// the threads. The parameter data is one of bench.DataNames.
func (h *streamHost) shape(data string, cpus []int) *bench.StreamShape {
	s := &bench.StreamShape{Data: data, CPUs: cpus, Policy: shm.Policy{Mode: shm.PolicyLocal}}
	for _, id := range cpus {
		node := h.node
		if h.t != nil {
			if cpu, ok := h.t.CPU(id); ok {
				if node = h.t.Nearest(cpu.Node); node < 0 { // the host does not say which nodes have memory
					node = cpu.Node
				}
			}
		}
		s.Nodes = append(s.Nodes, node)
	}
	one := h.node
	if !slices.Contains(h.memory, one) { // no node with CPUs of the run has memory
		one = h.memory[0]
	}
	far, most := -1, -1
	for _, node := range h.memory {
		if d := h.distance(node); node != one && d > most {
			far, most = node, d
		}
	}
	switch {
	case data == bench.DataOwn:
	case far < 0:
		s.Missing = "no other node has memory to use"
	case data == bench.DataOne:
		s.Policy = shm.Policy{Mode: shm.PolicyBind, Nodes: []int{one}}
	case data == bench.DataFar:
		s.Policy = shm.Policy{Mode: shm.PolicyBind, Nodes: []int{far}}
	default:
		s.Policy = shm.Policy{Mode: shm.PolicyInterleave, Nodes: h.memory}
	}
	return s
}

func (h *streamHost) distance(node int) int {
	if h.t == nil {
		return 0
	}
	return h.t.Distance(h.node, node)
}

// streamCells returns cells in which several cores read memory as fast as they can, while one thread measures single
// loads.
func streamCells(o *Options) (cells []bench.Cell) {
	h := streamHostOf(o)
	near := h.near()
	type point struct {
		data                string
		duty, read, streams int
	}
	seen := map[point]bool{} // to skip repeated cells: h.near() and h.all() may return the same CPUs
	add := func(data string, duty, read, streams int) {
		cpus := near
		if streams >= len(near) {
			cpus = h.all()
		}
		streams = min(streams, o.busiest(len(cpus))-1, mostStreams)
		this := point{data, duty, read, streams}
		if seen[this] {
			return
		}
		seen[this] = true
		c := bench.Cell{Place: bench.PlaceCross, Procs: 1, Threads: 1 + streams, Time: memLeastTime,
			Stream: h.shape(data, cpus[:1+streams]), Shape: control.Shape{Duty: uint64(duty), Read: uint64(read)}}
		c.N, c.Part = o.streamSizes(streams)
		cells = append(cells, c)
	}
	full := len(near) - 1
	if len(o.Data)+len(o.Duty)+len(o.Read)+len(o.Streams) > 0 {
		for _, data := range bench.Or(o.Data, bench.DataOwn) {
			for _, duty := range bench.Or(o.Duty, 100) {
				for _, read := range bench.Or(o.Read, 100) {
					for _, streams := range bench.Or(o.Streams, full) {
						add(data, duty, read, streams)
					}
				}
			}
		}
		return cells
	}
	add(bench.DataOwn, 100, 100, 0)
	for n := 1; n < full; n *= 2 {
		if n == 1 || !o.Suite {
			add(bench.DataOwn, 100, 100, n)
		}
	}
	for _, duty := range []int{25, 50, 100} {
		add(bench.DataOwn, duty, 100, full)
	}
	add(bench.DataOwn, 100, 67, full)
	if len(h.memory) > 1 {
		add(bench.DataFar, 100, 100, full)
		for _, data := range []string{bench.DataOwn, bench.DataOne, bench.DataSpread} {
			add(data, 100, 100, len(h.all())-1)
		}
	}
	return cells
}

// streamSizes returns the size of the chain of loads in MiB, and the bytes that each streaming thread uses. Both sizes
// are larger than the caches if possible. Together they use at most a quarter of the memory that the cgroup may use.
func (o *Options) streamSizes(streams int) (chain int, part uint64) {
	all := mostStreamed
	share := leastPart
	if t := o.Topology; t != nil {
		if t.Limits.Memory > 0 {
			all = min(all, int(t.Limits.Memory>>22))
		}
		if len(t.LLCs) > 0 && len(t.CPUs) > 0 {
			share = 2 * int(lastCache(t)>>20) * len(t.LLCs) / len(t.CPUs)
		}
	}
	chain = min(memSize(o), mostChain)
	mib := min(max(share, leastPart), mostPart)
	if o.MiB > 0 {
		chain, mib = o.MiB, o.MiB
	}
	chain = max(min(chain, all/2), 1)
	return chain, uint64(max(min(mib, all/2/max(streams, 1)), 1)) << 20
}

// checkStream refuses invalid parameters of stream measurements.
func (o *Options) checkStream() error {
	for _, data := range o.Data {
		if !slices.Contains(bench.DataNames, data) {
			return fmt.Errorf("--data %q: want own, one, far or spread", data)
		}
	}
	for _, v := range o.Duty {
		if v < 1 || v > 100 {
			return fmt.Errorf("--duty: %d is not within 1 and 100", v)
		}
	}
	for _, v := range o.Streams {
		if v < 0 || v > mostStreams {
			return fmt.Errorf("--streams: %d is not within 0 and %d", v, mostStreams)
		}
	}
	return nil
}
