//go:build linux

package engine

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/host"
	"github.com/shmsync/shmsync/internal/bench/peers"
)

// Engine runs a plan.
type Engine struct {
	CPUs    []int
	Helper  *peers.Helper
	Timeout time.Duration
	Quota   float64 // number of CPUs that the quota of the cgroup allows; 0: no quota
	Seed    uint64
	Log     io.Writer // verbose output; nil for none
	Meter   *Meter
	Until   time.Time // after this, no repetition begins, except the first one of a cell; zero: no limit
	Last    time.Time // after this, no repetition begins at all; zero: no limit
	Cut     int       // number of repetitions that were left out because of Until or Last
	tours   uint64    // number of tours so far, see load.Tour

	// Save, if it is not nil, is called with the results so far, so that a run that is killed does not lose them. The
	// engine calls Save at the beginning and after a round, but at most once in SaveEvery.
	Save      func([]*bench.Result)
	SaveEvery time.Duration

	// Probe reads how much other programs disturb the used CPUs. If Probe is not nil, the engine checks after each
	// round whether the round was disturbed, and repeats disturbed rounds. It begins no such repetition after Until.
	Probe func() host.Disturbance
	Made  int // number of rounds that were judged
	Dirty int // number of these rounds that something else disturbed
}

// Run measures cells in the order of the parameter sequence. It returns a result for every cell, in the order of the
// parameter cells. When ctx ends, it returns the results so far.
func (e *Engine) Run(ctx context.Context, cells, sequence []*bench.Cell) []*bench.Result {
	results := make([]*bench.Result, len(cells))
	byCell := map[*bench.Cell]*bench.Result{}
	for i, c := range cells {
		results[i] = &bench.Result{Cell: c}
		byCell[c] = results[i]
	}
	once := countCells(sequence)
	visited := map[*bench.Cell]*bench.Repetition{} // repetitions that a tour through many pairs of CPUs has measured in advance
	judge, planned := newJudge(e), len(sequence)
	var saved time.Time
	save := func() {
		if e.Save != nil && time.Since(saved) >= e.SaveEvery {
			e.Save(results)
			saved = time.Now()
		}
	}
	save()
	for i := 0; ; i++ {
		if i < len(sequence) && judge.repeats(sequence[i]) || i == len(sequence) {
			judge.end(e)
			save()
		}
		if i == len(sequence) {
			sequence = append(sequence, judge.again(e, ctx)...)
		}
		if i == len(sequence) || ctx.Err() != nil {
			break
		}
		c := sequence[i]
		if i >= once && !e.Until.IsZero() && time.Now().After(e.Until) || !e.Last.IsZero() && time.Now().After(e.Last) {
			e.Cut = max(planned-i, 0)
			for _, c := range sequence[i:] {
				if rep := visited[c]; rep != nil { // measured already, in a tour
					byCell[c].Reps = append(byCell[c].Reps, rep)
					delete(visited, c)
				}
				if len(byCell[c].Reps) == 0 {
					c.Skip = "no time was left on this slow host: measure it alone"
				}
			}
			break
		}
		res := byCell[c]
		if slices.ContainsFunc(res.Reps, func(r *bench.Repetition) bool { return r.Status == bench.StatusHung }) {
			e.Meter.add(c.Length())
			continue // a cell that hung once is not run again, so it costs only one deadline
		}
		e.Meter.describe(c.Key())
		rep := visited[c]
		delete(visited, c)
		if rep == nil {
			done := func(o *bench.Cell) int { return len(byCell[o].Reps) }
			var left []*bench.Cell // cells that this round has not measured yet
			for _, o := range cells {
				if o.Scenario == c.Scenario && !judge.repeats(o) && visited[o] == nil {
					left = append(left, o)
				}
			}
			if group := e.tourOf(c, left, done); group != nil {
				maps.Copy(visited, e.tour(ctx, group, done))
				rep = visited[c]
				delete(visited, c)
			} else {
				rep = repeat(ctx, c, e)
			}
		}
		if ctx.Err() != nil {
			break
		}
		res.Reps = append(res.Reps, rep)
		judge.add(c, rep)
		if e.Log != nil {
			fmt.Fprintf(e.Log, "%d/%d %s: %s %s\n", i+1, len(sequence), c.Key(), rep.Status, rep.Reason)
		}
		e.Meter.add(c.Length())
	}
	judge.end(e)
	e.Meter.finish()
	return results
}

// countCells returns the number of different cells in a sequence. The first round has this length, because it runs each
// cell once.
func countCells(sequence []*bench.Cell) int {
	seen := map[*bench.Cell]bool{}
	for _, c := range sequence {
		seen[c] = true
	}
	return len(seen)
}
