//go:build linux

package engine

import (
	"context"
	"time"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/host"
)

// judge divides a sequence of measurements into rounds, and decides which rounds other programs disturbed. A round
// measures each cell at most once. When the sequence comes to a cell that the round has measured already, a new round
// begins.
type judge struct {
	before host.Disturbance
	cells  []*bench.Cell // the cells of the round so far, in their order
	reps   map[*bench.Cell]*bench.Repetition
	last   []*bench.Cell // cells of the last complete round, without those that have a MaxReps
	owed   int           // number of rounds that still have to be repeated
	spent  int           // number of rounds that were repeated
}

func newJudge(e *Engine) *judge {
	j := &judge{reps: map[*bench.Cell]*bench.Repetition{}}
	if e.Probe != nil {
		j.before = e.Probe()
	}
	return j
}

// repeats reports whether this round has measured the cell already. If so, the cell begins the next round.
func (j *judge) repeats(c *bench.Cell) bool { return j.reps[c] != nil }

// add records the result of a measurement as part of this round.
func (j *judge) add(c *bench.Cell, rep *bench.Repetition) {
	j.cells = append(j.cells, c)
	j.reps[c] = rep
}

// end judges whether other programs disturbed the round that ends, and begins the next one.
func (j *judge) end(e *Engine) {
	if e.Probe == nil || len(j.cells) == 0 {
		j.cells = nil
		clear(j.reps)
		return
	}
	after := e.Probe()
	e.Made++
	if host.Dirty(j.before, after) {
		e.Dirty++
		j.owed++
		for _, rep := range j.reps {
			rep.Dirty = true
		}
	}
	j.before, j.last = after, nil
	for _, c := range j.cells {
		if c.MaxReps == 0 {
			j.last = append(j.last, c)
		}
	}
	j.cells = nil
	clear(j.reps)
}

// again returns the cells of one more round if a disturbed round has to be repeated and time is left. Otherwise it
// returns nil. The engine repeats at most as many rounds as were planned.
func (j *judge) again(e *Engine, ctx context.Context) []*bench.Cell {
	if e.Probe == nil || j.owed == 0 || 2*j.spent >= e.Made || ctx.Err() != nil || !e.Until.IsZero() && time.Now().After(e.Until) {
		return nil
	}
	j.owed--
	j.spent++
	return j.last
}
