//go:build linux

package report

import (
	"fmt"
	"slices"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// streamMetric is the metric of stream measurements, in which cores read and write memory as fast as they can.
// streamGain is the least gain for which rule R17 advises where to put the data.
const (
	streamMetric = "MB/s"
	streamGain   = 1.1
)

// streams returns a cell for each placement of the data: the cell in which the largest number of cores stream, and all
// of them read without pauses. On a host with several nodes, these are the cores of all nodes.
func (d *Document) streams() map[string]*Cell {
	cells := d.find("stream", with("duty", "100"), with("read", "100"), func(c *Cell) bool {
		found := c.Values("as-asked-%")
		return len(c.Values(streamMetric)) > 0 && len(found) > 0 && slices.Min(found) >= placed
	})
	most := 0
	for _, c := range cells {
		most = max(most, c.number("streams"))
	}
	all := map[string]*Cell{}
	for _, c := range cells {
		if c.number("streams") == most {
			all[c.Params["data"]] = c
		}
	}
	return all
}

// streamContrasts returns the comparisons for rule R17. It compares memory on each thread's own node with memory on all
// nodes in turn, and memory on all nodes in turn with memory on one node.
func streamContrasts(d *Document) (list []*contrast) {
	cells := d.streams()
	for _, pair := range [][2]string{{bench.DataOwn, bench.DataSpread}, {bench.DataSpread, bench.DataOne}} {
		if better, worse := cells[pair[0]], cells[pair[1]]; better != nil && worse != nil {
			list = append(list, contrastOf(pair[0], better, worse, streamMetric, streamGain))
		}
	}
	return list
}

// adviseStream is rule R17: on which NUMA nodes to put data that cores of all nodes read or write in sequence.
func adviseStream(d *Document, list []*contrast) *advice {
	cells := d.streams()
	own := cells[bench.DataOwn]
	if own == nil {
		return nil
	}
	a := &advice{Verdict: adviceNone, Text: "no place of data that cores of all nodes stream is surely better by 10 %"}
	for _, c := range d.find("stream") {
		a.Evidence = append(a.Evidence, c.evidence("chase-ns"))
		if len(c.Values(streamMetric)) > 0 {
			a.Evidence = append(a.Evidence, c.evidence(streamMetric))
		}
	}
	rate := func(c *Cell) string {
		return formatMetric(streamMetric, stats.Median(c.Values(streamMetric))) + " MB/s"
	}
	spread, one := pick(list, bench.DataOwn), pick(list, bench.DataSpread)
	if spread == nil || one == nil {
		a.Verdict, a.Text = adviceMoot, "one node has all memory"
		if idle := d.find("stream", with("streams", "0")); len(idle) > 0 {
			a.Text += fmt.Sprintf("; a load takes %s alone, and %s while %d other cores stream %s", formatMetric("chase-ns", stats.Median(idle[0].Values("chase-ns"))),
				formatMetric("chase-ns", stats.Median(own.Values("chase-ns"))), own.number("streams"), rate(own))
		}
		return a
	}
	a.Effect = spread.effectOf()
	switch {
	case spread.sure():
		a.Verdict = adviceDo
		a.Text = fmt.Sprintf("keep data that one node scans on that node: %d cores stream %s from their own nodes, and %s if it is spread over all", own.number("streams"), rate(own), rate(spread.worse))
		a.Do = []string{"leave pages to first touch by the process that uses them (shm.PolicyLocal), or bind each range of the arena to the node of its users"}
	case one.sure():
		a.Verdict, a.Effect = adviceDo, one.effectOf()
		a.Text = fmt.Sprintf("spread data that cores of all nodes scan: %d cores stream %s from all nodes in turn, and %s from one", one.better.number("streams"), rate(one.better), rate(one.worse))
		a.Do = []string{"NUMA: shm.Policy{Mode: shm.PolicyInterleave, Nodes: ALL} for that range of the arena; locks stay with those who use them"}
	}
	if a.Verdict == adviceDo && one.sure() && spread.sure() {
		a.Text += fmt.Sprintf("; data that all nodes scan belongs on all of them (%s× of one node)", formatRatio(one.Center))
	}
	return a
}
