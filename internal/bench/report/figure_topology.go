//go:build linux

package report

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/shmsync/shmsync/internal/topology"
)

// box is a rectangle with a label. It can contain other boxes.
type box struct {
	label, class string
	kids         []*box
	x, y, w, h   float64
}

// These constants are the sizes of boxes, in the units of figures.
const (
	boxPad, boxHead, boxLeaf = 5.0, 17.0, 22.0
	boxChar                  = 7.0 // width of a letter
)

// layout computes the sizes and places of the box and of its children. It arranges the children in rows. The parameter
// most is the largest width of a row.
func (b *box) layout(most float64) {
	text := boxChar*float64(len([]rune(b.label))) + 2*boxPad
	if len(b.kids) == 0 {
		b.w, b.h = text, boxLeaf
		return
	}
	area, widest := 0.0, 0.0
	for _, k := range b.kids {
		k.layout(most - 2*boxPad)
		area += (k.w + boxPad) * (k.h + boxPad)
		widest = max(widest, k.w)
	}
	limit := min(most-2*boxPad, max(widest, text, math.Sqrt(2.5*area)))
	x, y, row := boxPad, boxHead, 0.0
	b.w = text
	for _, k := range b.kids {
		if x > boxPad && x+k.w > limit+boxPad {
			x, y, row = boxPad, y+row+boxPad, 0
		}
		k.x, k.y = x, y
		x += k.w + boxPad
		row = max(row, k.h)
		b.w = max(b.w, x)
	}
	b.h = y + row + boxPad
}

// draw writes the box and its children as SVG, at the place x, y.
func (b *box) draw(w *strings.Builder, x, y float64) {
	x, y = x+b.x, y+b.y
	fmt.Fprintf(w, `<rect class="box %s" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="3"/>`, b.class, x, y, b.w, b.h)
	at, anchor := x+boxPad, "start"
	if len(b.kids) == 0 {
		at, anchor = x+b.w/2, "middle"
	}
	fmt.Fprintf(w, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, at, y+13, anchor, template.HTMLEscapeString(b.label))
	for _, k := range b.kids {
		k.draw(w, x, y)
	}
}

// topologyFigure draws packages, nodes, caches and cores as nested boxes.
func topologyFigure(t *topology.Topology) *figure {
	root := &box{class: "host", label: t.Summary()}
	for _, pkg := range t.Groups(t.Near(t.IDs()), topology.ByPackage) {
		c, _ := t.CPU(pkg[0])
		outer := &box{class: "package", label: "package " + strconv.Itoa(c.Package)}
		root.kids = append(root.kids, outer)
		for _, cpus := range t.Groups(pkg, topology.ByNode) {
			c, _ := t.CPU(cpus[0])
			n, _ := t.Node(c.Node)
			node := &box{class: "node", label: nodeLabel(n)}
			outer.kids = append(outer.kids, node)
			for _, group := range t.Groups(cpus, topology.ByLLC) {
				c, _ := t.CPU(group[0])
				cache := &box{class: "llc", label: t.LLCName(c.LLC)}
				node.kids = append(node.kids, cache)
				for _, core := range t.Groups(group, topology.ByCore) {
					class := "core"
					if !slices.ContainsFunc(core, func(id int) bool { return slices.Contains(t.Limits.CPUs, id) }) {
						class = "core off"
					}
					cache.kids = append(cache.kids, &box{class: class, label: topology.JoinCPUs(core)})
				}
			}
		}
	}
	for _, n := range t.Nodes {
		if len(n.CPUs) == 0 {
			root.kids = append(root.kids, &box{class: "node", label: nodeLabel(n) + ", no CPUs"})
		}
	}
	root.layout(plotWidth - 2*boxPad)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %.1f" role="img" aria-label="Topology">`, max(plotWidth, root.w+2*boxPad), root.h+2*boxPad)
	root.draw(&b, boxPad, boxPad)
	b.WriteString("</svg>")
	caption := "Packages, NUMA nodes, last-level caches and cores, with the numbers of their CPUs; threads of one core are joined."
	if len(t.Limits.CPUs) < len(t.CPUs) {
		caption += " This process may not run on the pale ones."
	}
	return &figure{"Topology", caption, template.HTML(b.String())}
}

func nodeLabel(n topology.Node) string {
	label := "node " + strconv.Itoa(n.ID)
	if n.Bytes == 0 {
		return label + ", no memory"
	}
	return fmt.Sprintf("%s, %.3g GB", label, float64(n.Bytes)/(1<<30))
}

// distanceFigure draws the matrix of distances that firmware reports. It returns nil on a host with one node.
func distanceFigure(t *topology.Topology) *figure {
	m := grid{format: func(v float64) string { return strconv.Itoa(int(v)) }, from: "of node", to: "to node"}
	for _, n := range t.Nodes {
		m.labels = append(m.labels, strconv.Itoa(n.ID))
		row := make([]float64, len(t.Nodes))
		for i := range row {
			if i >= len(n.Distance) {
				return nil
			}
			row[i] = float64(n.Distance[i])
		}
		m.values = append(m.values, row)
	}
	if len(t.Nodes) < 2 {
		return nil
	}
	return m.draw("Distances", "What firmware says of the distance between nodes (SLIT); 10 is local.")
}
