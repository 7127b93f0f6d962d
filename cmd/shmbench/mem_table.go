//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// oneNode is what there is to say where placement makes no difference.
const oneNode = "one node with memory: all of it is local, wherever it is asked for"

// writeMem renders the mem cells as one table: the best of each node's CPUs is
// marked, and what was asked stands beside what was got.
func writeMem(w io.Writer, rep *report) {
	var all []*result
	for _, r := range rep.Results {
		if r.Cell.Mem != nil {
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(w, "\nmem  %d MiB of an arena; chase: dependent loads; data: a lock, and %d lines under it\n", all[0].Cell.N, memTouch)
	rows := [][]string{{"  CPUs of", "memory", "pages", "chase-ns", "scan-MB/s", "data-ns", "asked", "got"}}
	for _, r := range all {
		m := r.Cell.Mem
		name := fmt.Sprintf("  node %d", m.Node)
		if r == bestMem(all, m.Node) {
			name = "*" + name[1:]
		}
		status, reason := r.status()
		if vs := r.values("chase-ns"); status == statusOK && len(vs) > 0 {
			row := []string{name, m.shortName(), hugeName(m.Huge)}
			for _, metric := range []string{"chase-ns", "scan-MB/s", "data-ns"} {
				row = append(row, formatMetric(metric, median(r.values(metric))))
			}
			p := r.placement()
			rows = append(rows, append(row, joinInts(p.Nodes), p.got()))
			continue
		}
		rows = append(rows, []string{name + " " + m.shortName() + " " + hugeName(m.Huge), status + ": " + reason})
	}
	writeRows(w, rows)
	if rep.Env.Nodes == 1 {
		fmt.Fprintln(w, oneNode)
	}
}

// shortName is the policy as --mem may call it, for a table.
func (m *memShape) shortName() string {
	name := m.policyName()
	for short, long := range memNames {
		if rest, ok := strings.CutPrefix(name, long+":"); ok {
			return short + ":" + rest
		}
	}
	return name
}

// bestMem is the result of the least latency for the CPUs of a node, if it has a
// choice.
func bestMem(all []*result, node int) (best *result) {
	n := 0
	for _, r := range all {
		vs := r.values("chase-ns")
		if r.Cell.Mem.Node != node || len(vs) == 0 {
			continue
		}
		n++
		if best == nil || median(vs) < median(best.values("chase-ns")) {
			best = r
		}
	}
	if n < 2 {
		return nil
	}
	return best
}

// placement is that of the last repetition that has one.
func (r *result) placement() *placement {
	for _, rep := range slices.Backward(r.Reps) {
		if rep.Placement != nil {
			return rep.Placement
		}
	}
	return &placement{Note: "not known"}
}

// got renders where the pages are: the share of each node, and of huge pages.
func (p *placement) got() string {
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
