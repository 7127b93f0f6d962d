//go:build linux

package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/internal/bench/load"
)

// tourOf returns the cells that one tour measures, or nil if c has to run alone. A tour measures many pairs of CPUs
// with one pair of processes, see load.Tour. Beside c, it has other matrix cells of the same subject, but none that is
// skipped or has had all its repetitions. The function done returns how many repetitions a cell has had.
func (e *Engine) tourOf(c *bench.Cell, cells []*bench.Cell, done func(*bench.Cell) int) []*bench.Cell {
	visits := func(o *bench.Cell) bool {
		return o.Scenario.Name == "matrix" && o.Subject == c.Subject && o.Skip == "" && o.Apart() && (o == c || o.MaxReps == 0 || done(o) < o.MaxReps) &&
			len(bench.Or(o.CPUs, e.CPUs...)) > 1 && o.CPUOf(0, e.CPUs) != o.CPUOf(1, e.CPUs)
	}
	if !visits(c) || c.Subject.C || c.Subject.InProcess {
		return nil
	}
	group, steps := []*bench.Cell{c}, len(c.PairsOf(0, e.CPUs))
	for _, o := range cells {
		if o == c || !visits(o) {
			continue
		}
		if n := len(o.PairsOf(0, e.CPUs)); steps+n <= load.TourMost {
			group = append(group, o)
			steps += n
		}
	}
	if steps < 2 {
		return nil
	}
	rng := rand.New(rand.NewPCG(e.Seed, e.tours))
	rng.Shuffle(len(group), func(i, j int) { group[i], group[j] = group[j], group[i] })
	e.tours++
	return group
}

// stepsOf returns the steps of a tour through the cells, in a random order. In each step, the tour measures one pair of
// CPUs for the next repetition of a cell. The function done returns how many repetitions a cell has had.
func (e *Engine) stepsOf(cells []*bench.Cell, done func(*bench.Cell) int) (steps []load.Step) {
	for _, c := range cells {
		for _, pair := range c.PairsOf(done(c), e.CPUs) {
			steps = append(steps, load.Step{Cell: c, CPUs: pair})
		}
	}
	rng := rand.New(rand.NewPCG(e.Seed+1, e.tours))
	rng.Shuffle(len(steps), func(i, k int) { steps[i], steps[k] = steps[k], steps[i] })
	return steps
}

// tour measures all of the cells with one pair of processes, which moves from one pair of CPUs to the next. It returns
// a repetition of each cell.
func (e *Engine) tour(ctx context.Context, cells []*bench.Cell, done func(*bench.Cell) int) map[*bench.Cell]*bench.Repetition {
	steps := e.stepsOf(cells, done)
	r := &run{ctx: ctx, cell: cells[0], cpus: e.CPUs, waitLimit: e.waitLimit(cells[0]) * time.Duration(1+len(steps)/8)}
	r.deadline = time.Now().Add(r.waitLimit)
	status, reason := bench.StatusOK, ""
	var tour *load.Tour
	err := r.prepare(e.Seed)
	if err == nil {
		r.page.N = uint64(len(steps))
		if tour, err = load.NewTour(r.files[0], steps); err == nil {
			err = r.walk(tour, e.Meter, len(steps))
		}
	}
	switch {
	case errors.Is(err, errHung):
		status, reason = bench.StatusHung, err.Error()
	case err != nil:
		status, reason = bench.StatusCrashed, err.Error()
	}
	r.stop()
	reps := map[*bench.Cell]*bench.Repetition{}
	if tour != nil {
		reps = tour.Collect(status, reason)
		tour.Close()
	}
	if r.page != nil {
		r.page.Close()
	}
	for _, f := range r.files {
		f.Close()
	}
	for _, c := range cells {
		if reps[c] == nil {
			reps[c] = &bench.Repetition{Status: status, Reason: reason}
		}
	}
	return reps
}

// walk starts the two processes of a tour and waits until the tour has ended.
func (r *run) walk(tour *load.Tour, m *Meter, steps int) error {
	for proc := range 2 {
		if err := r.spawn(proc); err != nil {
			return err
		}
	}
	if err := r.awaitWord(&r.page.Ready, uint32(r.cell.Slots())); err != nil {
		return err
	}
	for _, p := range r.procs {
		p.expected = endStatus // the processes exit when the tour is over
	}
	r.page.StartNs.Store(shmsync.MonotonicOf(time.Now().Add(startDelay)))
	r.page.Phase.Store(control.PhaseMeasure)
	control.Announce(&r.page.Started, 1)
	for _, p := range r.procs {
		for ended := false; !ended; {
			select {
			case <-p.done:
				ended = true
			case <-time.After(checkEvery):
				m.describe(fmt.Sprintf("pairs of CPUs: %d of %d", tour.Done(), steps))
			}
			if err := r.look(); err != nil {
				return err
			}
		}
	}
	return nil
}
