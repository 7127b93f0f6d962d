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

// A torture is one arena with objects of all kinds, a few residents that work with
// all of them, and victims that come, work with some, and end in one of many ways.
// The parent starts, kills and stops; it is no participant and looks at no object.
//
// Residents check what they get at each turn, and how long they wait. Between rounds
// everybody rests, and one resident looks whether the arena is as if nobody had died.
type Options struct {
	Duration  time.Duration // how long it goes on
	Processes int           // victims at a time
	Residents int           // processes that stay, and wait for the dead
	Deaths    int           // end after this many deaths, if that comes first; 0: no limit
	Only      []string      // primitives that take part; all where it is empty
	Bound     time.Duration // how long a resident may wait at a time
	Seed      uint64        // seed of the plan; 0 takes a random one
	Timeout   time.Duration // how long a process may be silent before it counts as stuck
	CC        string        // C compiler for the programs in C, or none
	DryRun    bool          // print the plan
	Format    string        // table or json
	Out       io.Writer     // for the result
	Log       io.Writer     // for everything else

	Plant func(header string) string // nil, or what a test changes in the C library of the programs in C
}

// tortureSize is the arena's: what some deaths leave behind stays.
const tortureSize = 256 << 20

// ErrViolation says that the torture found a violation, and has printed it.
var ErrViolation = errors.New("the torture found a violation")

// Run runs a torture until it ends, or ctx does.
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

// violation is what the parent finds out, with what the words were then.
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

// JobNames lists what can take part in a torture.
func JobNames() string { return jobList(soundJobs) }
