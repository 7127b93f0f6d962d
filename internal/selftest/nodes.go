//go:build linux

package selftest

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/shmsync/shmsync/internal/bench/host"
	"github.com/shmsync/shmsync/internal/bench/place"
)

// numaNode is a NUMA node, with the CPUs that this process may use.
type numaNode struct {
	ID     int
	CPUs   []int // the CPUs of the node that this process may use
	Memory bool
}

// String returns the node's number, its CPUs if it has any, and whether it lacks memory.
func (n numaNode) String() string {
	s := fmt.Sprintf("node %d: ", n.ID)
	if len(n.CPUs) > 0 {
		s += "CPUs " + place.JoinInts(n.CPUs)
	} else {
		s += "no CPUs"
	}
	if !n.Memory {
		s += ", no memory"
	}
	return s
}

// readNodes returns the online NUMA nodes that a sysfs describes. For a kernel without NUMA, it returns one node with
// all CPUs.
func readNodes(sysfs string) ([]numaNode, error) {
	allowed, err := place.AllowedCPUs()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(sysfs, "devices/system/node")
	online, err := host.ReadCPUList(filepath.Join(dir, "online"))
	if errors.Is(err, fs.ErrNotExist) {
		return []numaNode{{CPUs: allowed, Memory: true}}, nil
	}
	if err != nil {
		return nil, err
	}
	memory, err := host.ReadCPUList(filepath.Join(dir, "has_memory"))
	if errors.Is(err, fs.ErrNotExist) {
		memory, err = host.ReadCPUList(filepath.Join(dir, "has_normal_memory"))
	}
	if err != nil {
		return nil, err
	}
	var nodes []numaNode
	for _, id := range online {
		cpus, err := host.ReadCPUList(filepath.Join(dir, "node"+strconv.Itoa(id), "cpulist"))
		if err != nil {
			return nil, err
		}
		n := numaNode{ID: id, Memory: slices.Contains(memory, id)}
		for _, cpu := range cpus {
			if slices.Contains(allowed, cpu) {
				n.CPUs = append(n.CPUs, cpu)
			}
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// withMemory returns the nodes that have memory.
func (t *selftester) withMemory() (ids []int) {
	for _, n := range t.nodes {
		if n.Memory {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

// cpus returns one CPU of each node that has CPUs. If only one node has CPUs, and this process may use several of
// them, it returns two.
func (t *selftester) cpus() (list []int) {
	for _, n := range t.nodes {
		if len(n.CPUs) > 0 {
			list = append(list, n.CPUs[0])
		}
	}
	if len(list) > 1 {
		return list
	}
	for _, n := range t.nodes {
		list = append(list, n.CPUs...)
	}
	list = slices.Compact(list)
	return list[:min(len(list), 2)]
}
