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

// Disturbed notes what happened during the run.
func (r *Run) Disturbed(before, after host.Disturbance) {
	if ticks := after.Total - before.Total; ticks > 0 {
		r.Env.Steal = (after.Steal - before.Steal) / ticks
	}
	r.Env.Throttled = after.Throttled - before.Throttled
	if r.Env.Steal > host.MostSteal {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the hypervisor took %.1f %% of the CPUs' time", 100*r.Env.Steal))
	}
	if r.Env.Throttled > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("a quota of CPU time stopped the run %d times", r.Env.Throttled))
	}
}

// Run is everything that an output format needs.
type Run struct {
	Env      host.Environment
	Warnings []string
	Notes    []string // what this host cannot show
	Topology *topology.Topology
	Command  []string
	Options  *plan.Options
	Results  []*bench.Result
	Bars     []bars.Result
}
