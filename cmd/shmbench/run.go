//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync"
)

// startDelay lies between the last worker's readiness and the start instant.
const startDelay = 2 * time.Millisecond

var (
	errHung    = errors.New("no end within the deadline")
	errCrashed = errors.New("worker ended unexpectedly")
)

// run is one repetition of one cell.
type run struct {
	ctx      context.Context // done: the user gave up
	cell     *cell
	cpus     []int
	helper   *cHelper // runs the peers in C
	page     *page
	files    []*os.File // segment, then the subject's
	procs    []*process
	quota    *quota        // of the workers; nil for none
	patience time.Duration // from start to deadline
	deadline time.Time
}

// patience is how long a repetition may take before it counts as hung: longer where
// others want the CPUs, too.
func (e *engine) patience(c *cell) time.Duration {
	share := max(1, loadAverage()/float64(runtime.NumCPU()))
	return c.length() + time.Duration(share*float64(e.timeout))
}

// repeat runs the cell once and returns what came of it.
func repeat(ctx context.Context, c *cell, e *engine) (rep *repetition) {
	r := &run{ctx: ctx, cell: c, cpus: e.cpus, helper: e.helper, patience: e.patience(c)}
	r.deadline = time.Now().Add(r.patience)
	err := r.prepare(e.seed)
	if err == nil {
		err = r.control()
	}
	rep = &repetition{Status: statusOK}
	switch {
	case errors.Is(err, errHung):
		rep.Status, rep.Reason, rep.Stacks = statusHung, err.Error(), r.stacks()
	case err != nil:
		rep.Status, rep.Reason = statusCrashed, err.Error()
	}
	r.stop()
	if r.quota != nil {
		r.quota.remove()
	}
	if clean := c.Subject.Clean; clean != nil && len(r.files) > 0 {
		clean(r.files[0])
	}
	if r.page != nil {
		rep.collect(c, r.page)
		if e := r.page.close(); e != nil && rep.Status == statusOK {
			rep.Status, rep.Reason = statusCrashed, e.Error()
		}
	}
	for _, f := range r.files {
		f.Close()
	}
	return rep
}

// prepare makes the control page, the segment and the subject's descriptors.
func (r *run) prepare(seed uint64) error {
	c := r.cell
	p, err := newPage(c.slots())
	if err != nil {
		return err
	}
	r.page = p
	p.magic, p.scenario = controlMagic, c.Scenario.id
	p.procs, p.control.threads = uint32(c.processes()), uint32(c.Procs*c.Threads/c.processes())
	if c.Scenario.name == "crash" {
		p.control.threads = 1
	}
	p.csNs, p.thinkNs, p.gapNs = uint64(c.CS), uint64(c.Think), uint64(c.Gap)
	p.seed, p.n, p.batch = seed, uint64(c.N), uncontendedBatch
	p.shape = c.shape
	drawThinks(&p.think, seed)
	switch c.Scenario.name {
	case "event":
		p.n = uint64(c.Threads)
	case "mem":
		p.huge = uint32(c.Mem.Huge)
	case "multi":
		theta, _, err := parseSkew(c.Skew)
		if err != nil {
			return err
		}
		drawKeys(&p.scratch().draws, int(c.Keys), theta, seed)
	}
	if copy(p.prim[:primBytes-1], c.Subject.Name()) < len(c.Subject.Name()) {
		return fmt.Errorf("name %q is too long for the control page", c.Subject.Name())
	}
	for i := range p.slots() {
		s, _ := p.slot(i)
		s.cpu = int32(c.cpuOf(i, r.cpus))
	}
	if c.Quota > 0 {
		if r.quota, err = newQuota(c.Quota); err != nil {
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
	if c.Subject.Files != nil {
		files, err := c.Subject.Files(c)
		r.files = append(r.files, files...)
		return err
	}
	return nil
}

// newSegment makes what the subject of a cell lives in if it has no arena.
func newSegment(c *cell) (*os.File, error) {
	if c.Arena != "" {
		return newFileIn(c.Arena, segmentBytes)
	}
	return newMemfd("shmbench-segment", segmentBytes)
}

// control runs the phases of the cell.
func (r *run) control() error {
	c := r.cell
	if c.Scenario.name == "crash" {
		return r.controlCrash()
	}
	if err := r.noise(); err != nil {
		return err
	}
	for i := range c.Hog {
		cpus := or(c.CPUs, r.cpus...)
		if err := r.hog(cpus[i%len(cpus)]); err != nil {
			return err
		}
	}
	workers := make([]*process, c.processes())
	for i := range workers {
		if err := r.spawn(i); err != nil {
			return err
		}
		workers[i] = r.procs[len(r.procs)-1]
	}
	if err := r.awaitWord(&r.page.ready, uint32(c.slots())); err != nil {
		return err
	}
	start := time.Now().Add(startDelay)
	r.page.startNs.Store(shmsync.MonotonicOf(start))
	announce(&r.page.started, 1)
	if c.Scenario.name == "waiters" { // ends by itself
		r.finish()
		return r.awaitExit(workers[0])
	}
	if err := r.sleep(start.Add(c.Warmup)); err != nil {
		return err
	}
	r.page.phase.Store(phaseMeasure)
	if err := r.sleep(time.Now().Add(c.Time)); err != nil { // however late this process was
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

// awaitWord waits until w counts at least want.
func (r *run) awaitWord(w *atomic.Uint32, want uint32) error {
	for v := w.Load(); v < want; v = w.Load() {
		shmsync.Wait(futexWord(w), v, shmsync.Monotonic()+int64(crashHandful))
		if w.Load() >= want {
			return nil
		}
		if err := r.look(); err != nil {
			return err
		}
	}
	return nil
}

// look reports the first thing that is wrong with the run.
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
		return fmt.Errorf("%w of %v", errHung, r.patience)
	}
	return nil
}

// sleep waits until t, looking at the processes now and then.
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
	r.page.phase.Store(phaseStop)
}

// awaitExit waits for a worker that was told to stop.
func (r *run) awaitExit(p *process) error {
	for {
		select {
		case <-p.done:
			return r.look()
		case <-time.After(crashHandful):
			if err := r.look(); err != nil {
				return err
			}
		}
	}
}
