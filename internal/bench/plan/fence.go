//go:build linux

package plan

import (
	"time"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/topology"
)

// intruderGaps are two pauses after which an intruder, a second process, takes a biased lock again. One pause is
// shorter than the time after which the lock becomes biased again, and the other is longer.
var intruderGaps = []time.Duration{100 * time.Microsecond, time.Millisecond}

// intruderCells returns cells in which one process uses a lock all the time, and another process takes it now and
// then.
func intruderCells(o *Options) (cells []bench.Cell) {
	for _, gap := range bench.Or(o.Gaps, intruderGaps...) {
		for _, place := range bench.Or(o.Places, o.apart()) {
			cells = append(cells, bench.Cell{Place: place, Procs: 2, Threads: 1, Gap: gap, Time: fewRounds * gap})
		}
	}
	return cells
}

// fenceCells returns cells in which fences interrupt 1 to n busy CPUs.
func fenceCells(o *Options) (cells []bench.Cell) {
	shapes := [][2]int{{1, 1}, {2, 1}}
	place := bench.PlaceCross
	if o.Topology != nil {
		shapes, place = workerCounts(o.busiest(len(o.Topology.Groups(o.CPUs, topology.ByCore)))), bench.PlacePack
	}
	if len(o.Procs)+len(o.Threads) > 0 {
		shapes = nil
		for _, procs := range bench.Or(o.Procs, 1) {
			for _, threads := range bench.Or(o.Threads, 1) {
				shapes = append(shapes, [2]int{procs, threads})
			}
		}
	}
	for _, shape := range shapes {
		c := bench.Cell{Place: place, Procs: shape[0], Threads: shape[1]}
		if shape[0]*shape[1] == 1 {
			c.Place = bench.PlaceSame
		}
		cells = append(cells, c)
	}
	return cells
}
