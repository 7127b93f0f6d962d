//go:build linux

package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/shmsync/shmsync/internal/stopstorm"
)

// stopStormCmd is the command for stop storms. A stop storm stops processes at random moments and checks that the other
// processes make progress.
type stopStormCmd struct {
	Stops int           `default:"1000" help:"Stops of each primitive; with --quota, periods of the quota."`
	Watch time.Duration `default:"20ms" help:"How long a stop lasts at least."`
	Bound time.Duration `default:"1s" help:"How long a goroutine or thread of another process may stand still."`
	In    []string      `default:"go" placeholder:"LANG,..." help:"Languages of the processes: go, c, or mixed, which is both. One measurement for each."`
	Step  int           `placeholder:"N" help:"Stop one thread after every N-th instruction of an operation instead, --stops times at most."`
}

// Help describes the command.
func (stopStormCmd) Help() string {
	return `Stop a process in the middle of its work, and measure whether the others go on.

Processes use one primitive without a pause. One of them is stopped at a random moment. The
command watches the others, and then lets the stopped process go on. A stop is a freeze if a
goroutine or thread of another process makes no progress for longer than --bound. It is
excused if this goroutine or thread needs something that the stopped process visibly holds,
such as a lock. It is "granted" if the stopped process has been given the lock, and its call
has not returned. For each freeze the command prints the objects, and where the stopped
process stands.

The time in which a process has no CPU does not count.

--prim names the primitives: ` + stopstorm.Names() + `.
With --in c the processes are programs in C, which --cc compiles. With --in mixed every second
process is in C, and the others are in Go. Primitives that C does not have are left out.
--procs N says how many processes use each primitive; 3 is the least. --quota P gives one
process P percent of a CPU: the command stops it for the rest of each period of 100 ms,
because not every host lets a program use cpu.max. The bound is then two periods.

Exit status 3: a primitive that has to be free of freezes had one.`
}

// Run runs a stop storm.
func (c *stopStormCmd) Run(s *session) error {
	if s.common.DryRun {
		return errors.New("--dry-run: a storm has no plan to print; it stops each primitive of --prim --stops times")
	}
	one := func(flag string, list ints, usual int) (int, error) {
		if len(list) > 1 {
			return 0, fmt.Errorf("--%s: one number is enough for this command", flag)
		}
		return append(list, usual)[0], nil
	}
	procs, err1 := one("procs", s.common.Procs, 3)
	quota, err2 := one("quota", s.common.Quota, 0)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	out, closeOut, err := s.output()
	if err != nil {
		return err
	}
	defer closeOut()
	err = stopstorm.Run(s.ctx, &stopstorm.Options{
		Prims: s.common.Prim, In: c.In, CC: s.common.CC, Stops: c.Stops, Procs: procs, Watch: c.Watch, Bound: c.Bound, Quota: quota, Every: c.Step,
		Seed: s.common.Seed, Trouble: 3 * s.common.Timeout, Format: s.common.Format, Out: out, Log: s.stderr,
	})
	if errors.Is(err, stopstorm.ErrFreeze) {
		return status(exitViolation)
	}
	return err
}

// stopStormWorkerCmd is the hidden command that runs one process of a stop storm.
type stopStormWorkerCmd struct {
	Number int `arg:""`
}

// Run runs one process of a stop storm.
func (c *stopStormWorkerCmd) Run(*session) error { return stopstorm.RunWorker(c.Number) }
