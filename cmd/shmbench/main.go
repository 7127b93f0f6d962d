//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/shmsync/shmsync/internal/bench/load"
	"github.com/shmsync/shmsync/internal/bench/plan"
	"github.com/shmsync/shmsync/internal/torture"
)

type program struct {
	common
	Version versionFlag `help:"Print the version and the commit, and exit."`

	Suite       suiteCmd       `cmd:"" default:"withargs" help:"Every scenario, shortly (default)."`
	Uncontended uncontendedCmd `cmd:"" help:"Lock and unlock where nobody else wants the lock."`
	Handoff     handoffCmd     `cmd:"" help:"Pass a token between two processes: round trips, and one-way wakes."`
	Lock        lockCmd        `cmd:"" help:"Throughput and fairness of a contended lock."`
	Crash       crashCmd       `cmd:"" help:"Kill the owner: time until the next one owns."`
	Wake        wakeCmd        `cmd:"" help:"Wakes, against how long the other slept, and of some of many."`
	Oversub     oversubCmd     `cmd:"" help:"A lock of more workers than CPUs, by how long its waiters spin."`
	Peers       peersCmd       `cmd:"" help:"Everything that this host has besides, and the library."`
	Waiters     waitersCmd     `cmd:"" help:"Threads and memory that blocked goroutines cost, and CPU that a long wait does."`
	RW          rwCmd          `cmd:"" name:"rw" help:"Readers at once, and readers mixed with writers."`
	Sem         semCmd         `cmd:"" help:"Permits of a counting semaphore."`
	Cond        condCmd        `cmd:"" help:"A bounded buffer behind a lock, with condition variables."`
	Event       eventCmd       `cmd:"" help:"One lets many go: until the last of them runs."`
	Seq         seqCmd         `cmd:"" help:"A counter that many wait for: a step that wakes none or some of them."`
	Multi       multiCmd       `cmd:"" help:"Locks by key."`
	Barrier     barrierCmd     `cmd:"" help:"Phases that everybody must come to."`
	Padding     paddingCmd     `cmd:"" help:"Counters of different threads, by their distance: what false sharing costs."`
	Queue       queueCmd       `cmd:"" help:"Items from producers to consumers."`
	Mem         memCmd         `cmd:"" help:"Memory of an arena by where it is: latency, scans, data under a lock."`
	Topo        topoCmd        `cmd:"" help:"CPUs, caches and NUMA nodes of this host."`
	Matrix      matrixCmd      `cmd:"" help:"How long a cache line takes from each CPU to each other."`
	Bars        barsCmd        `cmd:"" help:"The project's bars: ratios to peers, passed or failed."`
	Compare     compareCmd     `cmd:"" help:"What differs between two result files, beyond chance."`
	Recommend   recommendCmd   `cmd:"" help:"Advice on placement, spinning and kinds of lock, from a result file."`
	Report      reportCmd      `cmd:"" help:"A result file as a page with pictures."`
	Export      exportCmd      `cmd:"" help:"A result file in another format."`
	BuildHelper helperCmd      `cmd:"" name:"helper" help:"Build the peers in C, for a host that has no compiler."`
	Torture     tortureCmd     `cmd:"" help:"Processes that die over all primitives, and what survives that."`
	Stopstorm   stopStormCmd   `cmd:"" help:"Stop processes in the middle of their work: do the others go on?"`
	Selftest    selftestCmd    `cmd:"" help:"Proofs that the library works here; measures nothing."`
	Worker      workerCmd      `cmd:"" hidden:""`

	SelftestWorker selftestWorkerCmd `cmd:"" hidden:""`

	TortureWorker tortureWorkerCmd `cmd:"" hidden:""`

	StopstormWorker stopStormWorkerCmd `cmd:"" hidden:""`
}

type (
	uncontendedCmd struct{}
	handoffCmd     struct{}
	lockCmd        struct{}
	crashCmd       struct{}
	waitersCmd     struct{}
	workerCmd      struct {
		Proc int  `arg:"" optional:"" help:"Index of the process."`
		Busy *int `help:"Keep this CPU busy instead."`
		Idle bool `help:"But only where nothing else wants to run."`
	}
)

const description = `Measures cross-process synchronization on this host, beside what the host already offers.

Results go to standard output, everything else to standard error.

Examples:
  shmbench                                       the quick suite, under a minute
  shmbench -n                                    what that would run, and how long
  shmbench handoff --place cross,same --count 10
  shmbench handoff --place same --hog 0,1        beside a CPU hog
  shmbench handoff --place smt,llc,package,0+5   by what CPUs share, or these two
  shmbench topo --html host.html                 this host; --record DIR keeps it for others
  shmbench matrix --html matrix.html             a cache line from each CPU to each other
  shmbench recommend results.json                what to do about it
  shmbench lock --procs 2,4 --threads 1,8 --cs 100ns,1us --think 100ns
  shmbench lock --rate 10000,100000              an open loop
  shmbench lock --prim 'c:*,in-process:*' --format bench > lock.txt
  shmbench crash --kills 300 --role holder,waiter,reader
  shmbench rw --read 50,90,99 --cs 0,1us         and --prim '*:mutex,*:rw*' to see what it gains
  shmbench seq --waiters 10000 --wake 1:10000:*10
  shmbench multi --keys 1,16,1024 --skew uniform,zipf:1.2 --locks 1,2
  shmbench crash --arena memfd,/dev/shm          where the memory lies that they share
  shmbench queue --procs 2,4 --batch 1,16
  shmbench mem --mem bind,interleave:0-1 --huge none,thp
  shmbench bars --only 'round trip'
  shmbench torture --duration 10m --seed 0      and --only mutex,queue for some
  shmbench stopstorm --prim mutex,queue          does a stopped process hold up others?
  benchstat -row .name,/prim -col /place lock.txt
  shmbench suite --std --out a.json              and b.json after a change, then
  shmbench compare a.json b.json
  shmbench suite --html report.html              pictures

What no flag says, the environment can: SHMBENCH_MAX_CELLS stands for --max-cells.

Exit status: 0 ok, 1 usage, environment or a failed bar, 2 skipped cells under
--strict, 3 a subject broke its promise, 4 a worker crashed or hung.`

// envPrefix is the beginning of the names of the environment variables for flags.
const envPrefix = "SHMBENCH"

func main() { os.Exit(realMain(os.Args[1:], os.Stdout, os.Stderr)) }

// realMain is main with its environment as arguments.
func realMain(args []string, stdout, stderr io.Writer) int {
	var p program
	parser, err := kong.New(&p, kong.Name("shmbench"), kong.Description(description),
		kong.Writers(stdout, stderr), kong.Vars{"torturejobs": torture.JobNames()}, kong.DefaultEnvars(envPrefix),
		kong.Help(helpOf), kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true}),
		kong.ValueFormatter(func(v *kong.Value) string { return v.Help })) // without the variable of each flag
	if err != nil {
		fmt.Fprintln(stderr, "shmbench:", err)
		return exitUsage
	}
	k, err := parser.Parse(args)
	if err == nil {
		err = refuseZeros(k)
	}
	if err != nil {
		fmt.Fprintln(stderr, "shmbench:", err)
		return exitUsage
	}
	warnUnheeded(stderr, k)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err = k.Run(&session{ctx: ctx, common: &p.common, stdout: stdout, stderr: stderr, args: args})
	var s status
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &s):
		return int(s)
	}
	fmt.Fprintln(stderr, "shmbench:", err)
	return exitUsage
}

// Run runs the scenario.
func (uncontendedCmd) Run(s *session) error {
	return s.measure(plan.Usual, commandScenarios["uncontended"]...)
}

// Run runs the scenarios.
func (handoffCmd) Run(s *session) error { return s.measure(plan.Usual, commandScenarios["handoff"]...) }

// Help describes the cells.
func (handoffCmd) Help() string {
	return `Two processes pass a token to and fro, each as soon as it has it: p50-ns is a round trip.
slept is the part of those, of a sample, in which the first process gave up its CPU until
the token was back; in the others spinning or yielding was enough, or it was preempted and
the token was there before it looked. ctxsw/op counts both processes. Peers in C do not
tell how often they slept. Then, what one wake costs: see wake. Checked: the tokens.`
}

// Run runs the scenario; with a rate, that of locks taken at it.
func (lockCmd) Run(s *session) error {
	if len(s.common.Rate) > 0 {
		if len(s.common.Lines) > 0 {
			return errors.New("--lines means nothing with --rate")
		}
		return s.measure(plan.Usual, "open")
	}
	return s.measure(plan.Usual, "lock")
}

// Help describes the cells.
func (lockCmd) Help() string {
	return `All threads work for --think, lock, work for --cs, unlock. p99-ns is what one waits for the
lock, jain how evenly it goes round, from-… where it came from.

With --rate, operations begin when they are due, whether those before have ended or not
(an open loop): p99-ns is then from when one was due until it had the lock. closed-p99-ns
is from its call, as the usual loop would tell; corrected-p99-ns is estimated from that, as
HdrHistogram does; behind counts those that were due and had not begun in the end.

Checked: the counter under the lock equals the acquisitions; with --lines, a word in each
line equals it, too, whoever looks at it under the lock.`
}

// Help describes the cells.
func (crashCmd) Help() string {
	return `A process is killed, again and again; p50-ns is from the kill until another one owns the
lock. With --role, of the library's locks: a waiter is killed before another waiter, or one
of two readers before a writer. The process that holds the lock unlocks it when it hears of
the kill, and passed-p50-ns is from then. Checked: no process owns the lock too early. In an
arena of the library all the dead are reaped in the end, and the arena is sound, with no
more in it than after the first death.`
}

// Run runs the scenario.
func (crashCmd) Run(s *session) error { return s.measure(plan.Usual, commandScenarios["crash"]...) }

// Run runs the scenarios.
func (waitersCmd) Run(s *session) error { return s.measure(plan.Usual, commandScenarios["waiters"]...) }

// Run runs a worker.
func (c *workerCmd) Run(s *session) error {
	if c.Busy != nil {
		return load.RunHog(*c.Busy, c.Idle)
	}
	return load.RunWorker(c.Proc)
}
