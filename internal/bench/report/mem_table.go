//go:build linux

package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/place"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// oneNode is the remark in the table of a host with one NUMA node.
const oneNode = "one node with memory: all of it is local, wherever it is asked for"

// writeMem renders the mem measurements as one table. It marks the best measurement for the CPUs of each NUMA node. It
// shows where memory was requested, next to where it is.
func writeMem(w io.Writer, rep *Run) {
	var all []*bench.Result
	for _, r := range rep.Results {
		if r.Cell.Mem != nil {
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(w, "\nmem  %d MiB of an arena; chase: dependent loads; data: a lock, and %d lines under it\n", all[0].Cell.N, bench.MemTouch)
	rows := [][]string{{"  CPUs of", "memory", "pages", "chase-ns", "scan-MB/s", "data-ns", "asked", "got"}}
	for _, r := range all {
		m := r.Cell.Mem
		name := fmt.Sprintf("  node %d", m.Node)
		if r == bestMem(all, m.Node) {
			name = "*" + name[1:]
		}
		status, reason := r.Status()
		if vs := r.Values("chase-ns"); status == bench.StatusOK && len(vs) > 0 {
			row := []string{name, m.ShortName(), bench.HugeName(m.Huge)}
			for _, metric := range []string{"chase-ns", "scan-MB/s", "data-ns"} {
				row = append(row, formatMetric(metric, stats.Median(r.Values(metric))))
			}
			p := placementOf(r)
			rows = append(rows, append(row, place.JoinInts(p.Nodes), gotText(p)))
			continue
		}
		rows = append(rows, []string{name + " " + m.ShortName() + " " + bench.HugeName(m.Huge), status + ": " + reason})
	}
	writeRows(w, rows)
	if rep.Env.Nodes == 1 {
		fmt.Fprintln(w, oneNode)
	}
}

// bestMem returns the result with the least latency for the CPUs of a NUMA node, or nil if there is only one result.
func bestMem(all []*bench.Result, node int) (best *bench.Result) {
	n := 0
	for _, r := range all {
		vs := r.Values("chase-ns")
		if r.Cell.Mem.Node != node || len(vs) == 0 {
			continue
		}
		n++
		if best == nil || stats.Median(vs) < stats.Median(best.Values("chase-ns")) {
			best = r
		}
	}
	if n < 2 {
		return nil
	}
	return best
}

// placementOf returns where the memory was, according to the last repetition that recorded it. If no repetition
// recorded it, the result says that the placement is not known.
func placementOf(r *bench.Result) *bench.Placement {
	for _, rep := range slices.Backward(r.Reps) {
		if rep.Placement != nil {
			return rep.Placement
		}
	}
	return &bench.Placement{Note: "not known"}
}

// gotText says where the pages are: the share on each node, and the share of huge pages.
func gotText(p *bench.Placement) string {
	total := p.Gone
	var nodes []int
	for node, pages := range p.Got {
		if n, err := strconv.Atoi(node); err == nil {
			nodes = append(nodes, n)
		}
		total += pages
	}
	if len(nodes) == 0 {
		return "not known"
	}
	slices.Sort(nodes)
	var parts []string
	for _, n := range nodes {
		part := strconv.Itoa(n)
		if pages := p.Got[part]; pages != total {
			part += fmt.Sprintf(" %.0f%%", 100*float64(pages)/float64(total))
		}
		parts = append(parts, part)
	}
	if p.Huge > 0 {
		parts = append(parts, fmt.Sprintf("%d MiB huge", p.Huge>>20))
	}
	return strings.Join(parts, ", ")
}
