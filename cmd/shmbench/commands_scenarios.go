//go:build linux

package main

import (
	"fmt"
	"time"

	"github.com/shmsync/shmsync/internal/bench/plan"
)

// These types are commands of shmbench. Each command measures one or more scenarios, that is, kinds of measurement.
// The method Help of a command returns its help text. For each scenario, the text says what a measurement does, which
// figures it gives, and what it checks.
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
	return `readers: each of --procs processes takes a lock for reading and releases it. The figure is
the time of one lock and unlock. Checked: a writer does not get a lock that a reader holds.

rw: of a hundred holds, --read are for reading. p99-ns is the wait of readers; write-p50-ns
and write-p99-ns are waits of writers. A writer changes one word at the beginning of its
hold, and another word at the end. Checked: a reader finds the same value in both words,
even if it reads the second one at the end of its hold, and in the end both words equal the
number of writes.`
}

// Run measures the permits of a counting semaphore.
func (semCmd) Run(s *session) error { return s.measure(plan.Usual, commandScenarios["sem"]...) }

// Help says what the measurement does, which figures it gives, and what it checks.
func (semCmd) Help() string {
	return `Each thread acquires one of --permits permits, works for --cs, and releases the permit.
held-max is the largest number of threads that held a permit at the same time. Checked: it
is never more than the number of permits, and no thread holds a permit in the end.`
}

// Run measures condition variables, by means of a bounded buffer.
func (condCmd) Run(s *session) error { return s.measure(plan.Usual, commandScenarios["cond"]...) }

// Help says what the measurement does, which figures it gives, and what it checks.
func (condCmd) Help() string {
	return `The first half of the threads put items into a buffer of --capacity, which a lock guards.
The other threads take the items out. Condition variables say that there are items, and
that there is room. p50-ns and p99-ns are the times from the beginning of the put until a
thread has the item. Checked: every item arrives exactly once, and the items of each
producer arrive in their order.`
}

// Run measures how long an event takes to release many waiters.
func (eventCmd) Run(s *session) error { return s.measure(plan.Usual, commandScenarios["event"]...) }

// Help says what the measurement does, which figures it gives, and what it checks.
func (eventCmd) Help() string {
	return `After each --gap, the first process lets all threads of the other processes go. p50-ns is
the time until the last of these threads runs. each-p50-ns is the same time for a single
thread. set-p50-ns is the cost of the call that lets them go. Checked: every thread comes
through every round, and no thread comes through before the round began.`
}

// Run measures a counter for whose values many goroutines wait.
func (seqCmd) Run(s *session) error { return s.measure(plan.Usual, commandScenarios["seq"]...) }

// Help says what the measurement does, which figures it gives, and what it checks.
func (seqCmd) Help() string {
	return `One process increments a counter, and --waiters goroutines of another process wait for its
values: --wake of them for the next value, and the others for values that never come. p50-ns
is the cost of an increment. Increments that wake no goroutine are measured in batches.
all-p50-ns is the time until the last of the woken goroutines runs. Checked: those that wait
for the next value come through every round, and not before it began; the others never come
through; in the end the value is the number of increments.

With --slow, the process increments the counter after every --gap, and waits for nobody. Each
woken goroutine works for the time that --slow says, and then waits for the value after the
one that it saw. p50-ns is then the time from an increment until a goroutine saw the value.
lag-p50 and lag-max say how many values the goroutine had missed by then. Checked: no
goroutine comes through before its value, and each has seen every value in the end.`
}

// Run measures tables of locks, in which each key has a lock.
func (multiCmd) Run(s *session) error { return s.measure(plan.Usual, commandScenarios["multi"]...) }

// Help says what the measurement does, which figures it gives, and what it checks.
func (multiCmd) Help() string {
	return `Each hold takes --locks of --keys keys, which are drawn as --skew says. Before some of the
holds, the thread checks whether one of the keys is held. waited is the share of these checks
that found a held key. Checked: each key guards a plain counter, and the sum of all counters
equals the number of keys taken.`
}

// Run measures barriers, at which all threads wait for each other.
func (barrierCmd) Run(s *session) error { return s.measure(plan.Usual, commandScenarios["barrier"]...) }

// Help says what the measurement does, which figures it gives, and what it checks.
func (barrierCmd) Help() string {
	return `All threads work for --cs and then wait for each other, again and again. p50-ns is the time of
a phase. Checked: after each phase, every thread has come to it, and no thread is beyond the
next phase.`
}

// Run measures queues that pass items from producers to consumers.
func (queueCmd) Run(s *session) error { return s.measure(plan.Usual, commandScenarios["queue"]...) }

// Help says what the measurement does, which figures it gives, and what it checks.
func (queueCmd) Help() string {
	return `The first half of the threads put items into a queue of --capacity, --batch items at a time.
The other threads take the items out. p50-ns and p99-ns are the times from the beginning of
the put until a thread has the item. Checked: every item arrives exactly once, and the items
of each producer arrive in their order. Whatever --capacity says, a pipe holds at least a
page, and a socket holds as much as its buffer.`
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

// Run measures how access to the memory of an arena depends on the NUMA nodes on which the memory lies.
func (memCmd) Run(s *session) error { return s.measure(plan.Usual, commandScenarios["mem"]...) }

// Help says what the measurement does, which figures it gives, and what it checks.
func (memCmd) Help() string {
	return `For each of --nodes, a worker on a CPU of the node uses the memory of an arena. The memory is
placed as each of --mem says: first-touch, bind:1, prefer:0, prefer-many:0-1, interleave:0-1,
weighted:0-1. A placement without nodes stands for each node in turn, or for all nodes. The
memory has pages as --huge says: none (the usual ones), thp, 2M, 1G. chase-ns is the time of a
load that depends on the load before it. scan-MB/s is the throughput of one stream of loads.
data-ns is the time of a hold of a lock in the arena, with a few lines of its memory under the
lock. as-asked-% is the share of the memory that is on the requested nodes. Checked: the chain
of loads comes back to its beginning, all words add up, and the counter under the lock is the
number of holds.`
}

// Run measures how much counters of different threads slow each other down, depending on the distance between them.
func (paddingCmd) Run(s *session) error { return s.measure(plan.Usual, commandScenarios["padding"]...) }

// Help says what the measurement does, which figures it gives, and what it checks.
func (paddingCmd) Help() string {
	return `Let each thread increment a counter of its own, and place the counters --pad bytes apart.
At 8 bytes they lie on one line, which the CPUs take from each other: false sharing. At 64
bytes they have a line each, which some CPUs still fetch in pairs; at 128 bytes they never
share. Checked: each counter has as many increments as its thread made.`
}

// Run measures how the speed of a lock that two processes share depends on the NUMA node of the lock's memory.
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

// Run measures locks that are biased toward one process, and the fences that take a bias away.
func (biasCmd) Run(s *session) error { return s.measure(plan.Usual, commandScenarios["bias"]...) }

// Help says what each measurement does, which figures it gives, and what it checks.
func (biasCmd) Help() string {
	return `intruder: a process takes a lock and releases it, as fast as it can; ops/s is its throughput.
Another one takes the lock once after each --gap; p50-ns and p99-ns are how long it waits. A
Mutex is biased toward its owner, and the first hold of another process takes the bias away;
mutex-checked is never biased. Checked: the counter under the lock.

fence: a membarrier takes a bias away. The figures are its time in one of --procs processes
with --threads threads each. Each of these threads is busy on a CPU of its own, and the
membarrier interrupts all of these CPUs.`
}
