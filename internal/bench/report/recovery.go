//go:build linux

package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// recovery has, for each kill, the time until a survivor reached a stage of the recovery. It has the kills of all
// rounds together, because one round has too few kills for a high quantile.
type recovery struct {
	Subject, Stage string
	Kills          int
	hist           *hdrhistogram.Histogram
}

// These are the stages of a recovery, in the order in which the survivor reaches them.
const (
	stageTold  = "told of the death"
	stageOwned = "owns the lock"
)

// recoveries returns the times for each stage that a crash cell has measured. It omits rounds that other programs
// disturbed, unless all rounds were disturbed.
func (c *Cell) recoveries() (list []recovery, err error) {
	clean := false
	for i := range c.Reps {
		clean = clean || c.Reps[i].Hist != "" && !c.Reps[i].Dirty
	}
	used := func(r *Repetition) bool { return r.Status == bench.StatusOK && (!clean || !r.Dirty) }
	for _, stage := range []struct {
		name string
		text func(*Repetition) string
	}{{stageTold, func(r *Repetition) string { return r.Told }}, {stageOwned, func(r *Repetition) string { return r.Hist }}} {
		h, _, err := c.merged(func(r *Repetition) string {
			if !used(r) {
				return ""
			}
			return stage.text(r)
		})
		if err != nil {
			return nil, err
		}
		if h != nil && h.TotalCount() > 0 {
			list = append(list, recovery{c.name(), stage.name, int(h.TotalCount()), h})
		}
	}
	return list, nil
}

// Quantile returns a quantile of the times with its interval, as text. If there are too few kills for an interval, the
// text says how many kills are needed.
func (r recovery) Quantile(q float64) string {
	v, err := stats.OrderInterval(r.hist, q)
	if err != nil {
		return fmt.Sprintf("needs %d kills", stats.LeastSamples(q))
	}
	return fmt.Sprintf("%s [%s, %s]", asTime(v.Center), asTime(v.Lo), asTime(v.Hi))
}

// Mean returns the mean of the times after all kills, as text.
func (r recovery) Mean() string { return asTime(r.hist.Mean()) }

// P50 returns the median of the times, as text. It is a column of a table, as P90 and P99 are.
func (r recovery) P50() string { return r.Quantile(0.5) }

// P90 returns the time that one kill in ten exceeds, as text.
func (r recovery) P90() string { return r.Quantile(0.9) }

// P99 returns the time that one kill in a hundred exceeds, as text.
func (r recovery) P99() string { return r.Quantile(0.99) }

// Text returns the most important quantiles of the times, and the number of kills.
func (r recovery) Text() string {
	text := "p50 " + r.P50()
	if _, err := stats.OrderInterval(r.hist, 0.99); err != nil {
		return fmt.Sprintf("%s, p90 %s, of %d kills; p99 %s", text, r.P90(), r.Kills, r.P99())
	}
	return fmt.Sprintf("%s, p99 %s, of %d kills", text, r.P99(), r.Kills)
}

// recoveryTable returns the recoveries of all crash cells of a group, cell by cell.
func recoveryTable(cells []*Cell) (list []recovery) {
	for _, c := range cells {
		if c.Scenario != "crash" {
			continue
		}
		if all, err := c.recoveries(); err == nil { // a cell has no row if its histogram cannot be decoded
			list = append(list, all...)
		}
	}
	return list
}

// writeRecovery renders a table of recovery times for each group of crash measurements, in which processes are killed.
func writeRecovery(w io.Writer, d *Document) {
	for _, group := range d.crashGroups() {
		list := recoveryTable(group)
		if len(list) == 0 {
			continue
		}
		fmt.Fprintln(w, "\n"+cut("all kills together, from the kill  "+group[0].group()))
		rows := [][]string{{"", "survivor", "mean", "p50 [95 %]", "p99 [95 %]", "kills"}}
		for _, r := range list {
			rows = append(rows, []string{"  " + r.Subject, r.Stage, r.Mean(), r.P50(), r.P99(), fmt.Sprint(r.Kills)})
		}
		writeRows(w, rows)
	}
}

// crashGroups returns groups of crash cells, in which processes are killed. The cells of a group can be compared.
func (d *Document) crashGroups() (groups [][]*Cell) {
	at := map[string]int{}
	for _, c := range d.find("crash") {
		k := c.peers()
		if _, ok := at[k]; !ok {
			at[k] = len(groups)
			groups = append(groups, nil)
		}
		groups[at[k]] = append(groups[at[k]], c)
	}
	return groups
}

// deathText says how soon the lock of a killed process has a new owner, and how soon a waiter learns of the death. It
// also says how soon a robust mutex in C has a new owner. The text is empty if the cell has no histogram.
func deathText(d *Document, c *Cell) (text string, evidence []string) {
	all, err := c.recoveries()
	if err != nil || len(all) == 0 {
		return "", nil
	}
	owned := all[len(all)-1]
	var parts []string
	parts = append(parts, "the lock of a killed process is owned again after "+owned.Text())
	if len(all) > 1 {
		parts = append(parts, "a waiter is told of the death after "+all[0].Text())
	}
	for _, p := range d.find("crash", by("c:robust"), alike(c)) {
		if peer, err := p.recoveries(); err == nil && len(peer) > 0 {
			parts = append(parts, p.Subject+" is owned again after "+peer[0].Text())
		}
	}
	if v, err := stats.OrderInterval(owned.hist, 0.99); err == nil {
		parts = append(parts, "a time-out below "+asTime(v.Hi)+" may end before that")
	}
	for _, r := range all {
		evidence = append(evidence, fmt.Sprintf("%s: %s, mean %s  %s", r.Stage, r.Text(), r.Mean(), c.Key))
	}
	return strings.Join(parts, "; "), evidence
}
