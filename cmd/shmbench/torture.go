//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/shm"
)

// A torture is one arena with objects of all kinds, a few residents that work with
// all of them, and victims that come, work with some, and end in one of many ways.
// The parent starts, kills and stops; it is no participant and looks at no object.
//
// Residents check what they get at each turn, and how long they wait. Between rounds
// everybody rests, and one resident looks whether the arena is as if nobody had died.
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
or close and go. After every ` + fmt.Sprint(tortureRound) + ` of them everybody rests and the whole arena is checked;
every third time those who stay are killed first, all at once.

--seed draws the plan: who works at what, and how it ends when. Seed 0 takes one at random
and says which. -n prints the plan. The order in which processes run is not in it.

Violations, with status 3: who should be alone is not; something is lost, or is there
twice; a count is wrong; Check finds something; a resident waits longer than --bound
when nobody is stopped, beyond what a thread beside it was kept waiting for a CPU. If
somebody waits for good, the words of all objects and the stacks are printed.`
}

// tortureSize is the arena's: what some deaths leave behind stays.
const tortureSize = 256 << 20

// Run runs it.
func (c *tortureCmd) Run(s *session) error {
	only, err := jobsOf(c.Only)
	if err != nil {
		return err
	}
	switch {
	case c.Processes < 1 || c.Processes > tortureLanes:
		return fmt.Errorf("--processes is 1 to %d", tortureLanes)
	case c.Residents < 1 || c.Residents > tortureResidents:
		return fmt.Errorf("--residents is 1 to %d", tortureResidents)
	}
	seed := s.common.Seed
	if seed == 0 {
		seed = rand.Uint64()
	}
	if s.common.DryRun {
		return printTorture(s.stdout, seed, only, max(c.Deaths, tortureRound))
	}
	out, closeOut, err := s.output()
	if err != nil {
		return err
	}
	defer closeOut()
	t := &torturer{session: s, cmd: c, seed: seed, only: only, start: time.Now()}
	if t.cpus, err = allowedCPUs(); err != nil {
		return err
	}
	if err := t.setUp(); err != nil {
		return err
	}
	defer t.tearDown()
	fmt.Fprintf(s.stderr, "shmbench: torture with seed %d, for %v\n", seed, c.Duration)
	err = t.run()
	r := t.result(err)
	if err := r.write(out, s.common.Format); err != nil {
		return err
	}
	var v *violation
	switch {
	case errors.As(err, &v) || t.page.faults.Load() != 0:
		for _, text := range r.Violations {
			fmt.Fprintln(s.stderr, "shmbench: violation:", text)
		}
		if v != nil {
			fmt.Fprintf(s.stderr, "shmbench: violation: %v\n%s\n", v, v.dump)
		}
		fmt.Fprintf(s.stderr, "shmbench: the plan again: shmbench torture --seed %d\n", seed)
		return status(exitViolation)
	case err != nil:
		return err
	case s.ctx.Err() != nil:
		return errors.New("interrupted")
	}
	return nil
}

// violation is what the parent finds out, with what the words were then.
type violation struct{ what, dump string }

func (v *violation) Error() string { return v.what }

func printTorture(w io.Writer, seed, only uint64, n int) error {
	for i := range n {
		if i%tortureRound == 0 {
			fmt.Fprintf(w, "round %d of seed %d, everybody dies: %v\n", i/tortureRound, seed, everybodyDies(seed, i/tortureRound))
		}
		if _, err := fmt.Fprintln(w, victimOf(seed, i, only)); err != nil {
			return err
		}
	}
	return nil
}

// jobsOf gives the bits of the jobs of that names.
func jobsOf(names []string) (set uint64, err error) {
	if len(names) == 0 {
		return soundJobs, nil
	}
	for _, name := range names {
		i := slices.IndexFunc(jobs, func(j job) bool { return j.name == name })
		if i < 0 {
			return 0, fmt.Errorf("%q is none of %s", name, jobList(soundJobs))
		}
		set |= 1 << i
	}
	return set, nil
}

// jobList names the jobs of a set.
func jobList(set uint64) string {
	var names []string
	for i, j := range jobs {
		if set&(1<<i) != 0 {
			names = append(names, j.name)
		}
	}
	return strings.Join(names, ",")
}

// setUp makes the page and the arena.
func (t *torturer) setUp() (err error) {
	if t.page, t.pageFile, err = newTorturePage(); err != nil {
		return err
	}
	p := t.page
	p.magic, p.seed, p.only, p.seats, p.bound = tortureMagic, t.seed, t.only, uint32(t.cmd.Residents), int64(t.cmd.Bound)
	p.patience = int64(t.patience())
	format := func(s *shm.Segment) error { return arena.Format(s, &arena.Options{Size: s.Size()}) }
	seg, err := shm.CreateMemfd("shmbench-torture", tortureSize, format, nil)
	if err != nil {
		return err
	}
	defer seg.Close()
	t.arenaFile, err = seg.Reopen()
	return err
}

func (t *torturer) tearDown() {
	t.killAll()
	t.pageFile.Close()
	t.arenaFile.Close()
	t.page.unmap()
}
