//go:build linux

package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/shmsync/shmsync/internal/torture"
)

// tortureCmd is the command for a torture test, which kills processes that use the library's primitives and checks what
// survives.
type tortureCmd struct {
	Duration  time.Duration `default:"60s" help:"How long it goes on."`
	Processes int           `default:"4" help:"Victims at a time."`
	Residents int           `default:"2" help:"Processes that stay, and wait for the dead."`
	Deaths    int           `name:"deaths" placeholder:"N" help:"End after so many deaths, if that is before."`
	Only      []string      `placeholder:"LIST" help:"Primitives that take part: ${torturejobs}. Default: all."`
	Bound     time.Duration `default:"250ms" help:"How long a resident may wait at a time."`
}

// Help describes the command.
func (tortureCmd) Help() string {
	return `Processes that work with all primitives in one arena die, all the time: killed, also
while they join, stopped and killed, by exec, exit and panic; others are stopped and go on,
or close and go. After every ` + fmt.Sprint(torture.RoundSize) + ` of them everybody rests and the whole arena is checked;
every third time those who stay are killed first, all at once.

Some of those that work with transactions or a Synchronized are programs in C, which --cc
compiles. Most of these die while they undo the changes of another, if it comes to that.
Without a C compiler they are Go programs. If nothing else takes part, as with
--only synchronized,tx,rwtx, every second victim is in C, so is every second of those who stay,
and no block of the heap may be lost. Otherwise the third of those who stay is in C.

--seed draws the plan: who works at what, and how it ends when. Seed 0 takes one at random
and says which. -n prints the plan. The order in which processes run is not in it.

Violations, with status 3: who should be alone is not; something is lost, torn, or is there
twice; a count is wrong; Check finds something; a resident waits longer than --bound
when nobody is stopped, beyond what a thread beside it was kept waiting for a CPU. If
somebody waits for good, the words of all objects and the stacks are printed.`
}

// Run runs a torture test.
func (c *tortureCmd) Run(s *session) error {
	o := &torture.Options{
		Duration: c.Duration, Processes: c.Processes, Residents: c.Residents, Deaths: c.Deaths, Only: c.Only, Bound: c.Bound,
		Seed: s.common.Seed, Timeout: s.common.Timeout, CC: s.common.CC, DryRun: s.common.DryRun, Format: s.common.Format, Out: s.stdout, Log: s.stderr,
	}
	if !o.DryRun {
		out, closeOut, err := s.output()
		if err != nil {
			return err
		}
		defer closeOut()
		o.Out = out
	}
	err := torture.Run(s.ctx, o)
	if errors.Is(err, torture.ErrViolation) {
		return status(exitViolation)
	}
	return err
}

// tortureWorkerCmd is the hidden command that runs one process of a torture test.
type tortureWorkerCmd struct {
	Role   string `arg:"" enum:"resident,victim,dump,nothing"`
	Number int    `arg:"" optional:""`
	Lane   int    `arg:"" optional:""`
}

// Run runs one process of a torture test.
func (c *tortureWorkerCmd) Run(s *session) error {
	return torture.RunWorker(c.Role, c.Number, c.Lane, s.stderr)
}
