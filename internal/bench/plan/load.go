//go:build linux

package plan

import (
	"math"
	"slices"
	"time"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
)

// takesRole reports whether the lock fits the role: the goroutines of a survivor exclude each
// other only with the library's locks, and not all locks have readers.
func takesRole(c *bench.Cell) bool {
	switch c.Role {
	case bench.RoleWaiter:
		return c.Subject.By == bench.Library
	case bench.RoleReader:
		return c.Subject.By == bench.Library && slices.Contains(c.Subject.Scenarios, "readers")
	}
	return true
}

// herdMost is the most sleepers of a herd cell, since each is a process. The waiters of other
// cells are goroutines, so there may be more.
const herdMost = 255

// herdCells wake some of many processes that sleep in one place.
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

// openSamples is the least number of operations of an open cell: enough for p99.
const openSamples = 1200

// openCells take locks at a rate.
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

// The bounds of the distance of two counters, in bytes.
const (
	leastPad = 4
	mostPad  = 2048
)

// usualPads are one line for both counters, a line each, and a pair of lines each.
var usualPads = []int{8, 64, 128}

// paddingCells let each thread increment a counter of its own.
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

// loadCells give the cells of the scenarios about load.
var loadCells = map[string]func(*Options) []bench.Cell{"herd": herdCells, "open": openCells, "oversub": oversubCells, "padding": paddingCells, "home": homeCells, "stream": streamCells,
	"intruder": intruderCells, "fence": fenceCells}

// takers report whether a cell makes sense for its subject. A scenario without a taker fits every
// subject.
var takers = map[string]func(*bench.Cell) bool{"lock": takesSpin, "oversub": takesSpin, "crash": takesRole}

// oversubCells run more and more workers on all CPUs.
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

// takesSpin reports whether the cell's spin budget can be set: only some subjects have a budget.
func takesSpin(c *bench.Cell) bool { return c.Spin == 0 || c.Subject.Spins }

// scaled is the time of a cell that needs that many samples at a rate.
func scaled(samples int, rate float64) time.Duration {
	return time.Duration(math.Ceil(float64(samples) / rate * 1e9))
}
