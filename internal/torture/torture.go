//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/bench/place"
	"github.com/shmsync/shmsync/shm"
)

// Options are the options of a torture. A torture has one arena with objects of all kinds. A few processes, the
// residents, use all objects. Other processes, the victims, join, use some objects, and end in one of many ways. The
// parent starts, kills and stops processes. It is no participant of the arena, and reads no object.
//
// Residents check the result and the duration of each operation. After each round, all processes pause, and a
// resident checks that the state of the arena is as if no process had died.
type Options struct {
	Duration  time.Duration // how long the torture takes
	Processes int           // number of victims at the same time
	Residents int           // number of residents
	Deaths    int           // end after this number of deaths, even if Duration has not passed; 0: no limit
	Only      []string      // primitives that take part; empty: all
	Bound     time.Duration // longest time that an operation of a resident may take
	Seed      uint64        // seed of the plan of the victims; 0: random
	Timeout   time.Duration // how long a process may be silent before it counts as stuck
	CC        string        // C compiler for the victims and residents in C; empty: none of them
	DryRun    bool          // only print the plan
	Format    string        // table or json
	Out       io.Writer     // for the result
	Log       io.Writer     // for all other messages

	Plant func(header string) string // if not nil: returns the C header with a mistake that a test plants
}

// tortureSize is the size of the arena in bytes. It is large because some deaths leave blocks that nothing frees.
const tortureSize = 256 << 20

// ErrViolation says that the torture found a violation, and has printed it.
var ErrViolation = errors.New("the torture found a violation")

// Run runs a torture until it is complete or ctx ends.
func Run(ctx context.Context, o *Options) error {
	only, err := jobsOf(o.Only)
	if err != nil {
		return err
	}
	switch {
	case o.Processes < 1 || o.Processes > tortureLanes:
		return fmt.Errorf("--processes is 1 to %d", tortureLanes)
	case o.Residents < 1 || o.Residents > tortureResidents:
		return fmt.Errorf("--residents is 1 to %d", tortureResidents)
	}
	seed := o.Seed
	if seed == 0 {
		seed = rand.Uint64()
	}
	if o.DryRun {
		return printTorture(o.Out, seed, only, max(o.Deaths, RoundSize))
	}
	t := &torturer{ctx: ctx, asked: o, seed: seed, only: only, start: time.Now()}
	if t.cpus, err = place.AllowedCPUs(); err != nil {
		return err
	}
	if only&dataJobs != 0 {
		if t.inC, err = buildInC(o.CC, o.Plant); err != nil {
			t.noC = err.Error()
			fmt.Fprintf(o.Log, "shmbench: torture: the programs in C are Go programs instead: %v\n", err)
		} else {
			defer t.inC.Close()
		}
		t.start = time.Now()
	}
	if err := t.setUp(); err != nil {
		return err
	}
	defer t.tearDown()
	fmt.Fprintf(o.Log, "shmbench: torture with seed %d, for %v\n", seed, o.Duration)
	err = t.run()
	r := t.result(err)
	if err := r.write(o.Out, o.Format); err != nil {
		return err
	}
	var v *violation
	switch {
	case errors.As(err, &v) || t.page.faults.Load() != 0:
		for _, text := range r.Violations {
			fmt.Fprintln(o.Log, "shmbench: violation:", text)
		}
		if v != nil {
			fmt.Fprintf(o.Log, "shmbench: violation: %v\n%s\n", err, v.dump)
		}
		fmt.Fprintf(o.Log, "shmbench: the plan again: shmbench torture --seed %d\n", seed)
		return ErrViolation
	case err != nil:
		return err
	case ctx.Err() != nil:
		return errors.New("interrupted")
	}
	return nil
}

// violation is the error about a broken promise. It contains a description of the arena and the processes at that time.
type violation struct{ what, dump string }

func (v *violation) Error() string { return v.what }

func printTorture(w io.Writer, seed, only uint64, n int) error {
	for i := range n {
		if i%RoundSize == 0 {
			fmt.Fprintf(w, "round %d of seed %d, everybody dies: %v\n", i/RoundSize, seed, everybodyDies(seed, i/RoundSize))
		}
		if _, err := fmt.Fprintln(w, victimOf(seed, i, only)); err != nil {
			return err
		}
	}
	return nil
}

// jobsOf returns a set with one bit for each job in the list names.
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

// jobList returns the names of the jobs whose bits are in set.
func jobList(set uint64) string {
	var names []string
	for i, j := range jobs {
		if set&(1<<i) != 0 {
			names = append(names, j.name)
		}
	}
	return strings.Join(names, ",")
}

// setUp creates the shared page and the arena.
func (t *torturer) setUp() (err error) {
	if t.page, t.pageFile, err = newTorturePage(); err != nil {
		return err
	}
	p := t.page
	p.magic, p.seed, p.only, p.workers, p.bound = tortureMagic, t.seed, t.only, uint32(t.asked.Residents), int64(t.asked.Bound)
	p.waitLimit = int64(t.waitLimit())
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
	t.following.Wait()
	t.pageFile.Close()
	t.arenaFile.Close()
	t.page.unmap()
}

// JobNames returns the names of the jobs that a user can choose, for a help text.
func JobNames() string { return jobList(soundJobs) }
