//go:build linux

package main

import (
	"errors"
	"time"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/place"
	"github.com/shmsync/shmsync/internal/bench/plan"
)

// ints is a list of numbers that a flag gives as text, such as "1,2,4", "0-3,8", "1:8", "1:9:2" or "1:64:*2".
type ints []int

// UnmarshalText parses the list.
func (l *ints) UnmarshalText(text []byte) error {
	v, err := place.ParseInts(string(text))
	*l = v
	return err
}

// common has the flags that every measuring command accepts.
type common struct {
	CPUs     ints            `name:"cpus" placeholder:"LIST" help:"CPUs to use, as in 0-3,8. Default: all that this process may use."`
	Nodes    ints            `placeholder:"LIST" help:"Use only the CPUs of these NUMA nodes. A mem cell uses the nodes in turn."`
	Topology string          `placeholder:"FILE" help:"Plan for the host of a recording, with -n: a directory of topo --record, a .tree file, an archive of tar, or XML of lstopo."`
	Place    []string        `placeholder:"LIST" help:"Placements: same (one CPU), cross (one CPU each), any (unpinned); by what two CPUs share: smt, module, llc, llc-node, node, node-package, package, remote, of which some have a distance, as in remote-21; classes (all of those); pack, spread; or CPUs, as in 0+1."`
	Procs    ints            `placeholder:"LIST" help:"Processes of a cell of threads that all do the same."`
	Threads  ints            `placeholder:"LIST" help:"Threads or goroutines in each process of such a cell."`
	CS       []time.Duration `name:"cs" placeholder:"LIST" help:"Work inside the critical section, as in 0,100ns."`
	Lines    ints            `placeholder:"LIST" help:"Cache lines that the critical section of a lock cell writes. Default: 1."`
	Pad      ints            `placeholder:"LIST" help:"Bytes between the counters of a padding cell. Default: 8,64,128."`
	Home     []string        `placeholder:"LIST" help:"Node of the memory of a home cell: first, second (that of a process's CPU), third (another). Default: all."`
	Data     []string        `placeholder:"LIST" help:"Places of the data of a stream cell: own (of each thread on its node), one (on one node), far (on another), spread (on all in turn). Default: own."`
	Duty     ints            `placeholder:"LIST" help:"Percentage of the time for which each stream of a stream cell streams. Default: 100."`
	Streams  ints            `placeholder:"LIST" help:"Cores that stream in a stream cell. Default: those of a node but one."`
	Think    []time.Duration `placeholder:"LIST" help:"Mean of the exponentially distributed work outside the critical section."`
	Gap      []time.Duration `placeholder:"LIST" help:"How long the waiters of a wake, herd, event or seq cell sleep before each wake; an event or seq cell uses only the first time. Default: 1500us."`
	Hog      ints            `placeholder:"LIST" help:"Busy loops beside the workers of a handoff cell."`
	Kills    int             `placeholder:"N" help:"Kills in each repetition of a crash cell."`
	Role     []string        `placeholder:"LIST" help:"What the victims of a crash cell are: holder, waiter, reader. Default: holder."`
	Waiters  ints            `placeholder:"LIST" help:"Blocked goroutines of a waiters or seq cell."`
	Read     ints            `placeholder:"LIST" help:"Percentage of the holds of a rw cell that are shared, or of the words of a stream cell that are read."`
	Permits  ints            `placeholder:"LIST" help:"Permits of a sem cell."`
	Keys     ints            `placeholder:"LIST" help:"Keys of a multi cell."`
	Locks    ints            `placeholder:"LIST" help:"Keys that each hold of a multi cell takes."`
	Skew     []string        `placeholder:"LIST" help:"How a multi cell picks its keys: uniform, zipf or zipf:THETA, whose k-th key has a weight of k^-THETA; zipf is zipf:0.99."`
	Wake     ints            `placeholder:"LIST" help:"Waiters that each step of a seq cell wakes, of those of --waiters."`
	Batch    ints            `placeholder:"LIST" help:"Items that a queue cell moves at a time."`
	Mem      []string        `placeholder:"LIST" help:"Placements of the memory of a mem cell, as in first-touch,bind:0,interleave:0-1."`
	Huge     []string        `placeholder:"LIST" help:"Pages of the memory of a mem cell: none, thp, 2M, 1G."`
	MiB      int             `name:"mib" placeholder:"N" help:"Memory of a mem cell, or of the chain and of each stream of a stream cell, in MiB. Default: four times the largest cache."`
	Capacity ints            `placeholder:"LIST" help:"Items that fit into the queue of a queue or cond cell."`
	Rate     ints            `placeholder:"LIST" help:"Operations a second that an open cell starts, whether earlier ones have ended or not."`
	Load     ints            `placeholder:"LIST" help:"Workers of an oversub cell for each CPU."`
	Noise    ints            `placeholder:"LIST" help:"Busy loops of SCHED_IDLE on each CPU of an oversub cell."`
	Quota    ints            `placeholder:"LIST" help:"CPU time of an oversub cell's workers, in percent of one CPU, by cgroup; 0: no limit."`
	Spin     []string        `placeholder:"LIST" help:"Spin budgets of the waiters of a lock or oversub cell: auto, or a time, as in auto,0,20us."`
	Slow     []time.Duration `placeholder:"LIST" help:"Work of each of the --wake consumers of a seq cell after a wake, while the counter goes on. Default: none; then the counter waits for the consumers."`
	Arena    []string        `placeholder:"LIST" help:"Where the memory that subjects share lies: memfd, or a directory such as /dev/shm. Default: memfd."`
	Prim     []string        `placeholder:"PATTERN" help:"Subjects, as in c:futex, 'c:*' or 'go:*,in-process:*'. Default: all."`
	Variant  []string        `placeholder:"PATTERN" help:"Variants of these subjects. The variant is what follows the first dash of a name, as in cohort, near, no*; plain stands for a name without a dash. Default: all."`

	Time     time.Duration  `placeholder:"D" help:"Measured time of each repetition."`
	Warmup   *time.Duration `placeholder:"D" help:"Time of each repetition before the measured time; its samples do not count."`
	Count    int            `short:"c" placeholder:"N" help:"Repetitions of each cell, interleaved with those of the others."`
	Seed     uint64         `default:"1" help:"Seed of the order and of think times."`
	Shuffle  bool           `default:"true" negatable:"" help:"Run each round in a random order."`
	Timeout  time.Duration  `default:"10s" help:"How much longer than planned a repetition may take before it counts as hung."`
	MaxCells int            `name:"max-cells" placeholder:"N" help:"Plan at most this many cells. Default: 500."`
	Strict   bool           `help:"Exit with status 2 if a cell was skipped."`

	Format  string `enum:"table,bench,json,csv,hgrm" default:"table" help:"What standard output gets: ${enum}."`
	Details bool   `help:"Print a table of each group of cells. Without it, a suite prints only its decisions."`
	Out     string `short:"o" placeholder:"FILE" help:"Also write the results to this file, as JSON, for compare, report and export."`
	HTML    string `name:"html" placeholder:"FILE" help:"Also write a page with pictures to this file."`
	CC      string `name:"cc" default:"cc" env:"SHMBENCH_CC" help:"C compiler for the peers in C, or none."`
	Helper  string `placeholder:"FILE" help:"Run the peers in C by this program, which shmbench helper has built, in place of a compiler."`
	DryRun  bool   `short:"n" help:"Print the plan and how long it takes; measure nothing."`
	Verbose bool   `short:"v" help:"Report each repetition on standard error."`
}

// options checks the values of the flags, fills in the defaults d, and returns the options of the plan.
func (f *common) options(d plan.Defaults) (*plan.Options, error) {
	o := &plan.Options{
		CPUs: f.CPUs, Recording: f.Topology, Places: f.Place, Procs: f.Procs, Threads: f.Threads, CS: f.CS, Think: f.Think,
		Gap: bench.Or(f.Gap, plan.UsualGap)[0], Gaps: f.Gap, Hogs: f.Hog, Kills: f.Kills, Waiters: f.Waiters, Prims: f.Prim, Variants: f.Variant,
		Read: f.Read, Permits: f.Permits, Keys: f.Keys, Locks: f.Locks, Skew: f.Skew, Wake: f.Wake, Batch: f.Batch,
		Capacity: f.Capacity, Mem: f.Mem, Nodes: f.Nodes, Huge: f.Huge, MiB: f.MiB,
		Arenas: f.Arena, Lines: f.Lines, Pads: f.Pad, Slow: f.Slow, Homes: f.Home, Data: f.Data, Duty: f.Duty, Streams: f.Streams, MaxCells: f.MaxCells, Rates: f.Rate, Loads: f.Load, Noise: f.Noise, Quotas: f.Quota,
		Time: f.Time, Count: f.Count, Seed: f.Seed, Shuffle: f.Shuffle, Timeout: f.Timeout,
	}
	if o.Time == 0 {
		o.Time = d.Time
	}
	if o.Warmup = d.Warmup; f.Warmup != nil {
		o.Warmup = *f.Warmup
	}
	if o.Count == 0 {
		o.Count = d.Count
	}
	if o.Kills == 0 {
		o.Kills = d.Kills
	}
	if f.Topology != "" && !f.DryRun {
		return nil, errors.New("--topology shows the plan of another host: add -n")
	}
	if err := o.Complete(f.Role, f.Spin); err != nil {
		return nil, err
	}
	return o, nil
}
