//go:build linux

package plan

import (
	"math"
	"slices"
	"time"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
)

// takesRole reports whether the lock of a crash cell can be measured with the role of its victim, the process that
// is killed. If the victim is a reader, the lock must have a mode for readers. If the victim is a waiter or a
// reader, two goroutines of the survivor use the lock, and only locks of the library exclude goroutines of one
// process from each other.
func takesRole(c *bench.Cell) bool {
	switch c.Role {
	case bench.RoleWaiter:
		return c.Subject.By == bench.Library
	case bench.RoleReader:
		return c.Subject.By == bench.Library && slices.Contains(c.Subject.Scenarios, "readers")
	}
	return true
}

// herdMost is the largest number of sleepers in a herd measurement. It is low because each sleeper is a process. The
// waiters of other measurements are goroutines, so there may be more of them.
const herdMost = 255

// herdCells returns cells in which many processes sleep in one place and some of them are woken.
func herdCells(o *Options) (cells []bench.Cell) {
	for _, gap := range bench.Or(o.Gaps, o.Gap) {
		for _, place := range bench.Or(o.Places, o.apart()) {
			for _, n := range bench.Or(o.Waiters, o.some([]int{4}, []int{1, 4, 16})...) {
				for _, wake := range slices.Compact(bench.Or(o.Wake, 1, n)) {
					if wake > n || wake == 0 || n > herdMost {
						continue
					}
					cells = append(cells, bench.Cell{Place: place, Procs: n + 1, Threads: 1, N: n, Gap: gap,
						Shape: control.Shape{Wake: uint64(wake)}, Time: fewRounds / 2 * gap})
				}
			}
		}
	}
	return cells
}

// openSamples is the least number of operations of an open measurement. It is enough for p99.
const openSamples = 1200

// openCells returns cells in which threads take locks at a given rate.
func openCells(o *Options) (cells []bench.Cell) {
	for _, rate := range bench.Or(o.Rates, o.some([]int{20_000}, []int{10_000, 100_000})...) {
		for _, cs := range bench.Or(o.CS, time.Microsecond) {
			for _, place := range bench.Or(o.Places, o.apart()) {
				for _, procs := range bench.Or(o.Procs, 2) {
					for _, threads := range bench.Or(o.Threads, 1) {
						cells = append(cells, bench.Cell{Place: place, Procs: procs, Threads: threads, CS: cs,
							Shape: control.Shape{Rate: uint64(rate)}, Time: scaled(openSamples, float64(rate))})
					}
				}
			}
		}
	}
	return cells
}

// These are the least and the largest distance between two counters, in bytes.
const (
	leastPad = 4
	mostPad  = 2048
)

// usualPads are the default distances between two counters. With them, both counters are on one cache line, on two
// lines, or on two pairs of lines.
var usualPads = []int{8, 64, 128}

// paddingCells returns cells in which each thread increments a counter of its own.
func paddingCells(o *Options) (cells []bench.Cell) {
	for _, pad := range bench.Or(o.Pads, usualPads...) {
		for _, place := range bench.Or(o.Places, o.apart()) {
			for _, procs := range bench.Or(o.Procs, 2) {
				for _, threads := range bench.Or(o.Threads, 1) {
					cells = append(cells, bench.Cell{Place: place, Procs: procs, Threads: threads, Shape: control.Shape{Pad: uint64(pad)}})
				}
			}
		}
	}
	return cells
}

// loadCells has functions that return the cells of a scenario, by the name of the scenario.
var loadCells = map[string]func(*Options) []bench.Cell{"herd": herdCells, "open": openCells, "oversub": oversubCells, "padding": paddingCells, "home": homeCells, "stream": streamCells,
	"intruder": intruderCells, "fence": fenceCells}

// takers has functions that report whether a cell makes sense for its subject, by the name of the scenario. In a
// scenario without such a function, every cell makes sense.
var takers = map[string]func(*bench.Cell) bool{"lock": takesSpin, "oversub": takesSpin, "crash": takesRole}

// oversubCells returns cells that run more and more workers per CPU, on all CPUs.
func oversubCells(o *Options) (cells []bench.Cell) {
	none, short := uint64(1), uint64(20*time.Microsecond)+1
	spins := []uint64{0, none, short}
	if o.Brief {
		spins = []uint64{0, short}
	}
	for _, load := range bench.Or(o.Loads, o.some([]int{1, 4}, []int{1, 2, 4, 8})...) {
		for _, noise := range bench.Or(o.Noise, o.some([]int{0}, []int{0, 1})...) {
			for _, quota := range bench.Or(o.Quotas, 0) {
				for _, spin := range bench.Or(o.Spins, spins...) {
					for _, cs := range bench.Or(o.CS, 100) {
						for _, think := range bench.Or(o.Think, 100) {
							cells = append(cells, bench.Cell{Place: bench.PlaceAny, Procs: load * len(o.CPUs), Threads: 1, CS: cs, Think: think,
								Shape: control.Shape{Spin: spin}, Stress: bench.Stress{Load: load, Noise: noise, Quota: quota}})
						}
					}
				}
			}
		}
	}
	return cells
}

// takesSpin reports whether the time for which waiters spin is the default, or can be set for this subject.
func takesSpin(c *bench.Cell) bool { return c.Spin == 0 || c.Subject.Spins }

// scaled returns the time that a measurement needs for the given number of samples at the given rate per second.
func scaled(samples int, rate float64) time.Duration {
	return time.Duration(math.Ceil(float64(samples) / rate * 1e9))
}
