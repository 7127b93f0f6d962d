//go:build linux

package report

import (
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/place"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// memGroups returns a group of cells for the CPUs of each NUMA node.
func memGroups(sc *bench.Scenario, cells []*Cell) (groups []htmlGroup) {
	var nodes []string
	for _, c := range cells {
		if !slices.Contains(nodes, c.Params["node"]) {
			nodes = append(nodes, c.Params["node"])
		}
	}
	for _, node := range nodes {
		var some []*Cell
		for _, c := range cells {
			if c.Params["node"] == node {
				some = append(some, c)
			}
		}
		g := newGroup(sc, "From the CPUs of node "+node, some) // newGroup also sorts the cells
		for i, c := range some {
			g.Bars[i].Ratio = fmt.Sprintf("%s, pages %s, scan %s MB/s, data %s", c.Params["mem"], c.Params["huge"],
				formatMetric("scan-MB/s", stats.Median(c.Values("scan-MB/s"))), formatMetric("data-ns", stats.Median(c.Values("data-ns"))))
		}
		groups = append(groups, g)
	}
	return groups
}

// memFigures returns a figure that shows where memory was requested and where it is, and a figure of the latency from
// each node to each node.
func memFigures(cells []*Cell) (figures []*figure) {
	for _, f := range []*figure{memPlaces(cells), memMatrix(cells)} {
		if f != nil {
			figures = append(figures, f)
		}
	}
	return figures
}

// placement returns where the memory of the cell was, according to the last repetition that recorded it. It returns nil
// if no repetition recorded it.
func (c *Cell) placement() *bench.Placement {
	for _, r := range slices.Backward(c.Reps) {
		if r.Placement != nil && len(r.Placement.Got) > 0 {
			return r.Placement
		}
	}
	return nil
}

const (
	memRow     = 22.0 // height of a row
	memBarLeft = 300.0
	memBarEnd  = 600.0
	memMostBar = 48
)

// memPlaces draws a bar for each cell. The bar shows the NUMA nodes where its memory was requested and, in colours, the
// nodes where its pages are.
func memPlaces(cells []*Cell) *figure {
	const title = "Memory placement asked and got"
	var rows strings.Builder
	var seen []int
	y, n := 26.0, 0
	for _, c := range cells {
		p := c.placement()
		if p == nil || n == memMostBar {
			continue
		}
		n++
		total, at := p.Gone, memBarLeft
		var nodes []int
		for node, pages := range p.Got {
			if k, err := strconv.Atoi(node); err == nil && pages > 0 {
				nodes = append(nodes, k)
				total += pages
			}
		}
		slices.Sort(nodes)
		fmt.Fprintf(&rows, `<text x="0" y="%.0f">%s</text><text x="%g" y="%.0f" text-anchor="end">asked: %s</text>`, y+14,
			template.HTMLEscapeString(fmt.Sprintf("CPU of node %s, %s, %s", c.Params["node"], c.Params["mem"], c.Params["huge"])),
			memBarLeft-8, y+14, place.JoinInts(p.Nodes))
		for _, node := range nodes {
			if !slices.Contains(seen, node) {
				seen = append(seen, node)
			}
			width := (memBarEnd - memBarLeft) * float64(p.Got[strconv.Itoa(node)]) / float64(total)
			outline := ""
			if !slices.Contains(p.Nodes, node) {
				outline = ` stroke="#d55e00" stroke-width="2" stroke-dasharray="4 2"`
			}
			fmt.Fprintf(&rows, `<rect x="%.1f" y="%.0f" width="%.1f" height="16" fill="%s"%s/>`, at, y+2, width, palette[node%len(palette)], outline)
			at += width
		}
		verdict := fmt.Sprintf("%.0f %% as asked", p.Heeded())
		if p.Huge > 0 {
			verdict += fmt.Sprintf(", %d MiB huge", p.Huge>>20)
		}
		fmt.Fprintf(&rows, `<text x="%g" y="%.0f">%s</text>`, memBarEnd+8, y+14, verdict)
		y += memRow
	}
	if n == 0 {
		return nil
	}
	slices.Sort(seen)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %.0f" role="img" aria-label="%s">`, plotWidth, y+6, title)
	for i, node := range seen {
		x := memBarLeft + 74*float64(i)
		fmt.Fprintf(&b, `<rect x="%.0f" y="6" width="12" height="12" fill="%s"/><text x="%.0f" y="16">node %d</text>`, x, palette[node%len(palette)], x+17, node)
	}
	b.WriteString(rows.String() + "</svg>")
	return &figure{title, "Each bar is the memory of a cell, coloured by the node that its pages are on; pages outside the nodes that were asked for have a dashed outline.",
		template.HTML(b.String())}
}

// memMatrix draws the latency from the CPUs of each NUMA node to the memory of each node, for pages of the ordinary
// size. It returns nil for a host with one node.
func memMatrix(cells []*Cell) *figure {
	const title, side, left, top = "Latency from node to node", 64.0, 110.0, 40.0
	value := map[[2]int]float64{}
	var from, to []int
	least, most := 0.0, 0.0
	for _, c := range cells {
		list, bound := strings.CutPrefix(c.Params["mem"], "bind:")
		memory, err1 := strconv.Atoi(list)
		node, err2 := strconv.Atoi(c.Params["node"])
		vs := c.Values("chase-ns")
		if !bound || err1 != nil || err2 != nil || c.Params["huge"] != "none" || len(vs) == 0 {
			continue
		}
		v := stats.Median(vs)
		if len(value) == 0 {
			least = v
		}
		least, most = min(least, v), max(most, v)
		value[[2]int{node, memory}] = v
		if !slices.Contains(from, node) {
			from = append(from, node)
		}
		if !slices.Contains(to, memory) {
			to = append(to, memory)
		}
	}
	if len(value) < 2 {
		return nil
	}
	slices.Sort(from)
	slices.Sort(to)
	width, height := max(left+side*float64(len(to))+20, plotWidth), top+side/2*float64(len(from))+10
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">`, width, height, title)
	fmt.Fprintf(&b, `<text x="%g" y="14">memory of node</text><text x="0" y="%g">CPU of node</text>`, left, top-8)
	for j, memory := range to {
		fmt.Fprintf(&b, `<text x="%.0f" y="%g" text-anchor="middle">%d</text>`, left+side*(float64(j)+.5), top-8, memory)
	}
	for i, node := range from {
		y := top + side/2*float64(i)
		fmt.Fprintf(&b, `<text x="%g" y="%.0f" text-anchor="end">%d</text>`, left-10, y+20, node)
		for j, memory := range to {
			v, ok := value[[2]int{node, memory}]
			if !ok {
				continue
			}
			dark := 0.1
			if most > least {
				dark += 0.6 * (v - least) / (most - least)
			}
			x := left + side*float64(j)
			fmt.Fprintf(&b, `<rect x="%.0f" y="%.0f" width="%g" height="%g" fill="#d55e00" fill-opacity="%.2f"/><text x="%.0f" y="%.0f" text-anchor="middle">%s</text>`,
				x, y, side-2, side/2-2, dark, x+side/2-1, y+20, asTime(v))
		}
	}
	b.WriteString("</svg>")
	return &figure{title, "The median of chase-ns: a load that depends on the one before, of memory that caches do not hold.", template.HTML(b.String())}
}
