//go:build linux

package report

import (
	"slices"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// CompareFiles compares several documents with several others. For each measurement, a document counts as one sample:
// the median of its repetitions. The repetitions of one run are not independent samples, because they share the memory
// layout of the run and the state of the host.
func CompareFiles(before, after []*Document, metric string, least float64) *Comparison {
	if len(before) == 1 && len(after) == 1 {
		return CompareDocuments(before[0], after[0], metric, least)
	}
	all := CompareDocuments(pooledFiles(before), pooledFiles(after), metric, least)
	all.units = "files"
	return all
}

// pooledFiles makes one document of several. It keeps the cells that all of them measured. Each document becomes one
// repetition of these cells.
func pooledFiles(list []*Document) *Document {
	d := &Document{Schema: Schema, Env: list[0].Env}
	for i := range list[0].Cells {
		cell := list[0].Cells[i]
		cell.Reps = nil
		for _, one := range list {
			at := slices.IndexFunc(one.Cells, func(c Cell) bool { return c.Key == cell.Key })
			if at < 0 {
				break
			}
			if metrics := one.Cells[at].medians(); len(metrics) > 0 {
				cell.Reps = append(cell.Reps, Repetition{Status: bench.StatusOK, Metrics: metrics})
			}
		}
		if len(cell.Reps) < len(list) {
			cell.Reps = nil // some document has not measured the cell
		}
		d.Cells = append(d.Cells, cell)
	}
	return d
}

// medians returns the median of each metric of a cell.
func (c *Cell) medians() map[string]float64 {
	all := map[string]float64{}
	for _, r := range c.Reps {
		for name := range r.Metrics {
			if _, ok := all[name]; ok {
				continue
			}
			if vs := c.Values(name); len(vs) > 0 {
				all[name] = stats.Median(vs)
			}
		}
	}
	return all
}
