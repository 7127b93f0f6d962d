//go:build linux

package torture

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"time"
)

// outcome is how a victim ends.
type outcome int

const (
	outcomeKilled   outcome = iota // SIGKILL
	outcomeNewborn                 // SIGKILL, perhaps before it has joined or opened
	outcomeStopped                 // SIGSTOP, and SIGKILL while it is stopped
	outcomeContinue                // SIGSTOP, SIGCONT, and SIGKILL later
	outcomeExec                    // becomes another program
	outcomeExit                    // exits without a word
	outcomePanic                   // panics
	outcomeClose                   // ends its work, closes, and exits
	outcomes
)

var outcomeNames = [outcomes]string{"killed", "newborn", "stopped", "continued", "exec", "exit", "panic", "close"}

func (f outcome) String() string { return outcomeNames[f] }

// victim is one of the processes that a torture starts and lets die. The seed and the number of the
// victim determine all that it does.
type victim struct {
	number  int
	outcome outcome
	jobs    uint64        // the jobs that it works at, as bits
	g       int           // goroutines at each
	delay   time.Duration // time from its first turn, or from its start, to its outcome
	stop    time.Duration // how long it is stopped
	after   time.Duration // time from its outcome to its death
	held    time.Duration // if not 0, a resident is stopped for so long while it dies
	seed    uint64
	c       bool // it is a program in C
	step    int  // in C: it dies at this step of rolling back, if it comes to that; 0: no
}

// RoundSize is how many victims there are between two points of rest.
const RoundSize = 100

// victimOf plans victim i.
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
	// Few jobs, so that it dies inside them.
	for range 1 + r.IntN(4) {
		v.jobs |= nthBit(only, r.IntN(bits.OnesCount64(only)))
	}
	v.drawC(r, only)
	return v
}

// drawC makes some victims programs in C: every second one where all jobs have workers in C.
func (v *victim) drawC(r *rand.Rand, only uint64) {
	set, most := only&dataJobs, 8
	if set == only {
		most = 2
	}
	if set == 0 || r.IntN(most) != 0 {
		return
	}
	// It lives longer than others, so that others die before it and it rolls back.
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

// everybodyDies says whether the residents die, too, at the end of a round.
func everybodyDies(seed uint64, round int) bool {
	return rand.New(rand.NewPCG(seed, 1<<63|uint64(round))).IntN(3) == 0
}
