//go:build linux

package plan

import (
	"time"

	"github.com/shmsync/shmsync/internal/bench"
)

// Defaults are what a command takes where the user says nothing.
type Defaults struct {
	Time, Warmup time.Duration
	Count, Kills int
}

// The defaults of a suite or a command.
var (
	quick    = Defaults{30 * time.Millisecond, 6 * time.Millisecond, 3, 4}
	Usual    = Defaults{300 * time.Millisecond, 50 * time.Millisecond, 5, 60}
	thorough = Defaults{2 * time.Second, 200 * time.Millisecond, 10, 100}
)

// hogCells are the suite's handoffs beside a busy loop: on one CPU, where it
// matters most, and for subjects that sleep.
func hogCells(o *Options) []*bench.Cell {
	h := *o
	h.Hogs, h.Places = []int{1}, []string{bench.PlaceSame}
	h.Prims = bench.Or(o.Prims, "c:futex", "c:futex-spin1000", "c:cond", "go:eventfd", "shmsync:futex", "shmsync:semaphore", "shmsync:event")
	cells, err := Cells(&h, "handoff")
	if err != nil {
		return nil // none of the asked subjects takes part
	}
	return cells
}

// Preset is how thorough a suite is.
type Preset struct {
	Defaults
	brief  bool          // few shapes
	few    bool          // few subjects
	budget time.Duration // what the plan is cut down to; 0: as long as it takes
	Limit  time.Duration // and when no more repetitions begin, should that take longer
	least  Defaults      // but not below this
	gaps   []time.Duration
}

// The suites, from the shortest to the most thorough.
var (
	QuickSuite = Preset{Defaults: quick, brief: true, few: true, budget: 54 * time.Second, Limit: 57 * time.Second,
		least: Defaults{Time: 10 * time.Millisecond, Warmup: 2 * time.Millisecond, Count: 2},
		gaps:  []time.Duration{0, 20 * time.Microsecond, 200 * time.Microsecond}}
	StdSuite = Preset{Defaults: Usual, few: true, budget: 9 * time.Minute, Limit: 9*time.Minute + 15*time.Second,
		least: Defaults{Time: 50 * time.Millisecond, Warmup: 10 * time.Millisecond, Count: 3},
		gaps:  []time.Duration{0, 20 * time.Microsecond, 200 * time.Microsecond, 5 * time.Millisecond}}
	FullSuite = Preset{Defaults: thorough,
		gaps: []time.Duration{0, 20 * time.Microsecond, 100 * time.Microsecond, 500 * time.Microsecond, 2 * time.Millisecond, 10 * time.Millisecond}}
)

// suiteCells is more than the suites have.
const suiteCells = 5000

// Plan gives the cells of a suite. Where the user says nothing about time, it fits them into
// the budget.
func (p Preset) Plan(o *Options, fit bool) ([]*bench.Cell, error) {
	o.Brief, o.Few, o.MaxCells = p.brief, p.few, max(o.MaxCells, suiteCells)
	cells, err := Cells(o, bench.ScenarioNames()...)
	if err != nil {
		return nil, err
	}
	if len(o.Hogs) == 0 {
		cells = append(cells, hogCells(o)...)
	}
	if len(o.Gaps) == 0 {
		cells = append(cells, gapCells(o, p.gaps)...)
	}
	if fit {
		p.fit(o, cells)
	}
	return cells, nil
}

// fit makes repetitions shorter, and then fewer, until the plan is within the budget.
func (p Preset) fit(o *Options, cells []*bench.Cell) {
	late := func() bool { return p.budget > 0 && ETA(Order(cells, o.Count, false, 0)) > p.budget }
	for late() && o.Time > p.least.Time {
		shorter := max(o.Time*9/10, p.least.Time)
		for _, c := range cells {
			if c.Time == o.Time {
				c.Time = shorter
			}
			c.Warmup = max(c.Warmup*9/10, p.least.Warmup)
		}
		o.Time, o.Warmup = shorter, max(o.Warmup*9/10, p.least.Warmup)
	}
	for late() && o.Count > p.least.Count {
		o.Count--
	}
}

// gapCells are a suite's wakes of peers that have slept for longer and longer: those of
// the kernel, from C and from Go, and the library's.
func gapCells(o *Options, gaps []time.Duration) []*bench.Cell {
	g := *o
	g.Gaps, g.Places = gaps, []string{bench.PlaceCross}
	g.Prims = bench.Or(o.Prims, "c:futex", "go:futex", bench.Library+":futex")
	cells, err := Cells(&g, "wake")
	if err != nil {
		return nil // none of the asked subjects takes part
	}
	return cells
}
