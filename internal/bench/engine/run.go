//go:build linux

package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/internal/bench/host"
	"github.com/shmsync/shmsync/internal/bench/load"
	"github.com/shmsync/shmsync/internal/bench/peers"
	"github.com/shmsync/shmsync/internal/bench/place"
)

// startDelay is the time from the moment when the last worker is ready until the instant at which all workers start.
const startDelay = 2 * time.Millisecond

var (
	errHung    = errors.New("no end within the deadline")
	errCrashed = errors.New("worker ended unexpectedly")
)

// run is one repetition of one measurement.
type run struct {
	ctx       context.Context // done when the user interrupts the run
	cell      *bench.Cell
	cpus      []int
	helper    *peers.Helper // runs the peers in C
	page      *control.Page
	files     []*os.File // the segment, then the subject's files
	procs     []*process
	quota     *place.Quota  // quota of the workers; nil for none
	waitLimit time.Duration // how long the run may take until it counts as hung
	deadline  time.Time
}

// waitLimit returns how long a repetition may take before it counts as hung. The limit is longer if other programs
// use the CPUs, too, or if a quota limits the CPU time.
func (e *Engine) waitLimit(c *bench.Cell) time.Duration {
	share := max(1, host.LoadAverage()/float64(runtime.NumCPU()))
	if e.Quota > 0 {
		share *= max(1, float64(len(e.CPUs))/e.Quota)
	}
	return c.Length() + time.Duration(share*float64(e.Timeout))
}

// repeat runs the cell once and returns the result.
func repeat(ctx context.Context, c *bench.Cell, e *Engine) (rep *bench.Repetition) {
	r := &run{ctx: ctx, cell: c, cpus: e.CPUs, helper: e.Helper, waitLimit: e.waitLimit(c)}
	r.deadline = time.Now().Add(r.waitLimit)
	err := r.prepare(e.Seed)
	if err == nil {
		err = r.control()
	}
	rep = &bench.Repetition{Status: bench.StatusOK}
	switch {
	case errors.Is(err, errHung):
		rep.Status, rep.Reason, rep.Stacks = bench.StatusHung, err.Error(), r.stacks()
	case err != nil:
		rep.Status, rep.Reason = bench.StatusCrashed, err.Error()
	}
	r.stop()
	if r.quota != nil {
		r.quota.Remove()
	}
	if clean := c.Subject.Clean; clean != nil && len(r.files) > 0 {
		clean(r.files[0])
	}
	if r.page != nil {
		load.Collect(rep, c, r.page)
		if c.Home != "" && rep.Metrics != nil && len(r.files) > 0 {
			if rep.Placement = bench.HomeOf(c, r.files[0]); len(rep.Placement.Got) > 0 {
				rep.Metrics["as-asked-%"] = rep.Placement.Heeded()
			}
		}
		if e := r.page.Close(); e != nil && rep.Status == bench.StatusOK {
			rep.Status, rep.Reason = bench.StatusCrashed, e.Error()
		}
	}
	for _, f := range r.files {
		f.Close()
	}
	return rep
}

// prepare creates the control page, the segment in which the subject lies, and the subject's files.
func (r *run) prepare(seed uint64) error {
	c := r.cell
	p, err := control.NewPage(c.Slots())
	if err != nil {
		return err
	}
	r.page = p
	p.Magic, p.Scenario = control.Magic, c.Scenario.ID
	p.Procs, p.Control.Threads = uint32(c.Processes()), uint32(c.Procs*c.Threads/c.Processes())
	if c.Scenario.Name == "crash" {
		p.Control.Threads = 1
	}
	p.CSNs, p.ThinkNs, p.GapNs = uint64(c.CS), uint64(c.Think), uint64(c.Gap)
	p.Seed, p.N, p.Batch = seed, uint64(c.N), bench.UncontendedBatch
	p.Shape = c.Shape
	control.DrawThinks(&p.Think, seed)
	switch c.Scenario.Name {
	case "event":
		p.N = uint64(c.Threads)
	case "mem":
		p.Huge = uint32(c.Mem.Huge)
	case "multi":
		theta, _, err := bench.ParseSkew(c.Skew)
		if err != nil {
			return err
		}
		bench.DrawKeys(&p.Scratch().Draws, int(c.Keys), theta, seed)
	}
	if copy(p.Prim[:control.PrimBytes-1], c.Subject.Name()) < len(c.Subject.Name()) {
		return fmt.Errorf("name %q is too long for the control page", c.Subject.Name())
	}
	for i := range p.Slots() {
		s, _ := p.Slot(i)
		s.CPU = int32(c.CPUOf(i, r.cpus))
	}
	if c.Quota > 0 {
		if r.quota, err = place.NewQuota(c.Quota); err != nil {
			return err
		}
	}
	create := c.Subject.Segment
	if create == nil {
		create = newSegment
	}
	segment, err := create(c)
	if err != nil {
		return err
	}
	r.files = append(r.files, segment)
	if err := bench.SetHome(c, segment); err != nil {
		return err
	}
	if c.Subject.Files != nil {
		files, err := c.Subject.Files(c)
		r.files = append(r.files, files...)
		return err
	}
	return nil
}

// newSegment creates the memory for the subject of a cell that has no arena.
func newSegment(c *bench.Cell) (*os.File, error) {
	if c.Arena != "" {
		return control.NewFileIn(c.Arena, control.SegmentBytes)
	}
	return control.NewMemfd("shmbench-segment", control.SegmentBytes)
}

// control guides the workers through the phases of the measurement.
func (r *run) control() error {
	c := r.cell
	if c.Scenario.Name == "crash" {
		return r.controlCrash()
	}
	if err := r.noise(); err != nil {
		return err
	}
	for i := range c.Hog {
		cpus := bench.Or(c.CPUs, r.cpus...)
		if err := r.hog(cpus[i%len(cpus)]); err != nil {
			return err
		}
	}
	workers := make([]*process, c.Processes())
	for i := range workers {
		if err := r.spawn(i); err != nil {
			return err
		}
		workers[i] = r.procs[len(r.procs)-1]
	}
	if err := r.awaitWord(&r.page.Ready, uint32(c.Slots())); err != nil {
		return err
	}
	start := time.Now().Add(startDelay)
	r.page.StartNs.Store(shmsync.MonotonicOf(start))
	control.Announce(&r.page.Started, 1)
	if c.Scenario.Name == "waiters" { // the workers end by themselves
		r.finish()
		return r.awaitExit(workers[0])
	}
	if err := r.sleep(start.Add(c.Warmup)); err != nil {
		return err
	}
	r.page.Phase.Store(control.PhaseMeasure)
	if err := r.sleep(time.Now().Add(c.Time)); err != nil { // measure for c.Time even if this process began late
		return err
	}
	r.finish()
	for _, w := range workers {
		if err := r.awaitExit(w); err != nil {
			return err
		}
	}
	return nil
}

// awaitWord waits until the value of w is at least the value of the parameter want. It returns an error
// if the run fails meanwhile.
func (r *run) awaitWord(w *atomic.Uint32, want uint32) error {
	for v := w.Load(); v < want; v = w.Load() {
		shmsync.Wait(control.FutexWord(w), v, shmsync.Monotonic()+int64(checkEvery))
		if w.Load() >= want {
			return nil
		}
		if err := r.look(); err != nil {
			return err
		}
	}
	return nil
}

// look returns an error if the run cannot go on: a worker has ended too early, the user has interrupted the run, or the
// deadline has passed.
func (r *run) look() error {
	for _, p := range r.procs {
		select {
		case <-p.done:
			if p.expected == endNever || p.expected == endStatus && p.err != nil {
				return p.failure()
			}
		default:
		}
	}
	if r.ctx.Err() != nil {
		return r.ctx.Err()
	}
	if time.Now().After(r.deadline) {
		return fmt.Errorf("%w of %v", errHung, r.waitLimit)
	}
	return nil
}

// sleep waits until the time t. While it waits, it checks at intervals whether the run can go on.
func (r *run) sleep(t time.Time) error {
	for d := time.Until(t); d > 0; d = time.Until(t) {
		time.Sleep(min(d, 500*time.Millisecond))
		if err := r.look(); err != nil {
			return err
		}
	}
	return nil
}

// finish tells every worker to stop.
func (r *run) finish() {
	for _, p := range r.procs {
		p.expected = max(p.expected, endStatus)
	}
	r.page.Phase.Store(control.PhaseStop)
}

// awaitExit waits for a worker that was told to stop.
func (r *run) awaitExit(p *process) error {
	for {
		select {
		case <-p.done:
			return r.look()
		case <-time.After(checkEvery):
			if err := r.look(); err != nil {
				return err
			}
		}
	}
}
