//go:build linux

package report

import (
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// againstBandwidth draws the time of a single load against the bandwidth that other cores use meanwhile. There is a
// line for each placement of the data that the other cores access, and for each percentage of reads among these
// accesses. Each line begins with a measurement in which no other core uses memory.
func againstBandwidth(cells []*Cell) *figure {
	kind := func(c *Cell) string { return "data " + c.Params["data"] + ", " + c.Params["read"] + "% reads" }
	all := curves(cells, kind, func(c *Cell) float64 {
		if rates := c.Values(streamMetric); len(rates) > 0 {
			return stats.Median(rates)
		}
		return 0
	})
	if len(all) == 0 {
		return nil
	}
	return draw("Loaded latency against bandwidth",
		"A load that depends on the one before, against what the other cores read and write. Where a line rises steeply, the memory is saturated. Medians, with the range of the repetitions.",
		axis{label: "MB/s", format: func(v float64) string { return formatMetric(streamMetric, v) }}, axis{label: "one load", log: true, format: asTime}, all)
}

// againstBusy draws the time of a fence against the number of busy CPUs that it interrupts.
func againstBusy(cells []*Cell) *figure {
	all := curves(cells, (*Cell).name, func(c *Cell) float64 { return float64(c.workers()) })
	if len(all) == 0 {
		return nil
	}
	return draw("Fence against busy CPUs", "One fence in all CPUs that run a process of the library. Medians, with the range of the repetitions.",
		axis{label: "CPUs", ticks: measuredAt(all)}, axis{log: true, format: asTime}, all)
}
