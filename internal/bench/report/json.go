//go:build linux

package report

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/bars"
	"github.com/shmsync/shmsync/internal/bench/host"
	"github.com/shmsync/shmsync/internal/bench/stats"
	"github.com/shmsync/shmsync/internal/topology"
)

// Schema is the version of the JSON document. It changes when a field is removed or gets another meaning.
const Schema = "shmbench/1"

// Document is the JSON form of a report.
type Document struct {
	Schema   string           `json:"schema"`
	State    string           `json:"state,omitempty"` // StateRunning, StateComplete or StateInterrupted
	Env      host.Environment `json:"env"`
	Command  []string         `json:"command"`
	Seed     uint64           `json:"seed"`
	TimeNs   int64            `json:"time_ns"`
	WarmupNs int64            `json:"warmup_ns"`
	// DurationNs is the time from the start of the run until the program wrote the file.
	DurationNs int64         `json:"duration_ns,omitempty"`
	Warnings   []string      `json:"warnings"`
	Notes      []string      `json:"notes,omitempty"`
	Rounds     *Rounds       `json:"rounds,omitempty"`
	Cells      []Cell        `json:"cells"`
	Bars       []bars.Result `json:"bars,omitempty"`

	Topology *topology.Topology `json:"topology,omitempty"`
	Advice   []advice           `json:"advice,omitempty"`
}

// Cell is the JSON form of a measurement and its results.
type Cell struct {
	Key      string                    `json:"key"`
	Scenario string                    `json:"scenario"`
	Subject  string                    `json:"subject"`
	Unit     string                    `json:"unit"` // unit of the main metric
	Params   map[string]string         `json:"params"`
	Status   string                    `json:"status"`
	Reason   string                    `json:"reason,omitempty"`
	Summary  map[string]stats.Interval `json:"summary,omitempty"` // median and range over the repetitions
	Ratio    *stats.Interval           `json:"ratio,omitempty"`   // main metric, divided by that of the subject Ref
	Ref      string                    `json:"ref,omitempty"`
	Reps     []Repetition              `json:"reps,omitempty"`

	file string // the label of the file from which the cell was read, if several files have the scenario
}

// Repetition is the JSON form of one repetition.
type Repetition struct {
	Status  string               `json:"status"`
	Reason  string               `json:"reason,omitempty"`
	Metrics map[string]float64   `json:"metrics,omitempty"`
	Hist    string               `json:"hist,omitempty"` // HdrHistogram V2, compressed, base64; values: ns × HistDiv
	HistDiv float64              `json:"hist_div,omitempty"`
	Told    string               `json:"told,omitempty"` // times from a death to the news of it, in the form of Hist
	Workers []bench.WorkerReport `json:"workers,omitempty"`
	Stacks  string               `json:"stacks,omitempty"`
	Dirty   bool                 `json:"dirty,omitempty"`

	Placement *bench.Placement `json:"placement,omitempty"` // where the memory of the cell was
}

// NewDocument converts a run to a document.
func NewDocument(r *Run) (*Document, error) {
	d := &Document{
		Schema: Schema, State: r.State, Env: r.Env, Command: r.Command, Seed: r.Options.Seed, TimeNs: int64(r.Options.Time),
		WarmupNs: int64(r.Options.Warmup), DurationNs: int64(r.Took), Warnings: r.Warnings, Bars: r.Bars, Notes: r.Notes, Topology: r.Topology, Rounds: r.Rounds,
	}
	for _, group := range groups(r.Results) {
		ref := reference(group)
		for _, res := range group {
			c, err := newJSONCell(res, ref)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", res.Cell.Key(), err)
			}
			d.Cells = append(d.Cells, c)
		}
	}
	d.Advice = Recommend(d)
	return d, nil
}

func newJSONCell(res, ref *bench.Result) (Cell, error) {
	c := Cell{
		Key: res.Cell.Key(), Scenario: res.Cell.Scenario.Name, Subject: res.Cell.Subject.Name(), Unit: res.Cell.Scenario.Unit,
		Params: res.Cell.Params(), Summary: map[string]stats.Interval{},
	}
	c.Status, c.Reason = res.Status()
	for _, m := range res.Metrics() {
		if vs := res.Values(m); len(vs) > 0 {
			c.Summary[m] = stats.Summarize(vs)
		}
	}
	if ref != nil {
		if q, err := stats.RatioInterval(bench.Ratios(res, ref, res.Cell.Scenario.Unit)); err == nil {
			c.Ratio, c.Ref = &q, ref.Cell.Subject.Name()
		}
	}
	for _, rep := range res.Reps {
		j := Repetition{Status: rep.Status, Reason: rep.Reason, Metrics: rep.Metrics, Workers: rep.Workers, Stacks: rep.Stacks, Dirty: rep.Dirty, Placement: rep.Placement}
		if rep.Hist != nil {
			b, err := rep.Hist.EncodeV2()
			if err != nil {
				return c, err
			}
			j.Hist, j.HistDiv = string(b), rep.Div
		}
		if rep.Told != nil {
			b, err := rep.Told.EncodeV2()
			if err != nil {
				return c, err
			}
			j.Told = string(b)
		}
		c.Reps = append(c.Reps, j)
	}
	return c, nil
}

// WriteJSON renders the document as indented JSON.
func WriteJSON(w io.Writer, d *Document) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(d)
}
