//go:build linux

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shmsync/shmsync/internal/topology"
)

// ints is a list of numbers: 1,2,4, 0-3,8, 1:8, 1:9:2 or 1:64:*2.
type ints []int

// UnmarshalText parses the list.
func (l *ints) UnmarshalText(text []byte) error {
	v, err := parseInts(string(text))
	*l = v
	return err
}

const maxInts = 4096

func parseInts(text string) ([]int, error) {
	var list []int
	for part := range strings.SplitSeq(text, ",") {
		fields := strings.Split(part, ":")
		if from, to, ok := strings.Cut(part, "-"); ok && len(fields) == 1 {
			fields = []string{from, to}
		}
		from, err := strconv.Atoi(fields[0])
		if err != nil || from < 0 || len(fields) > 3 {
			return nil, fmt.Errorf("%q is no number or range", part)
		}
		to, step, factor := from, 1, 1
		if len(fields) > 1 {
			if to, err = strconv.Atoi(fields[1]); err != nil || to < from {
				return nil, fmt.Errorf("%q is no range", part)
			}
		}
		if len(fields) > 2 {
			times, isFactor := strings.CutPrefix(fields[2], "*")
			n, err := strconv.Atoi(times)
			if err != nil || n < 1 || isFactor && (n < 2 || from == 0) {
				return nil, fmt.Errorf("%q has no valid step", part)
			}
			if isFactor {
				step, factor = 0, n
			} else {
				step = n
			}
		}
		for v := from; v <= to && len(list) < maxInts; v = v*factor + step {
			list = append(list, v)
		}
	}
	return list, nil
}

// common are the flags of every measuring command.
type common struct {
	CPUs     ints            `name:"cpus" placeholder:"LIST" help:"CPUs to use, as in 0-3,8. Default: all that this process may use."`
	Nodes    ints            `placeholder:"LIST" help:"Use only the CPUs of these NUMA nodes, as a mem cell does in turn."`
	Place    []string        `placeholder:"LIST" help:"Placements: same (one CPU), cross (one CPU each), any (unpinned); by what CPUs share: smt, llc, node, node-other-llc, package, cross-package; pack, spread; or CPUs, as in 0+1."`
	Procs    ints            `placeholder:"LIST" help:"Processes of a cell of threads that all do the same."`
	Threads  ints            `placeholder:"LIST" help:"Threads or goroutines in each process of such a cell."`
	CS       []time.Duration `name:"cs" placeholder:"LIST" help:"Work inside the critical section, as in 0,100ns."`
	Lines    ints            `placeholder:"LIST" help:"Cache lines that the critical section of a lock cell writes. Default: 1."`
	Think    []time.Duration `placeholder:"LIST" help:"Mean of the exponentially distributed work outside it."`
	Gap      []time.Duration `placeholder:"LIST" help:"How long the others of a wake, herd, event or seq cell sleep before each wake; the last two take the first. Default: 1500us."`
	Hog      ints            `placeholder:"LIST" help:"Busy loops beside the workers of a handoff cell."`
	Kills    int             `placeholder:"N" help:"Kills in each repetition of a crash cell."`
	Role     []string        `placeholder:"LIST" help:"What the victims of a crash cell are: holder, waiter, reader. Default: holder."`
	Waiters  ints            `placeholder:"LIST" help:"Blocked goroutines of a waiters or seq cell."`
	Read     ints            `placeholder:"LIST" help:"Percentage of the holds of a rw cell that are shared."`
	Permits  ints            `placeholder:"LIST" help:"Permits of a sem cell."`
	Keys     ints            `placeholder:"LIST" help:"Keys of a multi cell."`
	Locks    ints            `placeholder:"LIST" help:"Keys that each hold of a multi cell takes."`
	Skew     []string        `placeholder:"LIST" help:"How a multi cell picks its keys: uniform, zipf or zipf:THETA, whose k-th key has a weight of k^-THETA; zipf is zipf:0.99."`
	Wake     ints            `placeholder:"LIST" help:"Waiters that each step of a seq cell wakes, of those of --waiters."`
	Batch    ints            `placeholder:"LIST" help:"Items that a queue cell moves at a time."`
	Mem      []string        `placeholder:"LIST" help:"Placements of the memory of a mem cell, as in first-touch,bind:0,interleave:0-1."`
	Huge     []string        `placeholder:"LIST" help:"Pages of the memory of a mem cell: none, thp, 2M, 1G."`
	MiB      int             `name:"mib" placeholder:"N" help:"Memory of a mem cell, in MiB. Default: four times the largest cache."`
	Capacity ints            `placeholder:"LIST" help:"Items that fit into the queue of a queue or cond cell."`
	Rate     ints            `placeholder:"LIST" help:"Operations a second that an open cell starts, whether those before have ended or not."`
	Load     ints            `placeholder:"LIST" help:"Workers of an oversub cell for each CPU."`
	Noise    ints            `placeholder:"LIST" help:"Busy loops of SCHED_IDLE on each CPU of an oversub cell."`
	Quota    ints            `placeholder:"LIST" help:"CPU time of an oversub cell's workers, in percent of one CPU, by cgroup; 0 for all."`
	Spin     []string        `placeholder:"LIST" help:"Spin budgets of the waiters of a lock or oversub cell: auto, or a time, as in auto,0,20us."`
	Slow     []time.Duration `placeholder:"LIST" help:"Work of the consumers of a seq cell after each of its --wake wakes, beside which the counter goes on. Default: none, and it waits for them."`
	Arena    []string        `placeholder:"LIST" help:"Where the memory that subjects share lies: memfd, or a directory such as /dev/shm. Default: memfd."`
	Prim     []string        `placeholder:"PATTERN" help:"Subjects, as in c:futex, 'c:*' or 'go:*,in-process:*'. Default: all."`
	Variant  []string        `placeholder:"PATTERN" help:"Of those, variants: what follows the first dash of the name, as in cohort, near, no*; plain is the one without. Default: all."`

	Time     time.Duration `placeholder:"D" help:"Measured time of each repetition."`
	Warmup   time.Duration `placeholder:"D" help:"Discarded time before it."`
	Count    int           `short:"c" placeholder:"N" help:"Repetitions of each cell, interleaved with those of the others."`
	Seed     uint64        `default:"1" help:"Seed of the order and of think times."`
	Shuffle  bool          `default:"true" negatable:"" help:"Run each round in a random order."`
	Timeout  time.Duration `default:"10s" help:"How much longer than planned a repetition may take before it counts as hung."`
	MaxCells int           `name:"max-cells" placeholder:"N" help:"Plan up to so many cells. Default: 500."`
	Strict   bool          `help:"Exit with status 2 if a cell was skipped."`

	Format  string `enum:"table,bench,json,csv,hgrm" default:"table" help:"What standard output gets: ${enum}."`
	Out     string `short:"o" placeholder:"FILE" help:"Also write the results to this file, as JSON, for compare, report and export."`
	HTML    string `name:"html" placeholder:"FILE" help:"Also write a page with pictures to this file."`
	CC      string `name:"cc" default:"cc" env:"SHMBENCH_CC" help:"C compiler for the peers in C, or none."`
	Helper  string `placeholder:"FILE" help:"Run the peers in C by this program, which shmbench helper has built, in place of a compiler."`
	DryRun  bool   `short:"n" help:"Print the plan and how long it takes; measure nothing."`
	Verbose bool   `short:"v" help:"Report each repetition on standard error."`
}

// usualGap is long enough for a waiter to be fast asleep.
const usualGap = 1500 * time.Microsecond

// defaults are what a command takes where the user says nothing.
type defaults struct {
	time, warmup time.Duration
	count, kills int
}

// options checks the flags and completes them.
func (f *common) options(d defaults) (*options, error) {
	o := &options{
		CPUs: f.CPUs, Places: f.Place, Procs: f.Procs, Threads: f.Threads, CS: f.CS, Think: f.Think,
		Gap: or(f.Gap, usualGap)[0], Gaps: f.Gap, Hogs: f.Hog, Kills: f.Kills, Waiters: f.Waiters, Prims: f.Prim, Variants: f.Variant,
		Read: f.Read, Permits: f.Permits, Keys: f.Keys, Locks: f.Locks, Skew: f.Skew, Wake: f.Wake, Batch: f.Batch,
		Capacity: f.Capacity, Mem: f.Mem, Nodes: f.Nodes, Huge: f.Huge, MiB: f.MiB,
		Arenas: f.Arena, Lines: f.Lines, Slow: f.Slow, MaxCells: f.MaxCells, Rates: f.Rate, Loads: f.Load, Noise: f.Noise, Quotas: f.Quota,
		Time: f.Time, Warmup: f.Warmup, Count: f.Count, Seed: f.Seed, Shuffle: f.Shuffle, Timeout: f.Timeout,
	}
	set := func(p *time.Duration, v time.Duration) {
		if *p == 0 {
			*p = v
		}
	}
	set(&o.Time, d.time)
	set(&o.Warmup, d.warmup)
	if o.Count == 0 {
		o.Count = d.count
	}
	if o.Kills == 0 {
		o.Kills = d.kills
	}
	allowed, err := allowedCPUs()
	if err != nil {
		return nil, err
	}
	o.Topology, _ = topology.Host() // a report says why there is none
	for _, cpu := range o.CPUs {
		if err := usable(cpu, allowed, o.Topology); err != nil {
			return nil, fmt.Errorf("--cpus: %w", err)
		}
	}
	o.CPUs = or(o.CPUs, allowed...)
	if len(f.Nodes) > 0 {
		if o.CPUs, err = onNodes(f.Nodes, o.CPUs, o.Topology); err != nil {
			return nil, err
		}
	}
	if err := o.checkPlaces(allowed); err != nil {
		return nil, err
	}
	if err := o.checkRoles(f.Role); err != nil {
		return nil, err
	}
	if err := o.checkArenas(); err != nil {
		return nil, err
	}
	if err := o.checkShape(); err != nil {
		return nil, err
	}
	if _, err := memShapes(o); err != nil {
		return nil, err
	}
	if o.MiB < 0 || o.MiB > memMostAsked {
		return nil, fmt.Errorf("--mib: %d is not within 0 and %d", o.MiB, memMostAsked)
	}
	if err := o.checkStress(f.Spin); err != nil {
		return nil, err
	}
	return o, o.check()
}

// check refuses what no cell could run with.
func (o *options) check() error {
	positive := func(flag string, list ...int) error {
		for _, v := range list {
			if v < 1 {
				return fmt.Errorf("%s: %d is less than 1", flag, v)
			}
		}
		return nil
	}
	for _, err := range []error{
		positive("--procs", o.Procs...), positive("--threads", o.Threads...),
		positive("--count", o.Count), positive("--kills", o.Kills),
		positive("--time", int(o.Time)), positive("--timeout", int(o.Timeout)),
	} {
		if err != nil {
			return err
		}
	}
	for _, d := range slices.Concat(o.CS, o.Think, o.Gaps, o.Slow, []time.Duration{o.Warmup}) {
		if d < 0 {
			return fmt.Errorf("%v is negative", d)
		}
	}
	return nil
}
