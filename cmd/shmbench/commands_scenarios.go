//go:build linux

package main

import (
	"fmt"
	"time"

	"github.com/shmsync/shmsync/internal/bench/plan"
)

// These types are commands of shmbench. A command measures one or more scenarios, that is, kinds of measurement, that
// use more than a lock or a value that is passed back and forth. The method Help of a command returns its help text.
// For each scenario, the text says what a measurement does, which figures it gives, and what it checks.
type (
	rwCmd      struct{}
	semCmd     struct{}
	condCmd    struct{}
	eventCmd   struct{}
	seqCmd     struct{}
	multiCmd   struct{}
	barrierCmd struct{}
	paddingCmd struct{}
	homeCmd    struct{}
	streamCmd  struct{}
	biasCmd    struct{}
	queueCmd   struct{}
)

// Run measures readers of a lock alone, and readers mixed with writers.
func (rwCmd) Run(s *session) error { return s.measure(plan.Usual, commandScenarios["rw"]...) }

// Help says what each measurement does, which figures it gives, and what it checks.
func (rwCmd) Help() string {
	return `readers: pairs of shared lock and unlock by as many processes as --procs says; the
figure is the time of a pair. Checked: a shared hold keeps writers out.

rw: of a hundred holds --read are shared. p99-ns is of readers, write-… of writers.
Checked: readers see both words that a writer changes alike, at the beginning and at
the end of their hold, and the words equal the number of writes.`
}

// Run measures the permits of a counting semaphore.
func (semCmd) Run(s *session) error { return s.measure(plan.Usual, commandScenarios["sem"]...) }

// Help says what the measurement does, which figures it gives, and what it checks.
func (semCmd) Help() string {
	return `All threads acquire one of --permits, work for --cs, and release it. held-max is the
most that held one at a time. Checked: never more than there are, and none in the end.`
}

// Run measures condition variables, by means of a bounded buffer.
func (condCmd) Run(s *session) error { return s.measure(plan.Usual, commandScenarios["cond"]...) }

// Help says what the measurement does, which figures it gives, and what it checks.
func (condCmd) Help() string {
	return `The first half of the threads put items into a buffer of --capacity behind a lock, the
others get them; condition variables say that there are some, and that there is room.
p50-ns and p99-ns are how long items are on their way. Checked: every item comes
exactly once, those of each producer in their order.`
}

// Run measures how long an event takes to release many waiters.
func (eventCmd) Run(s *session) error { return s.measure(plan.Usual, commandScenarios["event"]...) }

// Help says what the measurement does, which figures it gives, and what it checks.
func (eventCmd) Help() string {
	return `After each --gap the first process lets all threads of the others go. p50-ns is until the
last of them runs, each-p50-ns until any, set-p50-ns what it costs who lets them go.
Checked: all come through every round, and none before it began.`
}

// Run measures a counter for whose values many goroutines wait.
func (seqCmd) Run(s *session) error { return s.measure(plan.Usual, commandScenarios["seq"]...) }

// Help says what the measurement does, which figures it gives, and what it checks.
func (seqCmd) Help() string {
	return `Of --waiters goroutines of one process, --wake wait for the next value of a counter, and
the others for values that do not come; another process increments it. p50-ns is what
an increment costs, of batches of them where none wakes anybody; all-p50-ns is until the
last of the woken runs. Checked: all of those come through every round, none before it
began, none of the others ever; the value is the number of increments.

With --slow, the counter goes on every --gap, and each of the woken works for so long
before it waits for the value after the one that it saw. p50-ns is then from an increment
until a consumer saw it, lag-p50 and lag-max are how many it had missed by then. Checked:
nobody comes before its value, and all see every one in the end.`
}

// Run measures tables of locks, in which each key has a lock.
func (multiCmd) Run(s *session) error { return s.measure(plan.Usual, commandScenarios["multi"]...) }

// Help says what the measurement does, which figures it gives, and what it checks.
func (multiCmd) Help() string {
	return `Each hold takes --locks of --keys, drawn as --skew says. waited is the part of those, of
a sample, before which somebody held one of the keys. Checked: a plain counter under each
key; all of them together equal the number of keys taken.`
}

// Run measures barriers, at which all threads wait for each other.
func (barrierCmd) Run(s *session) error { return s.measure(plan.Usual, commandScenarios["barrier"]...) }

// Help says what the measurement does, which figures it gives, and what it checks.
func (barrierCmd) Help() string {
	return `All threads work for --cs and wait for each other, again and again; p50-ns is the time of
a phase. Checked: after each phase all have come to it, and nobody further than the next.`
}

// Run measures queues that pass items from producers to consumers.
func (queueCmd) Run(s *session) error { return s.measure(plan.Usual, commandScenarios["queue"]...) }

// Help says what the measurement does, which figures it gives, and what it checks.
func (queueCmd) Help() string {
	return `The first half of the threads put --batch items at a time into a queue of --capacity, the
others get them. p50-ns and p99-ns are how long items are on their way. Checked: every
item comes exactly once, those of each producer in their order. A pipe holds at least a
page, and a socket what its buffer does.`
}

// matrixMost limits the time that a matrix, a measurement of many pairs of CPUs, takes for all its rounds. There is at
// least one round, even if that round alone takes longer.
const matrixMost = 55 * time.Second

type matrixCmd struct {
	Sample string `enum:"auto,cpu,llc,node,class" default:"auto" help:"Pairs of all CPUs, or of some of each LLC or node, or one of each class: ${enum}."`
	All    bool   `help:"All pairs of CPUs, also on a large host, which takes minutes there: -n says how many."`
}

// Run measures how long a cache line takes from each CPU to each other CPU.
func (c *matrixCmd) Run(s *session) error {
	if c.All && c.Sample != "auto" {
		return fmt.Errorf("--sample %s takes some pairs, and --all takes all: leave out one of them", c.Sample)
	}
	s.sample, s.all = c.Sample, c.All
	s.most = matrixMost
	return s.measure(plan.Defaults{Time: 50 * time.Millisecond, Warmup: 10 * time.Millisecond, Count: plan.Rounds, Kills: 1}, commandScenarios["matrix"]...)
}

// Help says what the measurement does, which figures it gives, and what it checks.
func (*matrixCmd) Help() string {
	return `Measure how long a cache line takes from each CPU to each other.

Two processes, each on a CPU of its own, pass a cache line to and fro as fast as they
can: by compare-and-swap of one line (one-line), or each writes a line of its own that the
other reads (two-lines). Neither sleeps, pauses or yields. p50-ns is one way: half a round
trip. The first CPU of a pair starts, and its node holds the lines, so each direction is a
cell. One pair of processes moves from pair to pair of CPUs, so that a cell takes a few
milliseconds; --time and --warmup are for a single pair. Checked: both ends count as many
trips.

On more than 48 CPUs some pairs stand for the others, as --sample says. --all measures all
of them, by compare-and-swap of one line unless --prim says otherwise, and each pair in one
direction. The time is printed first, and progress goes to the terminal.`
}

type memCmd struct{}

// Run measures access to the memory of an arena, by the NUMA nodes on which the memory lies.
func (memCmd) Run(s *session) error { return s.measure(plan.Usual, commandScenarios["mem"]...) }

// Help says what the measurement does, which figures it gives, and what it checks.
func (memCmd) Help() string {
	return `A worker on a CPU of each of --nodes goes through the memory of an arena that is placed as
each of --mem says: first-touch, bind:1, prefer:0, prefer-many:0-1, interleave:0-1,
weighted:0-1; without nodes each of them in turn, or all. It has pages as --huge says: none
(the usual ones), thp, 2M, 1G. chase-ns is a load that depends on the one before,
scan-MB/s one stream of loads, data-ns a lock of the arena and a few lines of its memory
under it. What was asked is held against where the pages are. Checked: the chain of loads
comes back, all words add up, and the counter under the lock is the number of holds.`
}

// Run measures how counters of different threads slow each other down, by the distance between the counters.
func (paddingCmd) Run(s *session) error { return s.measure(plan.Usual, commandScenarios["padding"]...) }

// Help says what the measurement does, which figures it gives, and what it checks.
func (paddingCmd) Help() string {
	return `Let each thread increment a counter of its own, and place the counters --pad bytes apart.
At 8 bytes they lie on one line, which the CPUs take from each other: false sharing. At 64
bytes they have a line each, which some CPUs still fetch in pairs; at 128 bytes they never
share. Checked: each counter has as many increments as its thread made.`
}

// Run measures a lock of two processes, by the NUMA node on which the memory of the lock lies.
func (homeCmd) Run(s *session) error { return s.measure(plan.Usual, commandScenarios["home"]...) }

// Help says what the measurement does, which figures it gives, and what it checks.
func (homeCmd) Help() string {
	return `Let two processes share a lock whose memory lies on the node of the first one's CPU (first),
on that of the second one's (second), or on the farthest other node (third). The CPUs are of
the nearest and of the farthest class. Each hold fetches lines that the other CPU has
modified (HITM), and the home decides which node has to know where they are. one-line and
two-lines pass a bare line to and fro: ops/s are round trips. as-asked-% is the share of the
memory that was found on the home afterwards. Checked: the counter under the lock, and that
both ends count as many trips.`
}

// Run measures single loads while other cores read and write memory as fast as they can.
func (streamCmd) Run(s *session) error { return s.measure(plan.Usual, commandScenarios["stream"]...) }

// Help says what the measurement does, which figures it gives, and what it checks.
func (streamCmd) Help() string {
	return `One core follows a chain of loads, each of which depends on the one before: chase-ns. Meanwhile
--streams cores of the same node stream through parts of their own: MB/s is what they read and
write together. --duty is the share of the time for which each of them streams, --read the
share of the words that it reads, and --data where the memory lies: own (of each thread on its
node), one (all on one node), far (all on the farthest other node), spread (on all nodes in
turn). With more streams than a node has cores, the cores of all nodes stream. Checked: the
chain of loads comes back, words that nobody writes stay, and written words are found.`
}

// Run measures locks that are biased toward one process, and the fences that a change of the process costs.
func (biasCmd) Run(s *session) error { return s.measure(plan.Usual, commandScenarios["bias"]...) }

// Help says what each measurement does, which figures it gives, and what it checks.
func (biasCmd) Help() string {
	return `intruder: a process takes a lock and releases it, as fast as it can; ops/s is its throughput.
Another one takes the lock once after each --gap; p50-ns and p99-ns are how long it waits. A
Mutex is biased toward its owner, and the first hold of another process takes the bias away;
mutex-checked is never biased. Checked: the counter under the lock.

fence: what takes a bias away, a membarrier, in a process of --procs processes with --threads
each, all of which are busy on a CPU of their own. It interrupts each of these CPUs.`
}
