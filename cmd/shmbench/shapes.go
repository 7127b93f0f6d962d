//go:build linux

package main

import "time"

// some gives what a suite looks at where a scenario of its own looks at more.
func (o *options) some(brief, full []int) []int {
	if o.Brief {
		return brief
	}
	return full
}

// places are those of a handoff.
func (o *options) places() []string {
	if o.Brief {
		return []string{placeSame, placeCross}
	}
	return []string{placeSame, placeCross, placeAny}
}

// fewRounds is how many rounds a cell with a gap has time for at least.
const fewRounds = 60

// rounds gives the least time of a cell whose rounds wake somebody after a gap.
func (o *options) rounds(wake int) time.Duration {
	if wake == 0 {
		return 0
	}
	return fewRounds * o.Gap
}

// shapes multiplies the lists that only one scenario has.
func shapes(sc *scenario, o *options) []cell {
	cells := []cell{{}}
	times := func(list []int, set func(*cell, int)) {
		var more []cell
		for _, c := range cells {
			for _, v := range list {
				set(&c, v)
				more = append(more, c)
			}
		}
		cells = more
	}
	worked := func(cs, think time.Duration) {
		var more []cell
		for _, c := range cells {
			for _, c.CS = range or(o.CS, cs) {
				for _, c.Think = range or(o.Think, think) {
					more = append(more, c)
				}
			}
		}
		cells = more
	}
	switch sc.name {
	case "rw":
		times(or(o.Read, o.some([]int{90}, []int{50, 90, 99})...), func(c *cell, v int) { c.Read = uint64(v) })
		worked(100, 100)
	case "sem":
		times(or(o.Permits, o.some([]int{2}, []int{1, 2, 4})...), func(c *cell, v int) { c.Permits = uint64(v) })
		worked(100, 100)
	case "multi":
		times(or(o.Keys, o.some([]int{64}, []int{1, 16, 1024})...), func(c *cell, v int) { c.Keys = uint64(v) })
		times(or(o.Locks, o.some([]int{1}, []int{1, 2})...), func(c *cell, v int) { c.Locks = uint64(v) })
		worked(100, 100)
		var more []cell
		for _, c := range cells {
			for _, c.Skew = range or(o.Skew, skewUniform) {
				more = append(more, c)
			}
		}
		cells = more
	case "barrier":
		var more []cell
		for _, c := range cells {
			for _, c.CS = range or(o.CS, 0) {
				more = append(more, c)
			}
		}
		cells = more
	case "event":
		for i := range cells {
			cells[i].Gap, cells[i].Time = o.Gap, o.rounds(1)
		}
	case "queue", "cond":
		times(or(o.Capacity, o.some([]int{64}, []int{16, 256})...), func(c *cell, v int) { c.Capacity = uint64(v) })
		batches := []int{1}
		if sc.name == "queue" {
			batches = or(o.Batch, o.some([]int{1}, []int{1, 16})...)
		}
		times(batches, func(c *cell, v int) { c.Batch = uint64(v) })
	}
	return cells
}
