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
	"github.com/shmsync/shmsync/internal/cmdline"
	"github.com/shmsync/shmsync/internal/torture"
)

type program struct {
	common
	Version versionFlag `help:"Print the version and the commit, and exit."`

	Suite       suiteCmd       `cmd:"" default:"withargs" help:"Measure every scenario briefly, and print decisions (default)."`
	Uncontended uncontendedCmd `cmd:"" help:"Measure lock and unlock of a lock that no other thread wants."`
	Handoff     handoffCmd     `cmd:"" help:"Pass a token between two processes: round trips, and one-way wakes."`
	Lock        lockCmd        `cmd:"" help:"Measure throughput and fairness of a contended lock."`
	Crash       crashCmd       `cmd:"" help:"Kill the owner of a lock, and measure the time until the next one owns it."`
	Wake        wakeCmd        `cmd:"" help:"Measure wakes against how long the waiter slept, and wakes of some of many."`
	Oversub     oversubCmd     `cmd:"" help:"Measure a lock of more workers than CPUs, by how long its waiters spin."`
	Peers       peersCmd       `cmd:"" help:"Compare the library with every synchronization primitive that this host offers."`
	Waiters     waitersCmd     `cmd:"" help:"Measure the threads, memory and CPU time of blocked goroutines."`
	RW          rwCmd          `cmd:"" name:"rw" help:"Measure concurrent readers, and readers mixed with writers."`
	Sem         semCmd         `cmd:"" help:"Measure permits of a counting semaphore."`
	Cond        condCmd        `cmd:"" help:"Measure a bounded buffer behind a lock, with condition variables."`
	Event       eventCmd       `cmd:"" help:"Measure how long one Set takes to release many waiters."`
	Seq         seqCmd         `cmd:"" help:"Measure a counter for which many wait: a step that wakes none or some of them."`
	Multi       multiCmd       `cmd:"" help:"Measure locks by key."`
	Barrier     barrierCmd     `cmd:"" help:"Measure phases at which all threads wait for each other."`
	Padding     paddingCmd     `cmd:"" help:"Measure false sharing: counters of different threads, by their distance."`
	Home        homeCmd        `cmd:"" help:"Measure a lock of two processes by the node on which its memory lies."`
	Queue       queueCmd       `cmd:"" help:"Measure items that pass from producers to consumers."`
	Mem         memCmd         `cmd:"" help:"Measure the memory of an arena by its placement: latency, scans, data under a lock."`
	Bias        biasCmd        `cmd:"" help:"Measure a biased lock that another process takes now and then, and the fence that this costs."`
	Stream      streamCmd      `cmd:"" help:"Measure loads while other cores stream through memory: latency against bandwidth."`
	Topo        topoCmd        `cmd:"" help:"Show the CPUs, caches and NUMA nodes of this host."`
	Matrix      matrixCmd      `cmd:"" help:"Measure how long a cache line takes from each CPU to each other."`
	Bars        barsCmd        `cmd:"" help:"Check the project's bars: ratios to peers, passed, failed or open."`
	Compare     compareCmd     `cmd:"" help:"Compare result files, and tell differences from chance."`
	Recommend   recommendCmd   `cmd:"" help:"Print advice on placement, spinning and kinds of lock, from a result file."`
	Report      reportCmd      `cmd:"" help:"Draw result files as a page with pictures."`
	Export      exportCmd      `cmd:"" help:"Write a result file in another format."`
	BuildHelper helperCmd      `cmd:"" name:"helper" help:"Build the peers in C, for a host that has no compiler."`
	Torture     tortureCmd     `cmd:"" help:"Kill processes that use all primitives, and check what survives."`
	Stopstorm   stopStormCmd   `cmd:"" help:"Stop processes in the middle of their work, and check that the others go on."`
	Selftest    selftestCmd    `cmd:"" help:"Prove that the library works here; measure nothing."`
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

const description = `Measure synchronization between processes on this host, beside what the host already offers.

Results go to standard output, everything else to standard error.

Examples:
  shmbench --out run.json --html run.html   measure, keep the figures, draw a page
  shmbench -n --topology host.tree          print the plan for a recorded host

Each command has examples of its own: shmbench COMMAND --help.

An environment variable can stand for a flag that is not given: SHMBENCH_MAX_CELLS for
--max-cells.

Exit status: 0 ok, 1 usage, environment or a failed bar, 2 skipped cells under
--strict, 3 a subject broke its promise, 4 a worker crashed or hung.`

// envPrefix is the beginning of the names of the environment variables for flags.
const envPrefix = "SHMBENCH"

func main() { os.Exit(realMain(os.Args[1:], os.Stdout, os.Stderr)) }

// realMain does the work of the function main. The arguments and the output streams are parameters, so that tests can
// replace them.
func realMain(args []string, stdout, stderr io.Writer) int {
	var p program
	parser, err := kong.New(&p, append(cmdline.Options(), kong.Name("shmbench"), kong.Description(description),
		kong.Writers(stdout, stderr), kong.Vars{"torturejobs": torture.JobNames()}, kong.DefaultEnvars(envPrefix),
		kong.Help(helpOf), kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true}),
		kong.ValueFormatter(func(v *kong.Value) string { return v.Help }))...) // omits the environment variable of each flag
	if err != nil {
		fmt.Fprintln(stderr, "shmbench:", err)
		return exitUsage
	}
	k, err := parser.Parse(withoutSides(args))
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

// Run measures lock and unlock of a lock that no other thread wants.
func (uncontendedCmd) Run(s *session) error {
	return s.measure(plan.Usual, commandScenarios["uncontended"]...)
}

// Run measures how long two processes take to pass a token to each other, and how long they take to wake each other.
func (handoffCmd) Run(s *session) error { return s.measure(plan.Usual, commandScenarios["handoff"]...) }

// Help says what each measurement does, which figures it gives, and what it checks.
func (handoffCmd) Help() string {
	return `Two processes pass a token to and fro, each as soon as it has the token. p50-ns is the time of
a round trip. slept is the share of sampled round trips in which the first process gave up
its CPU until the token was back. In the other round trips spinning or yielding was enough, or
the process was preempted and the token was there when it ran again. ctxsw/op counts the
context switches of both processes. Peers in C do not report how often they slept. A second
scenario measures what one wake costs: see shmbench wake --help. Checked: each token arrives.`
}

// Run measures a contended lock. If the user gives a rate, it measures a lock that threads take at that rate instead.
func (lockCmd) Run(s *session) error {
	if len(s.common.Rate) > 0 {
		if len(s.common.Lines) > 0 {
			return errors.New("--lines means nothing with --rate")
		}
		return s.measure(plan.Usual, "open")
	}
	return s.measure(plan.Usual, "lock")
}

// Help says what each measurement does, which figures it gives, and what it checks.
func (lockCmd) Help() string {
	return `Each thread works for --think, locks, works for --cs, and unlocks. p99-ns is the wait for the
lock. jain says how evenly the threads get the lock: 1 means equally often. from-… is the
share of holds by the place where the previous holder ran.

With --rate, operations begin when they are due, whether earlier ones have ended or not (an
open loop). p99-ns is then the time from when an operation was due until it had the lock.
closed-p99-ns is the time from its call, as the usual loop would report it. corrected-p99-ns
is estimated from those times, as HdrHistogram does. behind is the number of operations that
were due in the end, and had not begun.

Checked: the counter under the lock equals the number of acquisitions. With --lines, each
holder also checks that a word in each line equals the counter.`
}

// Help says what the measurement does, which figures it gives, and what it checks.
func (crashCmd) Help() string {
	return `A process is killed while it holds a lock, again and again. p50-ns is the time from the kill
until another process owns the lock, and told-p50-ns the time until that process is told of
the death. The table below has both, from all kills together. Its p99 needs 441 kills;
--kills 37 makes them in twelve repetitions.

With --role, victims of other roles are killed, for locks of the library. A waiter is killed
while another waiter waits, or one of two readers is killed while a writer waits. The process
that holds the lock unlocks it when it hears of the kill. passed-p50-ns is the time from that
unlock until the next process owns the lock.

Checked: no process owns the lock too early. In an arena of the library, all dead processes
are reaped in the end, and the arena is sound and has no more in it than after the first
death.`
}

// Run measures how long it takes until a lock whose owner was killed has a new owner.
func (crashCmd) Run(s *session) error { return s.measure(plan.Usual, commandScenarios["crash"]...) }

// Run measures the threads, the memory and the CPU time of goroutines that wait.
func (waitersCmd) Run(s *session) error { return s.measure(plan.Usual, commandScenarios["waiters"]...) }

// Run runs one worker process of a measurement.
func (c *workerCmd) Run(s *session) error {
	if c.Busy != nil {
		return load.RunHog(*c.Busy, c.Idle)
	}
	return load.RunWorker(c.Proc)
}
