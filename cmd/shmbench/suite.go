//go:build linux

package main

import (
	"fmt"
	"strings"
	"time"
)

// suiteCmd looks at everything.
type suiteCmd struct {
	Quick bool `xor:"preset" help:"In less than a minute (default)."`
	Std   bool `xor:"preset" help:"In less than ten minutes: more shapes, longer."`
	Full  bool `xor:"preset" help:"As long as it takes: the shapes of --std, ten times, two seconds each."`
}

// preset is how thorough a suite is.
type preset struct {
	defaults
	brief  bool          // few shapes
	few    bool          // few subjects
	budget time.Duration // what the plan is cut down to; 0: as long as it takes
	limit  time.Duration // and when no more repetitions begin, should that take longer
	least  defaults      // but not below this
	gaps   []time.Duration
}

var (
	quickSuite = preset{defaults: quick, brief: true, few: true, budget: 54 * time.Second, limit: 57 * time.Second,
		least: defaults{time: 10 * time.Millisecond, warmup: 2 * time.Millisecond, count: 2},
		gaps:  []time.Duration{0, 20 * time.Microsecond, 200 * time.Microsecond}}
	stdSuite = preset{defaults: usual, few: true, budget: 9 * time.Minute, limit: 9*time.Minute + 15*time.Second,
		least: defaults{time: 50 * time.Millisecond, warmup: 10 * time.Millisecond, count: 3},
		gaps:  []time.Duration{0, 20 * time.Microsecond, 200 * time.Microsecond, 5 * time.Millisecond}}
	fullSuite = preset{defaults: thorough,
		gaps: []time.Duration{0, 20 * time.Microsecond, 100 * time.Microsecond, 500 * time.Microsecond, 2 * time.Millisecond, 10 * time.Millisecond}}
)

// Run runs the suite.
func (c *suiteCmd) Run(s *session) error {
	p := quickSuite
	switch {
	case c.Std:
		p = stdSuite
	case c.Full:
		p = fullSuite
	}
	begun := time.Now()
	o, cells, err := s.suite(p)
	if err != nil {
		return err
	}
	if p.limit > 0 && s.common.Time == 0 && s.common.Count == 0 {
		s.until = begun.Add(p.limit)
	}
	return s.execute(o, cells, nil)
}

// suiteCells is more than the suites have.
const suiteCells = 5000

// suite plans the cells of a preset.
func (s *session) suite(p preset) (*options, []*cell, error) {
	o, err := s.common.options(p.defaults)
	if err != nil {
		return nil, nil, err
	}
	o.Brief, o.Few, o.MaxCells = p.brief, p.few, max(o.MaxCells, suiteCells)
	cells, err := planCells(o, scenarioNames()...)
	if err != nil {
		return nil, nil, err
	}
	if len(o.Hogs) == 0 {
		cells = append(cells, hogCells(o)...)
	}
	if len(o.Gaps) == 0 {
		cells = append(cells, gapCells(o, p.gaps)...)
	}
	if s.common.Time == 0 && s.common.Count == 0 {
		p.fit(o, cells)
	}
	return o, cells, nil
}

// fit makes repetitions shorter, and then fewer, until the plan is within the budget.
func (p preset) fit(o *options, cells []*cell) {
	late := func() bool { return p.budget > 0 && eta(order(cells, o.Count, false, 0)) > p.budget }
	for late() && o.Time > p.least.time {
		shorter := max(o.Time*9/10, p.least.time)
		for _, c := range cells {
			if c.Time == o.Time {
				c.Time = shorter
			}
			c.Warmup = max(c.Warmup*9/10, p.least.warmup)
		}
		o.Time, o.Warmup = shorter, max(o.Warmup*9/10, p.least.warmup)
	}
	for late() && o.Count > p.least.count {
		o.Count--
	}
}

// gapCells are a suite's wakes of peers that have slept for longer and longer: those of
// the kernel, from C and from Go, and the library's.
func gapCells(o *options, gaps []time.Duration) []*cell {
	g := *o
	g.Gaps, g.Places = gaps, []string{placeCross}
	g.Prims = or(o.Prims, "c:futex", "go:futex", libBy+":futex")
	cells, err := planCells(&g, "wake")
	if err != nil {
		return nil // none of the asked subjects takes part
	}
	return cells
}

// outline is the plan in a few lines: how many cells of each scenario, and how long they
// take.
func outline(cells []*cell, o *options) []string {
	perScenario := map[string][]*cell{}
	for _, c := range cells {
		perScenario[c.Scenario.name] = append(perScenario[c.Scenario.name], c)
	}
	lines := []string{fmt.Sprintf("plan: %d cells × %d, about %v", len(cells), o.Count, eta(order(cells, o.Count, false, 0)))}
	line := ""
	for _, name := range scenarioNames() {
		list := perScenario[name]
		if len(list) == 0 {
			continue
		}
		part := fmt.Sprintf("%s %d (%v)", name, len(list), eta(order(list, o.Count, false, 0)).Round(time.Second))
		if len(line)+len(part) > tableWidth-4 {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+", "+part, ", ")
	}
	return append(lines, line)
}

// peersCmd runs the cells in which the host's own primitives take part.
type peersCmd struct{}

// Help describes the command.
func (peersCmd) Help() string {
	return `Everything that this host has besides, in the same cells as the library: pthread mutexes
(plain, robust, with priority inheritance), rwlock, spin lock, condition variable, barrier,
sem_t, System V semaphores, message queues; eventfd, pipe, socketpair, flock, locks of open
file descriptions; and, within a process, those of Go. What is not there is skipped, with
the reason.`
}

// Run runs them.
func (peersCmd) Run(s *session) error {
	return s.measure(usual, commandScenarios["peers"]...)
}

// wakeCmd looks at wakes alone.
type wakeCmd struct{}

// wakeGaps are the points of a curve of wakes against how long the other has slept.
var wakeGaps = []time.Duration{0, 20 * time.Microsecond, 200 * time.Microsecond, 2 * time.Millisecond, 10 * time.Millisecond}

// Help describes the cells.
func (wakeCmd) Help() string {
	return `wake: one process wakes another that has slept for each --gap, from nothing to 10 ms; slept
is the share that did sleep: after no gap, most do not. waker-p50-ns is what a wake costs who
wakes. c:futex and go:futex do the same, in C and in Go; the other go:futex* wait by bitset,
by futex_waitv, by futex_wait, and in the table of a node (FUTEX2_NUMA).

herd: --wake of --waiters processes that sleep in one place are woken. p50-ns is until the
last of them runs, each-p50-ns until any does. Checked: as many come as were woken, none
before, none twice. go:futex-requeue wakes one and moves the others to a second word
(FUTEX_CMP_REQUEUE), where each wakes the next. Each waiter is a process: of --waiters, what is over 255 is left out.`
}

// Run runs the scenarios.
func (wakeCmd) Run(s *session) error {
	s.gaps = wakeGaps
	return s.measure(usual, commandScenarios["wake"]...)
}

// oversubCmd has more workers than CPUs.
type oversubCmd struct{}

// Help describes the cells.
func (oversubCmd) Help() string {
	return `--load workers for each CPU take a lock, unpinned, with each --spin budget of its waiters;
beside them --noise busy loops of SCHED_IDLE on each CPU, and within a --quota of CPU time
where this process may make a cgroup. Spinning that pays while there is a CPU for everybody
costs when there is not.`
}

// Run runs the scenario.
func (oversubCmd) Run(s *session) error { return s.measure(usual, commandScenarios["oversub"]...) }
