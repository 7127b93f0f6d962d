//go:build linux

package torture

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"time"
)

// fate is how a victim ends.
type fate int

const (
	fateKilled   fate = iota // SIGKILL
	fateNewborn              // SIGKILL, perhaps before it has joined or opened
	fateStopped              // SIGSTOP, and SIGKILL while it is stopped
	fateContinue             // SIGSTOP, SIGCONT, and SIGKILL later
	fateExec                 // becomes another program
	fateExit                 // exits without a word
	fatePanic                // panics
	fateClose                // ends its work, closes, and exits
	fates
)

var fateNames = [fates]string{"killed", "newborn", "stopped", "continued", "exec", "exit", "panic", "close"}

func (f fate) String() string { return fateNames[f] }

// victim is one of the processes that come to die. It is a function of the seed
// and its number alone.
type victim struct {
	number int
	fate   fate
	jobs   uint64        // what it works at, as bits
	g      int           // goroutines at each
	delay  time.Duration // from its first turn, or its start, to its fate
	stop   time.Duration // how long it is stopped
	after  time.Duration // from then on to its death
	held   time.Duration // if not 0, a resident is stopped for so long while it dies
	seed   uint64
}

// RoundSize is how many victims there are between two points of rest.
const RoundSize = 100

// victimOf plans victim i.
func victimOf(seed uint64, i int, only uint64) victim {
	r := rand.New(rand.NewPCG(seed, uint64(i)))
	v := victim{number: i, seed: r.Uint64(), g: 1 + r.IntN(3)}
	switch n := r.IntN(100); {
	case n < 54:
		v.fate = fateKilled
	case n < 76:
		v.fate = fateNewborn
	case n < 80:
		v.fate = fateStopped
	case n < 85:
		v.fate = fateContinue
	case n < 88:
		v.fate = fateExec
	case n < 91:
		v.fate = fateExit
	case n < 94:
		v.fate = fatePanic
	default:
		v.fate = fateClose
	}
	us := func(n int) time.Duration { return time.Duration(r.IntN(n)) * time.Microsecond }
	v.delay, v.stop, v.after = us(12_000), us(40_000), us(5_000)
	if v.fate == fateNewborn {
		v.delay = us(25_000)
	}
	if r.IntN(40) == 0 {
		v.held = time.Millisecond + us(40_000)
	}
	// Few jobs, so that it dies inside them.
	for range 1 + r.IntN(4) {
		v.jobs |= nthBit(only, r.IntN(bits.OnesCount64(only)))
	}
	return v
}

// nthBit is the n'th of the bits of set.
func nthBit(set uint64, n int) uint64 {
	for range n {
		set &= set - 1
	}
	return set & -set
}

func (v victim) String() string {
	return fmt.Sprintf("%5d %-9s after %5v at %s", v.number, v.fate, v.delay, jobList(v.jobs))
}

// everybodyDies says whether the residents die, too, at the end of a round.
func everybodyDies(seed uint64, round int) bool {
	return rand.New(rand.NewPCG(seed, 1<<63|uint64(round))).IntN(3) == 0
}
