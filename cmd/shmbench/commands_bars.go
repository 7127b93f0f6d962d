//go:build linux

package main

import (
	"time"

	"github.com/shmsync/shmsync/internal/bench/bars"
	"github.com/shmsync/shmsync/internal/bench/plan"
	"github.com/shmsync/shmsync/internal/bench/report"
)

type barsCmd struct {
	Only string `placeholder:"REGEXP" help:"Only the bars whose name, subject or peer matches."`
}

// barsDefaults returns the default options of the command bars. Each measurement has count repetitions, or ten if
// count is 0. All repetitions of a crash measurement together kill at least bars.BarKills processes.
func barsDefaults(count int) plan.Defaults {
	if count <= 0 {
		count = 10
	}
	return plan.Defaults{Time: 250 * time.Millisecond, Warmup: 40 * time.Millisecond, Count: count, Kills: (bars.BarKills + count - 1) / count}
}

// Run measures every bar, that is, every promise of this project about speed, and reports whether it holds.
func (c *barsCmd) Run(s *session) error {
	o, err := s.common.options(barsDefaults(s.common.Count))
	if err != nil {
		return err
	}
	picked, err := bars.Pick(c.Only)
	if err != nil {
		return err
	}
	var failed bool
	err = s.execute(o, bars.Cells(picked, o), func(r *report.Run) {
		r.Bars, failed = bars.Judge(picked, r.Results, o)
	})
	if err == nil && failed {
		return status(exitUsage)
	}
	return err
}
