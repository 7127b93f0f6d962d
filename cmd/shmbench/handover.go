//go:build linux

package main

import (
	"path/filepath"
	"slices"
	"strconv"
	"sync"
)

// Where a lock came from when it was taken: the same thread again, another thread of the
// same CPU, another CPU with the same last cache, another one of the same node, or of
// another node. Threads that are not pinned are in one place only as far as they are the
// same thread.
var handoverKinds = []string{"from-self", "from-cpu", "from-cache", "from-node", "from-far", "from-other"}

const (
	fromSelf = iota
	fromCPU
	fromCache
	fromNode
	fromFar
	fromOther // not pinned
)

// cpuPlace is what a CPU shares with others: the first CPU of its last cache, and its node.
type cpuPlace struct{ cache, node int }

// handoverOf classifies a hand-over between the CPUs of two slots.
func handoverOf(from, to int32, same bool, places map[int]cpuPlace) int {
	a, b := places[int(from)], places[int(to)]
	switch {
	case same:
		return fromSelf
	case from < 0 || to < 0:
		return fromOther
	case from == to:
		return fromCPU
	case a.cache == b.cache:
		return fromCache
	case a.node == b.node:
		return fromNode
	}
	return fromFar
}

// handovers gives the shares of the kinds among all acquisitions of a lock.
func (rep *repetition) handovers(p *page, places map[int]cpuPlace) {
	var counts [len("123456")]uint64
	var total uint64
	for to := range p.slots() {
		s, _ := p.slot(to)
		for from := range min(p.slots(), slotFrom) {
			n := s.from[from]
			if n == 0 {
				continue
			}
			other, _ := p.slot(from)
			counts[handoverOf(other.cpu, s.cpu, from == to, places)] += n
			total += n
		}
	}
	if total == 0 || p.slots() < 2 {
		return
	}
	for kind, n := range counts {
		if n > 0 {
			rep.Metrics[handoverKinds[kind]] = float64(n) / float64(total)
		}
	}
}

// hostPlaces are those of this host.
var hostPlaces = sync.OnceValue(func() map[int]cpuPlace { return readPlaces("/sys") })

// readPlaces reads what CPUs share, below a sysfs. What it does not say is taken to be
// shared by all.
func readPlaces(sysfs string) map[int]cpuPlace {
	places := map[int]cpuPlace{}
	dirs, err := filepath.Glob(filepath.Join(sysfs, "devices/system/cpu/cpu[0-9]*"))
	if err != nil {
		return places
	}
	for _, dir := range dirs {
		cpu, err := strconv.Atoi(filepath.Base(dir)[len("cpu"):])
		if err != nil {
			continue
		}
		var p cpuPlace
		deepest := -1
		caches, _ := filepath.Glob(filepath.Join(dir, "cache/index[0-9]*"))
		for _, c := range caches {
			level, err := strconv.Atoi(readLine(filepath.Join(c, "level")))
			if err != nil || level <= deepest {
				continue
			}
			if shared, err := readCPUList(filepath.Join(c, "shared_cpu_list")); err == nil && len(shared) > 0 {
				deepest, p.cache = level, slices.Min(shared)
			}
		}
		nodes, _ := filepath.Glob(filepath.Join(dir, "node[0-9]*"))
		for _, n := range nodes {
			if id, err := strconv.Atoi(filepath.Base(n)[len("node"):]); err == nil {
				p.node = id
			}
		}
		places[cpu] = p
	}
	return places
}
