//go:build linux

package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// quickKills is the number of kills in each repetition of the shortest suite. It is just enough for a median.
const quickKills = 2*stats.TailMinCrash + 2

// RecoveryQuantile is the quantile of the recovery time for which a suite states an interval. The recovery time is how
// long it takes until the lock of a killed process has an owner again.
const RecoveryQuantile = 0.99

// recoveryKills is the number of kills in each repetition. If other programs disturb one round, the kills of the other
// rounds are still enough for an interval of RecoveryQuantile.
var recoveryKills = (stats.LeastSamples(RecoveryQuantile) + Rounds - 2) / (Rounds - 1)

// Rounds and QuickRounds say in how many rounds a suite measures the cells on which advice rests. The more
// comparisons (contrasts) the advice tests together, the more rounds the test needs before it can prove any effect:
// eleven rounds for 60 contrasts, and nine for 20.
const (
	Rounds      = 12
	QuickRounds = 10
)

// contextRounds is the number of rounds for the measurements on which no advice rests. A suite only shows their
// figures.
const contextRounds = 3

// Defaults are the values that a command uses if the user does not set them.
type Defaults struct {
	Time, Warmup time.Duration
	Count, Kills int
}

// These are the defaults of the commands. Usual is for commands that measure one scenario. All others are for suites.
var (
	standard = Defaults{30 * time.Millisecond, 6 * time.Millisecond, Rounds, recoveryKills}
	quick    = Defaults{20 * time.Millisecond, 4 * time.Millisecond, QuickRounds, quickKills}
	Usual    = Defaults{125 * time.Millisecond, 25 * time.Millisecond, Rounds, 25}
	long     = Defaults{Usual.Time, Usual.Warmup, Rounds, recoveryKills}
	thorough = Defaults{2 * time.Second, 200 * time.Millisecond, Rounds, 100}
)

// hogCells returns the handoff cells of a suite that run next to a busy loop. All threads are on one CPU, because a
// busy loop matters most there. The subjects are those whose waiters sleep.
func hogCells(o *Options) []*bench.Cell {
	h := *o
	h.Hogs, h.Places = []int{1}, []string{bench.PlaceSame}
	h.Prims = bench.Or(o.Prims, "c:futex", "c:futex-spin1000", "c:cond", "go:eventfd", "shmsync:futex", "shmsync:semaphore", "shmsync:event")
	cells, err := Cells(&h, "handoff")
	if err != nil {
		return nil // none of the selected subjects takes part
	}
	return cells
}

// Preset says how thorough a suite is, that is, a run that measures all scenarios, or those for which it has time.
type Preset struct {
	Defaults
	quick  bool          // only the cells that a few decisions need
	brief  bool          // few shapes
	few    bool          // few subjects
	budget time.Duration // the plan is shortened until it takes at most this time; 0: no limit
	Limit  time.Duration // no repetition begins after this time, even if the plan is not complete; see LimitOf
	exact  bool          // the user gave the budget: it applies to a host of any size, and further rounds use it up
	least  Defaults      // the repetitions of the plan are not made shorter than this
	gaps   []time.Duration
}

// These are the presets for suites, from the shortest to the most thorough.
var (
	QuickSuite = Preset{Defaults: quick, quick: true, brief: true, few: true, budget: 18 * time.Second, Limit: 20 * time.Second,
		least: Defaults{Time: 5 * time.Millisecond, Warmup: time.Millisecond}}
	DefaultSuite = Preset{Defaults: standard, brief: true, few: true, budget: 54 * time.Second, Limit: 57 * time.Second,
		least: Defaults{Time: 10 * time.Millisecond, Warmup: 2 * time.Millisecond},
		gaps:  []time.Duration{0, 20 * time.Microsecond, 200 * time.Microsecond}}
	StdSuite = Preset{Defaults: long, few: true, budget: 9 * time.Minute, Limit: 9*time.Minute + 15*time.Second,
		least: Defaults{Time: 10 * time.Millisecond, Warmup: 2 * time.Millisecond},
		gaps:  []time.Duration{0, 20 * time.Microsecond, 200 * time.Microsecond, 5 * time.Millisecond}}
	FullSuite = Preset{Defaults: thorough,
		gaps: []time.Duration{0, 20 * time.Microsecond, 100 * time.Microsecond, 500 * time.Microsecond, 2 * time.Millisecond, 10 * time.Millisecond}}
)

// LongOnly are the scenarios that only a long suite measures. The commands with the same names measure them, too.
var LongOnly = []string{"intruder", "fence", "stream"}

// suiteCells is the largest number of cells, that is, of measurements, that any suite has.
const suiteCells = 5000

// Plan returns the cells of a suite. If fit is set, Plan shortens the plan until it fits into the time budget.
func (p Preset) Plan(o *Options, fit bool) ([]*bench.Cell, error) {
	o.Suite, o.Brief, o.Few, o.Map, o.MaxCells = true, p.brief, p.few, !p.quick, max(o.MaxCells, suiteCells)
	names := bench.ScenarioNames()
	if p.brief {
		names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(LongOnly, name) })
	}
	cells, err := Cells(o, names...)
	if err != nil {
		return nil, err
	}
	if len(o.Hogs) == 0 {
		cells = append(cells, hogCells(o)...)
	}
	if len(o.Gaps) == 0 {
		cells = append(cells, gapCells(o, p.gaps)...)
	}
	cells = append(cells, choiceCells(o)...)
	if len(o.Places) == 0 {
		cells = append(cells, classCells(o)...)
		cells = append(cells, scalingCells(o)...)
	}
	cells = unique(cells)
	oneHome(cells)
	if p.quick {
		cells = slices.DeleteFunc(cells, func(c *bench.Cell) bool { return !quickly(c) })
	}
	if fit {
		for _, c := range cells {
			if p.budget > 0 && !decisive(o, c) && !recovers(c) {
				c.MaxReps = contextRounds
				if c.Scenario.Name == "crash" && !p.quick { // one round has enough kills to show the figures
					c.MaxReps = 1
				}
			}
		}
		cells = p.fit(o, cells)
		if p.exact {
			p.fill(o, cells)
		}
	}
	return cells, nil
}

// budgetOf returns the time that a plan may take. A host with many CPUs gets more time, because there is more to
// measure.
func (p Preset) budgetOf(o *Options) time.Duration { return p.budget * p.share(o) }

// LimitOf returns the time after which no more repetitions of a suite begin. 0 means that there is no limit.
func (p Preset) LimitOf(o *Options) time.Duration { return p.Limit * p.share(o) }

// Within returns a preset like p, with the same rounds, for a suite that takes the time budget.
func (p Preset) Within(budget time.Duration) Preset {
	p.budget, p.Limit, p.exact = budget, budget, true
	return p
}

// mostRounds is the largest number of rounds that a suite gets if there is time left.
const mostRounds = 1000

// fill adds rounds to a plan until they use up the time that the user gave. Only cells on which advice rests take part
// in the added rounds.
func (p Preset) fill(o *Options, cells []*bench.Cell) {
	var one time.Duration
	for _, c := range cells {
		if c.Skip == "" && c.MaxReps == 0 {
			one += c.Length()
		}
	}
	if left := p.budget - ETA(Order(cells, o.Count, false, 0)); one > 0 {
		o.Count = min(o.Count+max(int(left/one), 0), max(mostRounds, o.Count))
	}
}

// share returns the factor by which this host gets more time than a small host.
func (p Preset) share(o *Options) time.Duration {
	switch {
	case p.exact:
		return 1
	case len(o.CPUs) <= smallHost:
		return 1
	case p.brief:
		return 3
	}
	return 2
}

// smallHost is the largest number of CPUs with which the default plan ends within a minute.
const smallHost = 2

// fit shortens a plan until it fits the time budget. First it makes the repetitions shorter. Then it leaves out
// scenarios, and reduces the repetitions of cells on which no advice rests. Then it leaves out droppedLast. At last it
// reduces the kills of crash cells. It does not reduce the number of rounds, because a test of many comparisons needs
// them.
func (p Preset) fit(o *Options, cells []*bench.Cell) []*bench.Cell {
	budget := p.budgetOf(o)
	late := func() bool { return budget > 0 && ETA(Order(cells, o.Count, false, 0)) > budget }
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
	seldom := func(most int) {
		for _, c := range cells {
			if c.MaxReps > 0 {
				c.MaxReps = min(c.MaxReps, most)
			}
		}
	}
	drop := func(name string) {
		before := len(cells)
		cells = slices.DeleteFunc(cells, func(c *bench.Cell) bool { return c.Scenario.Name == name })
		if len(cells) < before {
			o.Dropped = append(o.Dropped, name)
		}
	}
	for _, name := range dropOrder {
		if late() && name == rarelyFirst {
			seldom(contextRounds - 1)
		}
		if !late() {
			break
		}
		drop(name)
	}
	for most := contextRounds - 1; late() && most > 0; most-- {
		seldom(most)
	}
	if late() {
		drop(droppedLast)
	}
	if late() { // then RecoveryNote tells the user
		for _, c := range cells {
			if c.Scenario.Name == "crash" {
				c.N = min(c.N, quickKills)
				if c.MaxReps == 0 {
					c.MaxReps = contextRounds - 1
				}
			}
		}
	}
	return cells
}

// recovers reports whether a crash cell measures a promised recovery: after its holder has died, a Mutex of the library
// or a robust mutex in C gets an owner again. Such a cell has so many kills that RecoveryQuantile has an interval.
func recovers(c *bench.Cell) bool {
	name := c.Subject.Name()
	return c.Scenario.Name == "crash" && c.Role == bench.RoleHolder && (name == bench.Library+":mutex" || name == "c:robust")
}

// RecoveryNote returns a note if a plan has too few kills for an interval of RecoveryQuantile. The note says how to get
// enough. It is empty if the kills are enough, or if the plan kills nothing.
func (o *Options) RecoveryNote(cells []*bench.Cell) string {
	kills, least := 0, stats.LeastSamples(RecoveryQuantile)
	for _, c := range cells {
		if rounds := o.Count; c.Skip == "" && recovers(c) {
			if c.MaxReps > 0 {
				rounds = min(rounds, c.MaxReps)
			}
			kills = max(kills, rounds*c.N)
		}
	}
	if kills == 0 || kills >= least {
		return ""
	}
	return fmt.Sprintf("recovery: %d kills are too few for p%g, which needs %d: shmbench crash --kills %d",
		kills, 100*RecoveryQuantile, least, (least+Rounds-1)/Rounds)
}

// gapCells returns the wake cells of a suite in which the sleeper has slept for different times. They measure wakes by
// the kernel, from C and from Go, and wakes by the library.
func gapCells(o *Options, gaps []time.Duration) []*bench.Cell {
	g := *o
	g.Gaps, g.Places = gaps, []string{o.apart()}
	g.Prims = bench.Or(o.Prims, "c:futex", "go:futex", bench.Library+":futex")
	cells, err := Cells(&g, "wake")
	if err != nil {
		return nil // none of the selected subjects takes part
	}
	return cells
}
