//go:build linux

package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/shmsync/shmsync/internal/bench"
)

// ReadDocument reads a result file, which the option --out writes, and refuses any other file.
func ReadDocument(name string) (*Document, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var head struct {
		Schema string `json:"schema"`
	}
	switch err := json.Unmarshal(b, &head); {
	case len(bytes.TrimSpace(b)) == 0 || errors.Is(err, io.ErrUnexpectedEOF) || err != nil && b[0] == '{':
		return nil, fmt.Errorf("%s is cut short, or not JSON: %v", name, err)
	case err != nil || head.Schema == "":
		return nil, fmt.Errorf("%s is no result file of shmbench; --out writes one", name)
	case head.Schema != Schema:
		return nil, fmt.Errorf("%s has schema %q, this shmbench reads %q", name, head.Schema, Schema)
	}
	d := new(Document)
	if err := json.Unmarshal(b, d); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(d.Cells) == 0 {
		return nil, fmt.Errorf("%s has no cells", name)
	}
	for i := range d.Cells {
		if c := &d.Cells[i]; c.Unit == "" || c.Key == "" {
			return nil, fmt.Errorf("%s: cell %d has no key, or no unit", name, i)
		}
	}
	return d, nil
}

// Missing says which part of a run is missing because the run did not end. It returns an empty string if the run is
// complete.
func (d *Document) Missing() string {
	if d.State != StateInterrupted && d.State != StateRunning {
		return ""
	}
	for _, w := range d.Warnings {
		if strings.HasPrefix(w, "the run ") && strings.HasSuffix(w, "repetitions were made") {
			return w
		}
	}
	return "the run did not end"
}

// Values returns the values of a metric in all repetitions that ended well. It omits repetitions in rounds that
// other programs disturbed, unless all repetitions are disturbed.
func (c *Cell) Values(metric string) []float64 {
	var vs, dirty []float64
	for _, r := range c.Reps {
		if v, ok := r.Metrics[metric]; ok && r.Status == bench.StatusOK {
			if r.Dirty {
				dirty = append(dirty, v)
				continue
			}
			vs = append(vs, v)
		}
	}
	return bench.Or(vs, dirty...)
}

// pooled returns one histogram with the samples of all repetitions, or nil if no repetition has a histogram. A value of
// the histogram divided by div is a time in nanoseconds.
func (c *Cell) pooled() (h *hdrhistogram.Histogram, div float64, err error) {
	return c.merged(func(r *Repetition) string { return r.Hist })
}

// merged returns one histogram with the samples of all repetitions. The function text selects which histogram of a
// repetition is used, in text form. It returns an empty string for a repetition without this histogram.
func (c *Cell) merged(text func(*Repetition) string) (h *hdrhistogram.Histogram, div float64, err error) {
	for i := range c.Reps {
		r := &c.Reps[i]
		if text(r) == "" {
			continue
		}
		one, err := hdrhistogram.Decode([]byte(text(r)))
		if err != nil {
			return nil, 0, fmt.Errorf("%s: %w", c.Key, err)
		}
		if h == nil {
			h, div = one, r.HistDiv
			continue
		}
		h.Merge(one)
	}
	return h, max(div, 1), nil
}
