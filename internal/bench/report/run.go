//go:build linux

package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/bars"
	"github.com/shmsync/shmsync/internal/bench/host"
	"github.com/shmsync/shmsync/internal/bench/plan"
	"github.com/shmsync/shmsync/internal/topology"
)

// Disturbed records how much other programs, the hypervisor and a quota disturbed the run. It compares the readings
// before and after the run.
func (r *Run) Disturbed(before, after host.Disturbance) {
	if ticks := after.Total - before.Total; ticks > 0 {
		r.Env.Steal = (after.Steal - before.Steal) / ticks
	}
	r.Env.Others = host.Others(before, after)
	if r.Env.Others > host.MostOthers {
		r.Warnings = append(r.Warnings, fmt.Sprintf("other programs took %.1f %% of the time of the used CPUs", 100*r.Env.Others))
	}
	r.Env.Throttled = after.Throttled - before.Throttled
	if r.Env.Steal > host.MostSteal {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the hypervisor took %.1f %% of the CPUs' time", 100*r.Env.Steal))
	}
	if r.Env.Throttled > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("a quota of CPU time stopped the run %d times", r.Env.Throttled))
	}
}

// These are the states of a run.
const (
	StateRunning     = "running" // the state in a file that is written during the run
	StateComplete    = "complete"
	StateInterrupted = "interrupted"
)

// End records whether the run is complete. If it is not, End adds a warning for the file, the table and the page.
func (r *Run) End(interrupted bool, planned int) {
	r.State = StateComplete
	if !interrupted {
		return
	}
	r.State = StateInterrupted
	r.Warnings = append(r.Warnings, fmt.Sprintf("the run was interrupted: %d of %d repetitions were made", r.made(), planned))
}

// made returns the number of repetitions so far.
func (r *Run) made() (n int) {
	for _, res := range r.Results {
		n += len(res.Reps)
	}
	return n
}

// Partial returns a copy of r for a file that is written during the run.
func (r *Run) Partial(results []*bench.Result, planned int) *Run {
	c := *r
	c.State, c.Results = StateRunning, results
	c.Warnings = append(slices.Clone(r.Warnings), fmt.Sprintf("the run had not ended when this file was written: %d of %d repetitions were made", c.made(), planned))
	return &c
}

// Run has everything that the output formats need.
type Run struct {
	State    string // one of the states
	Env      host.Environment
	Warnings []string
	Notes    []string // notes on what this host cannot show
	Rounds   *Rounds  // nil if the run did not check each round for disturbances
	Topology *topology.Topology
	Command  []string
	Options  *plan.Options
	Results  []*bench.Result
	Bars     []bars.Result
	Took     time.Duration
	Details  bool // show the tables of all cells, even for a suite
}
