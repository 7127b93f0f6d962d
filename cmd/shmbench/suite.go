//go:build linux

package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/plan"
	"github.com/shmsync/shmsync/internal/bench/report"
)

// suiteCmd is the default command, which measures every scenario.
type suiteCmd struct {
	Quick bool `xor:"preset" help:"Measure only classes of CPUs, locks and wakes, in 20 seconds on two CPUs and in a minute elsewhere."`
	Std   bool `xor:"preset" help:"Measure more shapes of cells, and each for longer, in ten minutes on two CPUs and in twenty elsewhere."`
	Full  bool `xor:"preset" help:"Measure the shapes of --std twelve times, for two seconds each. This takes hours."`

	Budget time.Duration `placeholder:"D" help:"Measure for this long. After the usual rounds come more rounds of the cells on which undecided advice rests. At least twelve rounds are planned; if they do not fit, each is shorter."`
}

// Run plans and measures the suite, that is, all scenarios or a selection that fits the time.
func (c *suiteCmd) Run(s *session) error {
	p := plan.DefaultSuite
	switch {
	case c.Quick:
		p = plan.QuickSuite
	case c.Std:
		p = plan.StdSuite
	case c.Full:
		p = plan.FullSuite
	}
	switch {
	case c.Budget < 0:
		return fmt.Errorf("--budget %v is negative", c.Budget)
	case c.Budget > 0 && (s.common.Time != 0 || s.common.Count != 0):
		return errors.New("--budget chooses the number and the length of rounds: leave out --count and --time")
	case c.Budget > 0:
		p = p.Within(c.Budget)
	}
	begun := time.Now()
	o, cells, err := s.suite(p)
	if err != nil {
		return err
	}
	if p.Limit > 0 && s.common.Time == 0 && s.common.Count == 0 {
		s.until = begun.Add(p.LimitOf(o))
		s.last = begun.Add(2 * p.LimitOf(o))
	}
	return s.execute(o, cells, nil)
}

// suite plans the measurements of a preset, such as the quick one or the full one.
func (s *session) suite(p plan.Preset) (*plan.Options, []*bench.Cell, error) {
	o, err := s.common.options(p.Defaults)
	if err != nil {
		return nil, nil, err
	}
	cells, err := p.Plan(o, s.common.Time == 0 && s.common.Count == 0)
	return o, cells, err
}

// outline returns a short form of the plan. It says how many measurements (cells) each scenario has, and how long they
// take.
func outline(cells []*bench.Cell, o *plan.Options) []string {
	perScenario := map[string][]*bench.Cell{}
	for _, c := range cells {
		perScenario[c.Scenario.Name] = append(perScenario[c.Scenario.Name], c)
	}
	lines := []string{fmt.Sprintf("plan: %d cells × %d, about %v", len(cells), o.Count, plan.ETA(plan.Order(cells, o.Count, false, 0)))}
	if note := o.QuotaNote(); note != "" {
		lines = append(lines, note)
	}
	if note := o.RecoveryNote(cells); note != "" {
		lines = append(lines, note)
	}
	if len(o.Dropped) > 0 {
		lines = append(lines, "left out, for lack of time: "+strings.Join(o.Dropped, ", "))
	}
	line := ""
	for _, name := range bench.ScenarioNames() {
		list := perScenario[name]
		if len(list) == 0 {
			continue
		}
		part := fmt.Sprintf("%s %d (%v)", name, len(list), plan.ETA(plan.Order(list, o.Count, false, 0)).Round(time.Second))
		if len(line)+len(part) > report.TableWidth-4 {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+", "+part, ", ")
	}
	return append(lines, line)
}

// peersCmd is the command that runs the measurements in which primitives of the host take part, such as pthread
// mutexes.
type peersCmd struct{}

// Help describes the command.
func (peersCmd) Help() string {
	return `Measure the primitives of this host in the same cells as the library: pthread mutexes (plain,
robust, with priority inheritance), rwlock, spin lock, condition variable, barrier, sem_t,
System V semaphores and message queues; eventfd, pipe, socketpair, flock, locks of open file
descriptions; and the primitives of Go within a process. A primitive that this host lacks is
skipped, with the reason.`
}

// Run runs the measurements in which primitives of the host take part.
func (peersCmd) Run(s *session) error {
	return s.measure(plan.Usual, commandScenarios["peers"]...)
}

// wakeCmd is the command that measures only how long it takes to wake a thread.
type wakeCmd struct{}

// wakeGaps are the times for which a thread sleeps before it is woken. They are the points of a curve that shows how
// the time of a wake depends on the sleep before it.
var wakeGaps = []time.Duration{0, 20 * time.Microsecond, 200 * time.Microsecond, 2 * time.Millisecond, 10 * time.Millisecond}

// Help says what each measurement does, which figures it gives, and what it checks.
func (wakeCmd) Help() string {
	return `wake: one process wakes another that has slept for each --gap, from 0 to 10 ms. slept is the
share of the waits in which the process really slept: after no gap, most do not. waker-p50-ns
is the cost of the wake for the process that makes it. c:futex and go:futex do the same, in C
and in Go. The other subjects go:futex* wait by bitset, by futex_waitv, by futex_wait, and in
the table of a node (FUTEX2_NUMA).

herd: --waiters processes sleep in one place, and --wake of them are woken. p50-ns is the time
until the last of these runs. each-p50-ns is the same time for a single process. Checked: as
many processes come through as were woken, none before the wake, and none twice.
go:futex-requeue wakes one process and moves the others to a second word (FUTEX_CMP_REQUEUE),
where each wakes the next. Each waiter is a process, so values of --waiters over 255 are
left out.`
}

// Run measures how long it takes to wake a thread.
func (wakeCmd) Run(s *session) error {
	s.gaps = wakeGaps
	return s.measure(plan.Usual, commandScenarios["wake"]...)
}

// oversubCmd is the command that measures locks with more workers than CPUs.
type oversubCmd struct{}

// Help says what the measurement does, which figures it gives, and what it checks.
func (oversubCmd) Help() string {
	return `--load workers for each CPU take a lock. They are not pinned. Each --spin budget of the waiters
is measured, beside --noise busy loops of SCHED_IDLE on each CPU, and with a --quota of CPU time
if this process may make a cgroup. Spinning pays while each worker has a CPU, and costs time
when there are more workers than CPUs.`
}

// Run measures locks with more workers than CPUs.
func (oversubCmd) Run(s *session) error { return s.measure(plan.Usual, commandScenarios["oversub"]...) }
