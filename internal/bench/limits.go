//go:build linux

package bench

import (
	"time"

	"github.com/shmsync/shmsync/internal/bench/control"
)

// SeqMostBehind is the largest number of increments by which a plan lets a slow consumer fall behind. The scratch
// area keeps the times of twice as many increments.
const SeqMostBehind = control.ScratchLanes * control.ScratchTrips / 2

// UncontendedBatch is the number of pairs of lock and unlock in one sample. One pair would be too few, because reading
// the clock takes as long as a pair.
const UncontendedBatch = 1000

const (
	// WaitersSettle is how long a process with many waiters is observed, to see whether it is quiet.
	WaitersSettle = 30 * time.Millisecond
	// waiterTime is about how long a waiter takes from its start to its end.
	waiterTime = 100 * time.Microsecond
)
