//go:build linux

package load

import (
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/internal/bench/host"
)

// cpuPlace says what a CPU shares with other CPUs. The field cache is the number of the first CPU that uses the same
// last-level cache. The field node is the NUMA node.
type cpuPlace struct{ cache, node int }

// handoverOf returns the kind of a hand-over of a lock between two CPUs, as an index in bench.HandoverKinds. The
// parameter same is true if one thread had the lock before and after the hand-over.
func handoverOf(from, to int32, same bool, places map[int]cpuPlace) int {
	a, b := places[int(from)], places[int(to)]
	switch {
	case same:
		return bench.FromSelf
	case from < 0 || to < 0:
		return bench.FromOther
	case from == to:
		return bench.FromCPU
	case a.cache == b.cache:
		return bench.FromCache
	case a.node == b.node:
		return bench.FromNode
	}
	return bench.FromFar
}

// countHandovers computes the share of each kind of hand-over among all acquisitions of a lock.
func countHandovers(rep *bench.Repetition, p *control.Page, places map[int]cpuPlace) {
	var counts [len("123456")]uint64
	var total uint64
	for to := range p.Slots() {
		s, _ := p.Slot(to)
		for from := range min(p.Slots(), control.SlotFrom) {
			n := s.From[from]
			if n == 0 {
				continue
			}
			other, _ := p.Slot(from)
			counts[handoverOf(other.CPU, s.CPU, from == to, places)] += n
			total += n
		}
	}
	if total == 0 || p.Slots() < 2 {
		return
	}
	for kind, n := range counts {
		if n > 0 {
			rep.Metrics[bench.HandoverKinds[kind]] = float64(n) / float64(total)
		}
	}
}

// hostPlaces returns, for each CPU of this host, which cache and which NUMA node it shares with others.
var hostPlaces = sync.OnceValue(func() map[int]cpuPlace { return readPlaces("/sys") })

// readPlaces reads from the directory sysfs, such as /sys, which caches and NUMA nodes each CPU shares. If the
// directory does not say which CPUs share a cache or a node, readPlaces assumes that all CPUs share one.
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
			level, err := strconv.Atoi(host.ReadLine(filepath.Join(c, "level")))
			if err != nil || level <= deepest {
				continue
			}
			if shared, err := host.ReadCPUList(filepath.Join(c, "shared_cpu_list")); err == nil && len(shared) > 0 {
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
