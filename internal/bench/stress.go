//go:build linux

package bench

import "time"

// Stress has the parameters of an oversub measurement, which has more workers than CPUs.
type Stress struct {
	Load  int // number of workers per CPU
	Noise int // number of busy loops on each CPU, with the scheduling policy SCHED_IDLE
	Quota int // CPU time of all workers together, in percent of one CPU; 0: no limit
}

// oversubMost is the largest number of workers in an oversub measurement.
const oversubMost = 512

func spinName(v uint64) string {
	if v == 0 {
		return "auto"
	}
	return ShortDuration(time.Duration(v - 1))
}
