//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// numaNode is a NUMA node as this process sees it.
type numaNode struct {
	ID     int
	CPUs   []int // those of it that this process may use
	Memory bool
}

// String tells the node's CPUs, or that it has none, and if it has no memory.
func (n numaNode) String() string {
	s := fmt.Sprintf("node %d: ", n.ID)
	if len(n.CPUs) > 0 {
		s += "CPUs " + joinInts(n.CPUs)
	} else {
		s += "no CPUs"
	}
	if !n.Memory {
		s += ", no memory"
	}
	return s
}

// readNodes lists the online nodes below a sysfs. A kernel without NUMA has one, with
// everything.
func readNodes(sysfs string) ([]numaNode, error) {
	allowed, err := allowedCPUs()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(sysfs, "devices/system/node")
	online, err := readCPUList(filepath.Join(dir, "online"))
	if errors.Is(err, fs.ErrNotExist) {
		return []numaNode{{CPUs: allowed, Memory: true}}, nil
	}
	if err != nil {
		return nil, err
	}
	memory, err := readCPUList(filepath.Join(dir, "has_memory"))
	if errors.Is(err, fs.ErrNotExist) {
		memory, err = readCPUList(filepath.Join(dir, "has_normal_memory"))
	}
	if err != nil {
		return nil, err
	}
	var nodes []numaNode
	for _, id := range online {
		cpus, err := readCPUList(filepath.Join(dir, "node"+strconv.Itoa(id), "cpulist"))
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

// readCPUList reads a list of the kernel's, such as 0-3,8; it may be empty.
func readCPUList(name string) ([]int, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	text := strings.TrimSpace(string(b))
	if text == "" {
		return nil, nil
	}
	list, err := parseInts(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return list, nil
}

// withMemory lists the nodes that have some.
func (t *selftester) withMemory() (ids []int) {
	for _, n := range t.nodes {
		if n.Memory {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

// cpus gives a CPU of each node that has some, at least two where there are two.
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
