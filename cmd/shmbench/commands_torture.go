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
	Duration  time.Duration `default:"60s" help:"How long the torture goes on."`
	Processes int           `default:"4" help:"How many victims run at the same time."`
	Residents int           `default:"2" help:"How many processes stay, and wait for what the dead hold."`
	Deaths    int           `name:"deaths" placeholder:"N" help:"End after this many deaths, if that is before --duration has passed."`
	Only      []string      `placeholder:"LIST" help:"Primitives that take part: ${torturejobs}. Default: all."`
	Bound     time.Duration `default:"250ms" help:"How long a resident may wait at a time."`
}

// Help describes the command.
func (tortureCmd) Help() string {
	return `Start victims, which are processes that work with all primitives in one arena, and let them die.
Some are killed, also while they join or while they are stopped. Others end by exec, exit or
panic, or are stopped and go on for a while, or close the arena and exit. Residents are
processes that stay. After every ` + fmt.Sprint(torture.RoundSize) + ` victims all processes pause, and the whole arena is
checked. About every third time all residents are killed before the check, at once.

Some victims that work with transactions or a Synchronized are programs in C, which --cc
compiles. Most of these die while they undo the changes of another process, if they have any
to undo. Without a C compiler they are Go programs. If no other primitive takes part, as with
--only synchronized,tx,rwtx, about half of the victims and every second resident are in C, and
no block of the heap may be lost. Otherwise only the third resident is in C.

--seed decides the plan: at what each process works, and when and how it ends. With --seed 0
the command chooses a seed, and prints it. -n prints the plan. The plan does not say in which
order the processes run.

Violations, with status 3: several processes hold what only one may hold; something is lost,
torn, or there twice; a count is wrong; Check finds something; a resident waits longer than
--bound while no process is stopped. The time for which a thread beside the resident waited
for a CPU does not count. If a process waits for ever, the words of all objects and the
stacks are printed.`
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
