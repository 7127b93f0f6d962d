//go:build linux

package torture

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"time"
)

// outcome is the way in which a victim ends. A victim is a process that the torture starts and lets die.
type outcome int

const (
	outcomeKilled   outcome = iota // SIGKILL
	outcomeNewborn                 // SIGKILL, perhaps before it has joined the arena or opened its objects
	outcomeStopped                 // SIGSTOP, and SIGKILL while the victim is stopped
	outcomeContinue                // SIGSTOP, SIGCONT, and SIGKILL later
	outcomeExec                    // the process executes another program
	outcomeExit                    // the process exits without leaving the arena
	outcomePanic                   // the process panics
	outcomeClose                   // the process ends its work, closes the arena, and exits
	outcomes
)

var outcomeNames = [outcomes]string{"killed", "newborn", "stopped", "continued", "exec", "exit", "panic", "close"}

func (f outcome) String() string { return outcomeNames[f] }

// victim is the plan of one of the processes that a torture starts and lets die. The seed of the torture and the number
// of the victim determine the plan.
type victim struct {
	number  int
	outcome outcome
	jobs    uint64        // the jobs that the victim works at, as bits
	g       int           // number of goroutines for each job
	delay   time.Duration // time to the outcome from the first operation, or from the start for outcomeNewborn
	stop    time.Duration // how long the victim is stopped
	after   time.Duration // time from the end of a stop to the kill
	held    time.Duration // if not 0, how long a resident is stopped while the victim dies
	seed    uint64
	c       bool // the victim is a program in C
	step    int  // if not 0: a victim in C dies at this step of a rollback, if it rolls back
}

// RoundSize is the number of victims in a round. After each round, all processes pause and the arena is checked.
const RoundSize = 100

// victimOf returns the plan of the victim with the number i.
func victimOf(seed uint64, i int, only uint64) victim {
	r := rand.New(rand.NewPCG(seed, uint64(i)))
	v := victim{number: i, seed: r.Uint64(), g: 1 + r.IntN(3)}
	switch n := r.IntN(100); {
	case n < 54:
		v.outcome = outcomeKilled
	case n < 76:
		v.outcome = outcomeNewborn
	case n < 80:
		v.outcome = outcomeStopped
	case n < 85:
		v.outcome = outcomeContinue
	case n < 88:
		v.outcome = outcomeExec
	case n < 91:
		v.outcome = outcomeExit
	case n < 94:
		v.outcome = outcomePanic
	default:
		v.outcome = outcomeClose
	}
	us := func(n int) time.Duration { return time.Duration(r.IntN(n)) * time.Microsecond }
	v.delay, v.stop, v.after = us(12_000), us(40_000), us(5_000)
	if v.outcome == outcomeNewborn {
		v.delay = us(25_000)
	}
	if r.IntN(40) == 0 {
		v.held = time.Millisecond + us(40_000)
	}
	// The victim works at only a few jobs, so it spends much of its time within their operations and often dies there.
	for range 1 + r.IntN(4) {
		v.jobs |= nthBit(only, r.IntN(bits.OnesCount64(only)))
	}
	v.drawC(r, only)
	return v
}

// drawC chooses some victims to be programs in C: every second victim if all jobs have workers in C, and fewer
// otherwise.
func (v *victim) drawC(r *rand.Rand, only uint64) {
	set, most := only&dataJobs, 8
	if set == only {
		most = 2
	}
	if set == 0 || r.IntN(most) != 0 {
		return
	}
	// A victim in C lives longer than other victims, so that other processes die during its life, and it rolls back
	// the transactions of these processes.
	v.c, v.jobs, v.delay = true, 0, 3*v.delay
	for range 1 + r.IntN(3) {
		v.jobs |= nthBit(set, r.IntN(bits.OnesCount64(set)))
	}
	switch v.outcome {
	case outcomeKilled, outcomeNewborn, outcomeStopped, outcomeContinue:
		if r.IntN(3) != 0 {
			v.step = 1 + r.IntN(25)
		}
	}
}

// nthBit returns the n-th of the bits that are 1 in the word set.
func nthBit(set uint64, n int) uint64 {
	for range n {
		set &= set - 1
	}
	return set & -set
}

func (v victim) String() string {
	text := fmt.Sprintf("%5d %-9s after %5v at %s", v.number, v.outcome, v.delay, jobList(v.jobs))
	if v.c {
		text += ", in C"
	}
	if v.step != 0 {
		text += fmt.Sprintf(", or at step %d of a rollback", v.step)
	}
	return text
}

// everybodyDies reports whether the parent also kills all residents at the end of a round.
func everybodyDies(seed uint64, round int) bool {
	return rand.New(rand.NewPCG(seed, 1<<63|uint64(round))).IntN(3) == 0
}
