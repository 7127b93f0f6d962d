//go:build linux

package stopstorm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// Schema is the version of the document.
const Schema = "shmbench-stopstorm/1"

// mostTexts is the largest number of freezes that the report describes for each primitive.
const mostTexts = 3

// Document is the result of a storm.
type Document struct {
	Schema  string    `json:"schema"`
	Mode    string    `json:"mode"` // "random stops", "step stops" or "quota"
	Seed    uint64    `json:"seed"`
	Procs   int       `json:"procs"`
	WatchNs int64     `json:"watch_ns"`
	BoundNs int64     `json:"bound_ns"`
	Quota   string    `json:"quota,omitempty"`
	Results []*Result `json:"results"`
}

// Result is the result of a storm for one primitive.
type Result struct {
	Prim    string `json:"prim"`
	Lang    string `json:"lang"` // languages of the workers: "go", "c" or "mixed"
	Stops   int    `json:"stops"`
	Excused int    `json:"excused"` // stops that a visible hold of the victim excused, except those in Granted
	Granted int    `json:"granted"` // excused stops in which the acquiring call of the victim had not returned yet
	Freezes int    `json:"freezes"`
	Gap     spread `json:"gap_ns"` // for each stop, the longest time in which a lane made no progress
	// Control is like Gap, but for the control measurements, in which no worker is stopped.
	Control spread  `json:"control_gap_ns"`
	Lanes   []count `json:"frozen_lanes,omitempty"`
	Where   []count `json:"victims_stood,omitempty"`
	// Texts describes some of the freezes.
	Texts []string `json:"texts,omitempty"`
	// Lane and Steps are set if the storm stops a worker between single instructions. Lane names the operation that was
	// stepped, and Steps is the number of instructions of this operation.
	Lane  string `json:"lane,omitempty"`
	Steps int    `json:"steps,omitempty"`
}

// spread is a distribution in nanoseconds.
type spread struct{ P50, P99, Max int64 }

// count is a number of freezes: those of one lane, or those with the victim at one place in the code.
type count struct {
	What string `json:"what"`
	N    int    `json:"n"`
}

// observed is the data from which a Result is computed.
type observed struct {
	gaps, control []time.Duration
	lanes, where  map[string]int
}

// spreadOf returns the quantiles of the durations, and sorts them.
func spreadOf(all []time.Duration) spread {
	slices.Sort(all)
	at := func(q float64) int64 {
		if len(all) == 0 {
			return 0
		}
		return int64(all[min(int(q*float64(len(all))), len(all)-1)])
	}
	return spread{at(0.5), at(0.99), at(1)}
}

func (t *observed) into(r *Result) {
	r.Gap, r.Control = spreadOf(t.gaps), spreadOf(t.control)
	r.Lanes, r.Where = sorted(t.lanes), sorted(t.where)
}

// sorted returns the counts, the highest first.
func sorted(m map[string]int) (all []count) {
	for _, what := range slices.Sorted(maps.Keys(m)) {
		all = append(all, count{what, m[what]})
	}
	slices.SortStableFunc(all, func(a, b count) int { return cmp.Compare(b.N, a.N) })
	return all
}

// mode returns how a storm with these options stops processes, as a text for Document.Mode.
func (o *Options) mode() string {
	switch {
	case o.Quota != 0:
		return "quota"
	case o.Every != 0:
		return "step stops"
	}
	return "random stops"
}

// Run runs a storm and prints its result. It returns an ErrFreeze if a primitive froze.
func Run(ctx context.Context, o *Options) error {
	d, err := Measure(ctx, o)
	if d == nil {
		return err
	}
	if werr := d.write(o.Out, o.Format); werr != nil {
		return werr
	}
	return errors.Join(err, d.Err())
}

// Measure runs storms. It returns a nil Document if the options are invalid, or if the workers in C cannot be built.
func Measure(ctx context.Context, o *Options) (*Document, error) {
	list, err := o.set()
	if err != nil {
		return nil, err
	}
	d := &Document{Schema: Schema, Mode: o.mode(), Seed: o.Seed, Procs: o.Procs, WatchNs: int64(o.Watch), BoundNs: int64(o.Bound)}
	if o.Quota != 0 {
		d.BoundNs = int64(2 * quotaPeriod)
		d.Quota = fmt.Sprintf("%d %% of a CPU for worker 0, emulated: stopped for %v of each %v",
			o.Quota, quotaPeriod*time.Duration(100-o.Quota)/100, quotaPeriod)
	}
	if slices.ContainsFunc(list, func(t target) bool { return t.in != inGo }) {
		if o.program, err = buildInC(o.CC); err != nil {
			return nil, err
		}
		defer o.program.close()
	}
	for _, t := range list {
		if o.Every != 0 {
			err = stepAll(ctx, o, t, d)
		} else {
			err = stormOf(ctx, o, t, d)
		}
		if err != nil {
			return d, err
		}
	}
	return d, nil
}

// stormOf stops workers of one primitive at random moments, or throttles one worker.
func stormOf(ctx context.Context, o *Options, t target, d *Document) error {
	s, err := newStorm(ctx, o, t, 0)
	if err != nil {
		return err
	}
	defer s.end()
	if o.Quota != 0 {
		err = s.throttle()
	} else {
		err = s.stops()
	}
	s.finish(d)
	return err
}

// finish computes the result of the storm for this primitive, and adds it to the document.
func (s *storm) finish(d *Document) {
	s.observed.into(s.res)
	d.Results = append(d.Results, s.res)
	if s.o.Log != nil {
		for _, text := range s.res.Texts {
			fmt.Fprintf(s.o.Log, "shmbench: %s: %s\n", s.res.name(), text)
		}
	}
}

// Err returns an ErrFreeze if a primitive froze.
func (d *Document) Err() error {
	var errs []error
	for _, r := range d.Results {
		if r.Freezes != 0 {
			errs = append(errs, fmt.Errorf("%w: %s, in %d of %d stops", ErrFreeze, r.name(), r.Freezes, r.Stops))
		}
	}
	return errors.Join(errs...)
}

// name returns the name of the primitive. If the workers are not Go programs, it adds their language.
func (r *Result) name() string {
	switch r.Lang {
	case inC:
		return r.Prim + " in C"
	case inMixed:
		return r.Prim + " in both"
	}
	return r.Prim
}

func (d *Document) write(w io.Writer, format string) error {
	if format == "table" {
		return d.table(w)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(d)
}

func (d *Document) table(w io.Writer) error {
	ms := func(ns int64) string { return fmt.Sprintf("%.1f", float64(ns)/1e6) }
	fmt.Fprintf(w, "%s, %d processes, bound %v, seed %d\n", d.Mode, d.Procs, time.Duration(d.BoundNs), d.Seed)
	if d.Quota != "" {
		fmt.Fprintf(w, "quota: %s\n", d.Quota)
	}
	fmt.Fprintf(w, "%-34s %7s %8s %8s %8s %26s %10s\n", "", "", "", "", "", "longest gap of a stop, ms", "no stop")
	fmt.Fprintf(w, "%-34s %7s %8s %8s %8s %8s %8s %8s %10s\n", "primitive", "stops", "excused", "granted", "freezes", "p50", "p99", "max", "max, ms")
	for _, r := range d.Results {
		name := r.name()
		if r.Lane != "" {
			name += ": " + r.Lane
		}
		fmt.Fprintf(w, "%-34s %7d %8d %8d %8d %8s %8s %8s %10s\n", name, r.Stops, r.Excused, r.Granted, r.Freezes, ms(r.Gap.P50), ms(r.Gap.P99), ms(r.Gap.Max), ms(r.Control.Max))
	}
	for _, r := range d.Results {
		for i, x := range r.Where {
			if i < 5 {
				fmt.Fprintf(w, "%s: %d victims stood %s\n", r.name(), x.N, x.What)
			}
		}
	}
	_, err := fmt.Fprintln(w)
	return err
}
