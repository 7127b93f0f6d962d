//go:build linux

package main

import (
	"fmt"
	"math"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// stress is what an oversub cell has beside its workers.
type stress struct {
	Load  int // workers for each CPU
	Noise int // busy loops of SCHED_IDLE on each CPU
	Quota int // percent of one CPU that the workers get in all; 0: no bound
}

// oversubMost is how many workers an oversub cell may have.
const oversubMost = 512

// checkStress refuses what no cell could have, and reads the spin budgets.
func (o *options) checkStress(spins []string) error {
	within := func(flag string, least, most int, list []int) error {
		for _, v := range list {
			if v < least || v > most {
				return fmt.Errorf("%s: %d is not within %d and %d", flag, v, least, most)
			}
		}
		return nil
	}
	for _, err := range []error{
		within("--rate", 1, 10_000_000, o.Rates), within("--load", 1, 64, o.Loads),
		within("--noise", 0, 16, o.Noise), within("--quota", 0, 1_000_000, o.Quotas),
	} {
		if err != nil {
			return err
		}
	}
	for _, text := range spins {
		v, err := parseSpin(text)
		if err != nil {
			return err
		}
		o.Spins = append(o.Spins, v)
	}
	return nil
}

// parseSpin reads a spin budget: auto is 0, any other one is its time and 1 ns.
func parseSpin(text string) (uint64, error) {
	if text == "auto" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil && text == "0" {
		d, err = 0, nil
	}
	if err != nil || d < 0 || d > time.Millisecond {
		return 0, fmt.Errorf("--spin %q: want auto, or a time of up to a millisecond", text)
	}
	return uint64(d) + 1, nil
}

func spinName(v uint64) string {
	if v == 0 {
		return "auto"
	}
	return shortDuration(time.Duration(v - 1))
}

// spinOption is the budget as the library's objects take it: 0 is their own choice, and
// less is none.
func spinOption(v uint64) time.Duration {
	switch v {
	case 0:
		return 0
	case 1:
		return -1
	}
	return time.Duration(v - 1)
}

// oversubCells are all workers on all CPUs, more and more of them.
func oversubCells(o *options) (cells []cell) {
	none, short := uint64(1), uint64(20*time.Microsecond)+1
	spins := []uint64{0, none, short}
	if o.Brief {
		spins = []uint64{0, short}
	}
	for _, load := range or(o.Loads, o.some([]int{1, 4}, []int{1, 2, 4, 8})...) {
		for _, noise := range or(o.Noise, o.some([]int{0}, []int{0, 1})...) {
			for _, quota := range or(o.Quotas, 0) {
				for _, spin := range or(o.Spins, spins...) {
					for _, cs := range or(o.CS, 100) {
						for _, think := range or(o.Think, 100) {
							cells = append(cells, cell{Place: placeAny, Procs: load * len(o.CPUs), Threads: 1, CS: cs, Think: think,
								shape: shape{Spin: spin}, stress: stress{Load: load, Noise: noise, Quota: quota}})
						}
					}
				}
			}
		}
	}
	return cells
}

// takesSpin: only some subjects have a budget that can be set.
func takesSpin(c *cell) bool { return c.Spin == 0 || c.Subject.Spins }

// collectOversub does what result.go does for a lock cell.
func collectOversub(rep *repetition, a *account) {
	if total := a.total(); a.counter != total {
		rep.violate("counter under the lock is %d after %d acquisitions", a.counter, total)
	}
	rep.handovers(a.page, hostPlaces())
	rep.throughput(a)
}

// noise keeps each CPU busy with what runs only where nothing else wants to.
func (r *run) noise() error {
	self, err := selfCommand()
	if err != nil {
		return err
	}
	for range r.cell.Noise {
		for _, cpu := range r.cpus {
			if err := r.launch(append(self, "worker", "--idle", "--busy", fmt.Sprint(cpu))); err != nil {
				return err
			}
		}
	}
	return nil
}

// schedIdle has every thread of this process run only where nothing else wants to.
func schedIdle() error {
	runtime.LockOSThread()
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return fmt.Errorf("sched_setattr: %w", err)
	}
	return nil
}

// scaled gives the time of cells whose figure needs so many samples at a rate.
func scaled(samples int, rate float64) time.Duration {
	return time.Duration(math.Ceil(float64(samples) / rate * 1e9))
}
