//go:build linux

package bench

import "time"

// Stress has the load of an oversub cell.
type Stress struct {
	Load  int // number of workers per CPU
	Noise int // number of busy loops of SCHED_IDLE on each CPU
	Quota int // CPU time of all workers together, in percent of one CPU; 0: no limit
}

// oversubMost is the most workers that an oversub cell may have.
const oversubMost = 512

func spinName(v uint64) string {
	if v == 0 {
		return "auto"
	}
	return ShortDuration(time.Duration(v - 1))
}
