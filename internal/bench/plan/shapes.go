//go:build linux

package plan

import (
	"time"

	"github.com/shmsync/shmsync/internal/bench"
)

// some chooses between two lists of values for a parameter of a measurement. It returns its first argument for a brief
// plan, and its second argument otherwise. In a brief plan, a parameter has fewer values.
func (o *Options) some(brief, full []int) []int {
	if o.Brief {
		return brief
	}
	return full
}

// places returns the default placements of a handoff measurement.
func (o *Options) places() []string {
	if o.Brief {
		return []string{bench.PlaceSame, o.apart()}
	}
	return []string{bench.PlaceSame, o.apart(), bench.PlaceAny}
}

// crashPlaces returns the default placements of a crash measurement.
func (o *Options) crashPlaces() []string {
	if o.Brief {
		return []string{o.apart()}
	}
	return []string{bench.PlaceSame, o.apart()}
}

// fewRounds is the least number of wakes that a cell measures if it pauses before each wake.
const fewRounds = 60

// rounds returns the least time for which a measurement must run if it wakes threads after a pause. It returns 0 if the
// measurement wakes no thread.
func (o *Options) rounds(wake int) time.Duration {
	if wake == 0 {
		return 0
	}
	return fewRounds * o.Gap
}

// shapes returns all combinations of those parameters that only some scenarios have.
func shapes(sc *bench.Scenario, o *Options) []bench.Cell {
	cells := []bench.Cell{{}}
	times := func(list []int, set func(*bench.Cell, int)) {
		var more []bench.Cell
		for _, c := range cells {
			for _, v := range list {
				set(&c, v)
				more = append(more, c)
			}
		}
		cells = more
	}
	worked := func(cs, think time.Duration) {
		var more []bench.Cell
		for _, c := range cells {
			for _, c.CS = range bench.Or(o.CS, cs) {
				for _, c.Think = range bench.Or(o.Think, think) {
					more = append(more, c)
				}
			}
		}
		cells = more
	}
	switch sc.Name {
	case "rw":
		times(bench.Or(o.Read, o.some([]int{90}, []int{50, 90, 99})...), func(c *bench.Cell, v int) { c.Read = uint64(v) })
		worked(100, 100)
	case "sem":
		times(bench.Or(o.Permits, o.some([]int{2}, []int{1, 2, 4})...), func(c *bench.Cell, v int) { c.Permits = uint64(v) })
		worked(100, 100)
	case "multi":
		times(bench.Or(o.Keys, o.some([]int{64}, []int{1, 16, 1024})...), func(c *bench.Cell, v int) { c.Keys = uint64(v) })
		times(bench.Or(o.Locks, o.some([]int{1}, []int{1, 2})...), func(c *bench.Cell, v int) { c.Locks = uint64(v) })
		worked(100, 100)
		var more []bench.Cell
		for _, c := range cells {
			for _, c.Skew = range bench.Or(o.Skew, bench.SkewUniform) {
				more = append(more, c)
			}
		}
		cells = more
	case "barrier":
		var more []bench.Cell
		for _, c := range cells {
			for _, c.CS = range bench.Or(o.CS, 0) {
				more = append(more, c)
			}
		}
		cells = more
	case "event":
		for i := range cells {
			cells[i].Gap, cells[i].Time = o.Gap, o.rounds(1)
		}
	case "queue", "cond":
		times(bench.Or(o.Capacity, o.some([]int{64}, []int{16, 256})...), func(c *bench.Cell, v int) { c.Capacity = uint64(v) })
		batches := []int{1}
		if sc.Name == "queue" {
			batches = bench.Or(o.Batch, o.some([]int{1}, []int{1, 16})...)
		}
		times(batches, func(c *bench.Cell, v int) { c.Batch = uint64(v) })
	}
	return cells
}
