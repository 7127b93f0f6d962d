//go:build linux

package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// Write renders a document in a format that other programs read.
func (d *Document) Write(w io.Writer, format string) error {
	switch format {
	case "bench":
		return writeBench(w, d)
	case "json":
		return WriteJSON(w, d)
	case "hgrm":
		return writeHGRM(w, d)
	}
	return writeCSV(w, d)
}

// writeCSV renders a document as a flat table: one line for each metric of each repetition. The parameters of
// measurements are columns.
func writeCSV(w io.Writer, d *Document) error {
	var params []string
	for i := range d.Cells {
		for p := range d.Cells[i].Params {
			if !slices.Contains(params, p) {
				params = append(params, p)
			}
		}
	}
	slices.Sort(params)
	out := csv.NewWriter(w)
	out.Write(slices.Concat([]string{"scenario", "subject"}, params, []string{"repetition", "status", "metric", "value"}))
	for i := range d.Cells {
		c := &d.Cells[i]
		head := []string{c.Scenario, c.Subject}
		for _, p := range params {
			head = append(head, c.Params[p])
		}
		if len(c.Reps) == 0 {
			out.Write(append(slices.Clone(head), "", c.Status, "", ""))
		}
		for n, r := range c.Reps {
			if len(r.Metrics) == 0 {
				out.Write(append(slices.Clone(head), strconv.Itoa(n+1), r.Status, "", ""))
			}
			for _, m := range sortedKeys(r.Metrics) {
				out.Write(append(slices.Clone(head), strconv.Itoa(n+1), r.Status, m, strconv.FormatFloat(r.Metrics[m], 'g', -1, 64)))
			}
		}
	}
	out.Flush()
	return out.Error()
}

func sortedKeys(m map[string]float64) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// writeHGRM renders the distribution of the latencies of each measurement, merged over all its repetitions.
func writeHGRM(w io.Writer, d *Document) error {
	for i := range d.Cells {
		c := &d.Cells[i]
		h, div, err := c.pooled()
		if err != nil {
			return err
		}
		if h == nil {
			continue
		}
		fmt.Fprintf(w, "# %s, ns\n", c.Key)
		if _, err := h.PercentilesPrint(w, 5, div); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	return nil
}
