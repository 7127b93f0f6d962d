//go:build linux

package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/plan"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// glanceRow shows a result of the library, and the ratios of this result to the results of the most important
// primitives of the host.
type glanceRow struct {
	What, Prim, Value string
	Versus            []string
}

// glanceOf returns the rows of the overview of a run. The function writeGlance writes the same rows on a terminal.
func glanceOf(d *Document) (rows []glanceRow) {
	groups := map[string][]*Cell{}
	for i := range d.Cells {
		c := &d.Cells[i]
		k := c.peers()
		groups[k] = append(groups[k], c)
	}
	for i := range d.Cells {
		c := &d.Cells[i]
		sc := bench.ScenarioByName(c.Scenario)
		if sc == nil || !c.ours() || len(c.Values(c.Unit)) == 0 {
			continue
		}
		_, prim, _ := strings.Cut(c.Subject, ":")
		peers := groups[c.peers()]
		var versus []string
		for _, name := range rivals(sc, prim, func(name string) bool { return cellOf(peers, name) != nil }) {
			peer := cellOf(peers, name)
			if peer == nil {
				continue
			}
			if q, err := stats.RatioInterval(ratiosOf(c, peer)); err == nil {
				versus = append(versus, formatRatio(q.Center)+" × "+strings.TrimPrefix(name, "in-process:"))
			}
		}
		if len(versus) > 0 {
			rows = append(rows, glanceRow{glanceName(c.Scenario, c.Params), strings.TrimPrefix(c.name(), bench.Library+":"), formatMetric(c.Unit, stats.Median(c.Values(c.Unit))), versus})
		}
	}
	return rows
}

// peers returns a text that is the same for all cells that can be compared with each other. They have the same
// scenario, the same parameters, and come from the same file.
func (c *Cell) peers() string { return c.Scenario + " " + c.group() + " " + c.file }

func cellOf(cells []*Cell, subject string) *Cell {
	if i := slices.IndexFunc(cells, func(c *Cell) bool { return c.Subject == subject }); i >= 0 {
		return cells[i]
	}
	return nil
}

// ratiosOf returns, for each round, the main metric of the cell a divided by the same metric of the cell b.
func ratiosOf(a, b *Cell) (rs []float64) {
	for i := range min(len(a.Reps), len(b.Reps)) {
		x, okx := a.Reps[i].Metrics[a.Unit]
		y, oky := b.Reps[i].Metrics[a.Unit]
		if okx && oky && y != 0 && a.Reps[i].Status == bench.StatusOK && b.Reps[i].Status == bench.StatusOK {
			rs = append(rs, x/y)
		}
	}
	return rs
}

// glanceName returns a short name for a group of measurements that can be compared.
func glanceName(scenario string, p map[string]string) string {
	label := glanceLabel(scenario, p)
	if p["role"] != "" {
		label += ", of a " + p["role"]
	}
	if p["lines"] != "" {
		label += ", " + p["lines"] + " lines"
	}
	if p["arena"] != "" {
		label += ", in " + p["arena"]
	}
	return label
}

func glanceLabel(scenario string, p map[string]string) string {
	switch scenario {
	case "lock":
		return fmt.Sprintf("lock %s×%s, %s in, %s out", p["procs"], p["threads"], p["cs"], p["think"])
	case "waiters":
		return p["waiters"] + " waiters"
	case "intruder":
		return "lock with an intruder every " + p["gap"]
	case "fence":
		return fmt.Sprintf("fence in %s×%s busy threads", p["procs"], p["threads"])
	case "stream":
		return fmt.Sprintf("load beside %s streams, %s%% of the time, data %s", p["streams"], p["duty"], p["data"])
	case "home":
		return "lock on " + p["home"] + " node"
	case "readers":
		return p["procs"] + " processes that read"
	case "rw":
		return fmt.Sprintf("rw %s×%s, %s%% reads", p["procs"], p["threads"], p["read"])
	case "sem":
		return fmt.Sprintf("sem %s×%s, %s permits", p["procs"], p["threads"], p["permits"])
	case "seq":
		return fmt.Sprintf("step that wakes %s of %s", p["wake"], p["waiters"])
	case "multi":
		return fmt.Sprintf("multi %s×%s, %s keys, %s a hold, %s", p["procs"], p["threads"], p["keys"], p["locks"], p["skew"])
	case "cond":
		return fmt.Sprintf("cond %s×%s, room for %s", p["procs"], p["threads"], p["capacity"])
	case "event", "barrier":
		return fmt.Sprintf("%s %s×%s", scenario, p["procs"], p["threads"])
	case "queue":
		return fmt.Sprintf("queue %s×%s of %s, %s at a time", p["procs"], p["threads"], p["capacity"], p["batch"])
	case "herd":
		return fmt.Sprintf("wake %s of %s after %s", p["wake"], p["waiters"], p["gap"])
	case "open":
		return fmt.Sprintf("lock %s×%s at %s/s, %s in", p["procs"], p["threads"], p["rate"], p["cs"])
	case "oversub":
		return fmt.Sprintf("lock, %s for each CPU, spin %s, noise %s", p["load"], p["spin"], p["noise"])
	case "handoff", "wake", "crash":
		label := scenario + " " + p["place"]
		if scenario == "wake" && p["gap"] != bench.ShortDuration(plan.UsualGap) {
			label += " after " + p["gap"]
		}
		if scenario == "handoff" && p["hog"] != "0" {
			label += " beside a hog"
		}
		return label
	}
	return scenario
}
