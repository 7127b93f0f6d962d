//go:build linux

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/engine"
	"github.com/shmsync/shmsync/internal/bench/host"
	"github.com/shmsync/shmsync/internal/bench/peers"
	"github.com/shmsync/shmsync/internal/bench/plan"
	"github.com/shmsync/shmsync/internal/bench/report"
)

// session is one invocation of a command that measures.
type session struct {
	ctx            context.Context
	common         *common
	stdout, stderr io.Writer
	args           []string
	gaps           []time.Duration // how long the sleeper of a wake cell sleeps before it is woken, without --gap
	until          time.Time       // after this, a suite begins no repetition, except the first one of a cell; zero: no limit
	last           time.Time       // after this, no repetition begins, not even the first one of a cell; zero: no limit
	all            bool            // a matrix measures all pairs of CPUs, however many there are
	sample         string          // how a matrix chooses its pairs of CPUs; empty if the matrix is one of several scenarios
	most           time.Duration   // if a plan would take longer than this, it gets fewer rounds; 0: no limit
}

// measure plans, runs and reports the named scenarios.
func (s *session) measure(d plan.Defaults, names ...string) error {
	o, err := s.common.options(d)
	if err != nil {
		return err
	}
	o.WakeGaps = s.gaps
	o.Sample, o.AllPairs = s.sample, s.all
	if o.ManyPairs() && len(o.Prims) == 0 {
		o.Prims = []string{"go:one-line"}
	}
	cells, err := plan.Cells(o, names...)
	if err != nil {
		return err
	}
	if s.most > 0 && s.common.Count == 0 {
		for o.Count > 1 && plan.ETA(plan.Order(cells, o.Count, false, 0)) > s.most {
			o.Count--
		}
	}
	return s.execute(o, cells, nil)
}

// execute runs the cells, that is, the measurements of the plan, and reports the results. The function judge, if it is
// not nil, adds conclusions to the report.
func (s *session) execute(o *plan.Options, cells []*bench.Cell, judge func(*report.Run)) error {
	f := s.common
	e := &engine.Engine{Until: s.until, Last: s.last, CPUs: o.CPUs, Timeout: o.Timeout, Seed: o.Seed}
	if !f.DryRun {
		var err error
		if e.Helper, err = peers.FindHelper(f.Helper, f.CC); err != nil {
			if f.Helper != "" {
				return err
			}
			skipC(cells, err)
			fmt.Fprintln(s.stderr, "shmbench: peers in C are skipped:", err)
		}
		defer e.Helper.Remove()
	}
	if !f.DryRun {
		for _, name := range []string{f.Out, f.HTML} {
			if err := writable(name); err != nil {
				return err
			}
		}
	}
	env := host.Read(o.CPUs)
	if !f.DryRun {
		env.Compiler, env.Libc = e.Helper.Built()
		for _, c := range cells {
			c.Skip = cmp.Or(c.Skip, peers.Unfit(c.Subject, env.Libc))
		}
	}
	sequence := plan.Order(cells, o.Count, o.Shuffle, o.Seed)
	if f.DryRun {
		return s.printPlan(cells, sequence, o)
	}
	r := &report.Run{Env: env, Command: append([]string{"shmbench"}, s.args...), Options: o, Topology: o.Topology, Details: f.Details}
	if slices.ContainsFunc(cells, func(c *bench.Cell) bool { return c.Scenario.Name == "matrix" }) {
		r.Notes = o.MatrixNotes()
	}
	if o.MemNote != "" {
		r.Notes = append(r.Notes, o.MemNote)
	}
	if note := o.RecoveryNote(cells); note != "" {
		r.Notes = append(r.Notes, note)
	}
	r.Warnings = r.Env.Warnings(len(o.CPUs), o.Count)
	if note := o.QuotaNote(); note != "" {
		r.Warnings = append(r.Warnings, note)
		e.Quota = o.Topology.Limits.Quota
	}
	if f.Verbose {
		e.Log = s.stderr
	}
	e.Meter = engine.NewMeter(plan.ETA(sequence), f.Verbose)
	for _, line := range outline(cells, o) {
		fmt.Fprintln(s.stderr, "shmbench:", line)
	}
	before, begun := host.ReadDisturbance(o.CPUs), time.Now()
	if !s.until.IsZero() { // a suite: its rounds are long enough that each one can be judged alone
		e.Probe = func() host.Disturbance { return host.ReadDisturbance(o.CPUs) }
	}
	if regular(f.Out) {
		e.SaveEvery = saveEvery
		e.Save = func(results []*bench.Result) {
			r.Took = time.Since(begun)
			if d, err := report.NewDocument(r.Partial(results, len(sequence))); err == nil {
				_ = s.keep(d) // if the error persists, the last save, at the end of the run, reports it
			}
		}
	}
	r.Results = e.Run(s.ctx, cells, sequence)
	r.Took = time.Since(begun)
	if e.Probe != nil {
		r.Rounds = &report.Rounds{Planned: o.Count, Made: e.Made, Dirty: e.Dirty}
	}
	if e.Cut > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("this host is slower than planned: the last %d of %d repetitions were left out", e.Cut, len(sequence)))
	}
	r.End(s.ctx.Err() != nil, len(sequence))
	r.Disturbed(before, host.ReadDisturbance(o.CPUs))
	if judge != nil {
		judge(r)
	}
	if err := s.write(r); err != nil {
		return err
	}
	s.complain(r)
	if s.ctx.Err() != nil {
		return fmt.Errorf("interrupted; the results are incomplete")
	}
	if code := exitCode(r.Results, f.Strict); code != exitOK {
		return status(code)
	}
	return nil
}

// writable returns an error if a file cannot be written. Without this check, a run of hours could end without a result
// file.
func writable(name string) error {
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	return f.Close()
}

// skipC marks as skipped, for the given reason, the measurements that need the helper, a program in C.
func skipC(cells []*bench.Cell, reason error) {
	for _, c := range cells {
		if c.Subject.C && c.Skip == "" {
			c.Skip, _, _ = strings.Cut(reason.Error(), "\n")
		}
	}
}

func (s *session) printPlan(cells, sequence []*bench.Cell, o *plan.Options) error {
	for _, c := range cells {
		note := ""
		if c.Skip != "" {
			note = "  skipped: " + c.Skip
		}
		fmt.Fprintf(s.stdout, "%s%s\n", c.Key(), note)
	}
	if note := o.RecoveryNote(cells); note != "" {
		fmt.Fprintln(s.stdout, note)
	}
	fmt.Fprintf(s.stdout, "%d cells × %d repetitions, about %v, seed %d\n", len(cells), o.Count, plan.ETA(sequence), o.Seed)
	if s.common.Verbose {
		for i, c := range sequence {
			fmt.Fprintf(s.stdout, "%4d %s\n", i+1, c.Key())
		}
	}
	return nil
}

// output returns the writer for the results, and a function that closes it.
func (s *session) output() (w io.Writer, closeIt func() error, err error) {
	if s.common.Out == "" {
		return s.stdout, func() error { return nil }, nil
	}
	f, err := os.Create(s.common.Out)
	if err != nil {
		return nil, nil, err
	}
	return f, f.Close, nil
}

// write renders the report on standard output. It also writes each file for which the user gave a flag.
func (s *session) write(r *report.Run) error {
	if s.common.Format != "table" { // a table contains the warnings
		for _, w := range r.Warnings {
			fmt.Fprintln(s.stderr, "shmbench: warning:", w)
		}
	}
	var d *report.Document
	if s.common.Out != "" || s.common.HTML != "" || s.common.Format != "table" {
		var err error
		if d, err = report.NewDocument(r); err != nil {
			return err
		}
	}
	if err := s.keep(d); err != nil {
		return err
	}
	if s.common.HTML != "" {
		if err := report.CreateHTML(s.common.HTML, d); err != nil {
			return err
		}
	}
	if s.common.Format == "table" {
		return report.WriteTable(s.stdout, r)
	}
	return d.Write(s.stdout, s.common.Format)
}

// saveEvery is the shortest time between two saves of the results. The program saves results only between rounds. So a
// kill of the program loses at most the results of 5 s and of one further round.
const saveEvery = 5 * time.Second

// regular reports whether the name is that of a regular file. Other files, such as a pipe, can be written only once.
func regular(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.Mode().IsRegular()
}

// keep writes the result file. It replaces a regular file as a whole, so that no reader sees half of it, not even
// after the run was killed.
func (s *session) keep(d *report.Document) error {
	name := s.common.Out
	if name == "" {
		return nil
	}
	if !regular(name) {
		return create(name, d)
	}
	name, err := filepath.EvalSymlinks(name)
	if err != nil {
		return err
	}
	part := name + ".part"
	if err := create(part, d); err != nil {
		os.Remove(part)
		return create(name, d) // the directory may refuse new files, so overwrite the file in place
	}
	return os.Rename(part, name)
}

// create writes a document to a new file.
func create(name string, d *report.Document) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	return report.WriteJSON(f, d)
}

// complain reports every measurement that failed. It saves the stacks of the workers that hung.
func (s *session) complain(r *report.Run) {
	for _, res := range r.Results {
		status, reason := res.Status()
		if status == bench.StatusOK || status == bench.StatusSkipped {
			continue
		}
		fmt.Fprintf(s.stderr, "shmbench: %s: %s: %s\n", res.Cell.Key(), status, reason)
		for _, rep := range res.Reps {
			if rep.Stacks == "" {
				continue
			}
			f, err := os.CreateTemp("", "shmbench-hung-*.txt")
			if err != nil {
				fmt.Fprintln(s.stderr, "shmbench:", err)
				continue
			}
			fmt.Fprintf(f, "%s\n%s\n%s", res.Cell.Key(), rep.Reason, rep.Stacks)
			f.Close()
			fmt.Fprintln(s.stderr, "shmbench: stacks are in", f.Name())
		}
	}
}
