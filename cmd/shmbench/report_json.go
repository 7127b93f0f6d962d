//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/shmsync/shmsync/internal/topology"
)

// jsonSchema is the version of the document; it changes when a field changes
// its meaning or goes away.
const jsonSchema = "shmbench/1"

// document is the JSON form of a report.
type document struct {
	Schema   string      `json:"schema"`
	Env      environment `json:"env"`
	Command  []string    `json:"command"`
	Seed     uint64      `json:"seed"`
	TimeNs   int64       `json:"time_ns"`
	WarmupNs int64       `json:"warmup_ns"`
	Warnings []string    `json:"warnings"`
	Notes    []string    `json:"notes,omitempty"`
	Cells    []jsonCell  `json:"cells"`
	Bars     []barResult `json:"bars,omitempty"`

	Topology *topology.Topology `json:"topology,omitempty"`
	Advice   []advice           `json:"advice,omitempty"`
}

type jsonCell struct {
	Key      string              `json:"key"`
	Scenario string              `json:"scenario"`
	Subject  string              `json:"subject"`
	Unit     string              `json:"unit"` // of the main metric
	Params   map[string]string   `json:"params"`
	Status   string              `json:"status"`
	Reason   string              `json:"reason,omitempty"`
	Summary  map[string]interval `json:"summary,omitempty"` // median and range over the repetitions
	Ratio    *interval           `json:"ratio,omitempty"`   // of the main metric, to Ref
	Ref      string              `json:"ref,omitempty"`
	Reps     []jsonRep           `json:"reps,omitempty"`

	file string // that it was read from, where that matters
}

type jsonRep struct {
	Status  string             `json:"status"`
	Reason  string             `json:"reason,omitempty"`
	Metrics map[string]float64 `json:"metrics,omitempty"`
	Hist    string             `json:"hist,omitempty"` // HdrHistogram V2, compressed, base64; ns times HistDiv
	HistDiv float64            `json:"hist_div,omitempty"`
	Workers []workerReport     `json:"workers,omitempty"`
	Stacks  string             `json:"stacks,omitempty"`

	Placement *placement `json:"placement,omitempty"` // of a mem cell
}

// newDocument converts a report.
func newDocument(r *report) (*document, error) {
	d := &document{
		Schema: jsonSchema, Env: r.Env, Command: r.Command, Seed: r.Options.Seed, TimeNs: int64(r.Options.Time),
		WarmupNs: int64(r.Options.Warmup), Warnings: r.Warnings, Bars: r.Bars, Notes: r.Notes, Topology: r.Topology,
	}
	for _, group := range groups(r.Results) {
		ref := reference(group)
		for _, res := range group {
			c, err := newJSONCell(res, ref)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", res.Cell.key(), err)
			}
			d.Cells = append(d.Cells, c)
		}
	}
	d.Advice = recommend(d)
	return d, nil
}

func newJSONCell(res, ref *result) (jsonCell, error) {
	c := jsonCell{
		Key: res.Cell.key(), Scenario: res.Cell.Scenario.name, Subject: res.Cell.Subject.Name(), Unit: res.Cell.Scenario.unit,
		Params: res.Cell.params(), Summary: map[string]interval{},
	}
	c.Status, c.Reason = res.status()
	for _, m := range res.metrics() {
		if vs := res.values(m); len(vs) > 0 {
			c.Summary[m] = summarize(vs)
		}
	}
	if ref != nil {
		if q, err := ratioInterval(ratios(res, ref, res.Cell.Scenario.unit)); err == nil {
			c.Ratio, c.Ref = &q, ref.Cell.Subject.Name()
		}
	}
	for _, rep := range res.Reps {
		j := jsonRep{Status: rep.Status, Reason: rep.Reason, Metrics: rep.Metrics, Workers: rep.Workers, Stacks: rep.Stacks, Placement: rep.Placement}
		if rep.Hist != nil {
			b, err := rep.Hist.EncodeV2()
			if err != nil {
				return c, err
			}
			j.Hist, j.HistDiv = string(b), rep.Div
		}
		c.Reps = append(c.Reps, j)
	}
	return c, nil
}

func writeJSON(w io.Writer, d *document) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(d)
}
