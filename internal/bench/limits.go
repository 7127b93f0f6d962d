//go:build linux

package bench

import (
	"time"

	"github.com/shmsync/shmsync/internal/bench/control"
)

// SeqMostBehind is how many increments a slow consumer is planned to be behind at most. It is half of the increments
// whose instants are kept.
const SeqMostBehind = control.ScratchLanes * control.ScratchTrips / 2

// UncontendedBatch is the number of pairs in one sample. One pair would be too few, because reading the clock takes
// as long as a pair.
const UncontendedBatch = 1000

const (
	// WaitersSettle is how long the process of a crowd that has become quiet is observed.
	WaitersSettle = 30 * time.Millisecond
	// waiterTime is about how long a waiter takes from its start to its end.
	waiterTime = 100 * time.Microsecond
)
