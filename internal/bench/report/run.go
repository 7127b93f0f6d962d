//go:build linux

package report

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/bars"
	"github.com/shmsync/shmsync/internal/bench/host"
	"github.com/shmsync/shmsync/internal/bench/plan"
	"github.com/shmsync/shmsync/internal/topology"
)

// Disturbed records the disturbances during the run.
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

// States of a run.
const (
	StateComplete    = "complete"
	StateInterrupted = "interrupted"
)

// End records whether the run was complete, and adds a warning if it was not, for the file, the table
// and the page.
func (r *Run) End(interrupted bool, planned int) {
	r.State = StateComplete
	if !interrupted {
		return
	}
	done := 0
	for _, res := range r.Results {
		done += len(res.Reps)
	}
	r.State = StateInterrupted
	r.Warnings = append(r.Warnings, fmt.Sprintf("the run was interrupted: %d of %d repetitions were made", done, planned))
}

// Run is everything that an output format needs.
type Run struct {
	State    string // StateComplete or StateInterrupted
	Env      host.Environment
	Warnings []string
	Notes    []string // what this host cannot show
	Rounds   *Rounds  // nil if rounds were not judged one by one
	Topology *topology.Topology
	Command  []string
	Options  *plan.Options
	Results  []*bench.Result
	Bars     []bars.Result
	Details  bool // tables of all cells, also of a suite
}
