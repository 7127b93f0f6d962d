//go:build linux

package bench

import (
	"time"

	"github.com/shmsync/shmsync/internal/bench/control"
)

// SeqMostBehind is how many increments a slow consumer may be behind, by plan: half of
// those whose instants are kept.
const SeqMostBehind = control.ScratchLanes * control.ScratchTrips / 2

// UncontendedBatch is how many pairs one sample spans: reading the clock costs
// as much as a pair.
const UncontendedBatch = 1000

const (
	// WaitersSettle is how long a crowd that has not much to do any more is
	// looked at.
	WaitersSettle = 30 * time.Millisecond
	// waiterTime is what a waiter takes from its start to its end, about.
	waiterTime = 100 * time.Microsecond
)
