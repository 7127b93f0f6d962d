//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"
)

// Exit codes.
const (
	exitOK        = 0
	exitUsage     = 1
	exitSkipped   = 2 // with --strict
	exitViolation = 3
	exitCrashed   = 4 // a worker crashed, or a cell hung
)

// engine runs a plan.
type engine struct {
	cpus    []int
	helper  *cHelper
	timeout time.Duration
	seed    uint64
	log     io.Writer // verbose output; nil for none
	meter   *meter
	until   time.Time // begin no more repetitions after it, once each cell had one; zero: as long as it takes
	cut     int       // how many were left out for that
}

// run executes the sequence and gives a result for every cell, in their order.
// When ctx ends, it returns what it has.
func (e *engine) run(ctx context.Context, cells, sequence []*cell) []*result {
	results := make([]*result, len(cells))
	byCell := map[*cell]*result{}
	for i, c := range cells {
		results[i] = &result{Cell: c}
		byCell[c] = results[i]
	}
	once := countCells(sequence)
	for i, c := range sequence {
		if ctx.Err() != nil {
			break
		}
		if i >= once && !e.until.IsZero() && time.Now().After(e.until) {
			e.cut = len(sequence) - i
			break
		}
		res := byCell[c]
		if slices.ContainsFunc(res.Reps, func(r *repetition) bool { return r.Status == statusHung }) {
			e.meter.add(c.length())
			continue // one deadline is enough
		}
		e.meter.describe(c.key())
		rep := repeat(ctx, c, e)
		if ctx.Err() != nil {
			break
		}
		res.Reps = append(res.Reps, rep)
		if e.log != nil {
			fmt.Fprintf(e.log, "%d/%d %s: %s %s\n", i+1, len(sequence), c.key(), rep.Status, rep.Reason)
		}
		e.meter.add(c.length())
	}
	e.meter.finish()
	return results
}

// countCells is how many different cells a sequence has: as long is its first round.
func countCells(sequence []*cell) int {
	seen := map[*cell]bool{}
	for _, c := range sequence {
		seen[c] = true
	}
	return len(seen)
}

// exitCode is the worst that any cell calls for; a violation outranks all.
func exitCode(results []*result, strict bool) int {
	code := exitOK
	for _, r := range results {
		switch status, _ := r.status(); status {
		case statusViolation:
			return exitViolation
		case statusCrashed, statusHung:
			code = exitCrashed
		case statusSkipped:
			if strict && code == exitOK {
				code = exitSkipped
			}
		}
	}
	return code
}
