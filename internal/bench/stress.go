//go:build linux

package bench

import "time"

// Stress is what an oversub cell has in addition to its workers.
type Stress struct {
	Load  int // number of workers for each CPU
	Noise int // number of busy loops of SCHED_IDLE on each CPU
	Quota int // percent of one CPU that all workers together get; 0: no bound
}

// oversubMost is how many workers an oversub cell may have.
const oversubMost = 512

func spinName(v uint64) string {
	if v == 0 {
		return "auto"
	}
	return ShortDuration(time.Duration(v - 1))
}
