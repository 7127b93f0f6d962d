//go:build linux

package main

import (
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/shmsync/shmsync/internal/diagnose"
)

type graphCmd struct {
	watching
	Arena  string `arg:"" help:"Name, path or dump."`
	Format string `short:"f" enum:"text,dot,svg,json" default:"text" help:"One of ${enum}."`
}

// Run draws the graph.
func (c *graphCmd) Run(s *session) error {
	s.json = s.json || c.Format == "json"
	return s.with("graph", c.Arena, func(d *document, _ *source, snap *snapshot) error {
		d.Edges, d.Waits, d.Holds = snap.Edges(), snap.Waits, snap.Holds
		return nil
	}, func(d *document, snap *snapshot) error {
		g := graphOf(d, snap)
		switch c.Format {
		case "dot":
			return g.dot(s.stdout)
		case "svg":
			return g.svg(s.stdout)
		}
		return g.text(s.stdout, s.width())
	})
}

// graph is the wait-for graph: its nodes are participants, and an edge leads from each participant that waits to the
// participant that it waits for.
type graph struct {
	arena    string
	nodes    []string // participants
	titles   map[string]string
	life     map[string]string
	edges    []edge
	stuck    map[[2]string]bool // edges of deadlocks
	findings []finding
}

func graphOf(d *document, snap *snapshot) *graph {
	g := &graph{arena: d.Arena.Name, edges: d.Edges, titles: map[string]string{}, life: map[string]string{}, stuck: map[[2]string]bool{}, findings: d.Findings}
	add := func(n string) {
		if g.titles[n] == "" {
			g.nodes = append(g.nodes, n)
			g.titles[n], g.life[n] = snap.Short(n), "gone"
			if p := snap.Participant(n); p != nil {
				g.life[n] = p.Life
			}
		}
	}
	for _, e := range g.edges {
		add(e.From)
		add(e.To)
	}
	slices.SortFunc(g.nodes, func(a, b string) int { return diagnose.SlotOf(a) - diagnose.SlotOf(b) })
	for _, f := range d.Findings {
		if f.Kind == diagnose.Deadlock {
			for i, from := range f.Participants {
				g.stuck[[2]string{from, f.Participants[(i+1)%len(f.Participants)]}] = true
			}
		}
	}
	return g
}

const (
	aboveFirst = 3  // how many waiters of a process get a further line, marked "(above)"
	depthMost  = 16 // how deep a tree gets
)

// text draws each chain of waits as a tree. Its root is the participant for which all others in the tree wait.
func (g *graph) text(w io.Writer, width int) error {
	waiters := map[string][]edge{}
	waits := map[string]bool{}
	for _, e := range g.edges {
		waiters[e.To] = append(waiters[e.To], e)
		waits[e.From] = true
	}
	if len(g.edges) == 0 {
		fmt.Fprintln(w, "no process waits for another, as far as the arena tells")
	}
	shown := map[string]bool{}
	var below []string // participants at the maximum depth; a further tree shows their waiters
	var draw func(name, indent string, depth int)
	draw = func(name, indent string, depth int) {
		type line struct {
			edge
			isNew bool // no tree shows the process yet
		}
		var lines []line
		above := 0 // waiters that a tree shows already
		for _, e := range waiters[name] {
			isNew := !shown[e.From]
			shown[e.From] = true
			if !isNew {
				above++
			}
			if isNew || above <= aboveFirst || g.stuck[[2]string{e.From, e.To}] {
				lines = append(lines, line{e, isNew})
			}
		}
		left := len(waiters[name]) - len(lines)
		for i, e := range lines {
			branch, next := "├─ ", "│  "
			if i == len(lines)-1 && left == 0 {
				branch, next = "└─ ", "   "
			}
			mark, deeper := "", e.isNew
			switch {
			case !deeper:
				mark = " (above)"
			case depth == depthMost && len(waiters[e.From]) > 0:
				mark, deeper = " (below)", false
				below = append(below, e.From)
			}
			if g.stuck[[2]string{e.From, e.To}] {
				mark += " ← deadlock"
			}
			fmt.Fprintf(w, "%s%s%s waits for %s of %s%s\n", indent, branch, g.titles[e.From], e.For, e.Object, mark)
			if deeper {
				draw(e.From, indent+next, depth+1)
			}
		}
		if left > 0 {
			fmt.Fprintf(w, "%s└─ %d more that are above\n", indent, left)
		}
	}
	tree := func(root string) {
		shown[root] = true
		below = append(below, root)
		for len(below) > 0 {
			name := below[0]
			below = below[1:]
			fmt.Fprintln(w, g.titles[name])
			draw(name, "", 1)
		}
	}
	for _, roots := range []bool{true, false} {
		for _, n := range g.nodes {
			if !shown[n] && (!roots || !waits[n]) {
				tree(n)
			}
		}
	}
	writeFindings(w, width, g.findings)
	return nil
}

// dot writes the graph for Graphviz.
func (g *graph) dot(w io.Writer) error {
	fmt.Fprintf(w, "digraph %s {\n\trankdir=LR;\n\tnode [shape=box, fontname=\"sans-serif\"];\n\tedge [fontname=\"sans-serif\"];\n", quoteDot(g.arena))
	for _, n := range g.nodes {
		color := ""
		if g.life[n] != "alive" {
			color = ", style=filled, fillcolor=\"#e0e0e0\""
		}
		fmt.Fprintf(w, "\t%s [label=%s%s];\n", quoteDot(n), quoteDot(g.titles[n]), color)
	}
	for _, e := range g.edges {
		color := ""
		if g.stuck[[2]string{e.From, e.To}] {
			color = ", color=red, fontcolor=red, penwidth=2"
		}
		fmt.Fprintf(w, "\t%s -> %s [label=%s%s];\n", quoteDot(e.From), quoteDot(e.To), quoteDot(e.For+" of "+e.Object), color)
	}
	_, err := fmt.Fprintln(w, "}")
	return err
}

func quoteDot(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

// svg draws the participants on a circle, so that cycles look like cycles.
func (g *graph) svg(w io.Writer) error {
	const boxW, boxH = 190.0, 36.0
	n := float64(max(len(g.nodes), 1))
	// The radius leaves room between the boxes for the labels of the waits.
	radius := math.Max(150, (boxW+150)/(2*math.Sin(math.Pi/math.Max(n, 2))))
	side := 2*radius + boxW + 60
	type point struct{ x, y float64 }
	at := map[string]point{}
	for i, name := range g.nodes {
		angle := 2*math.Pi*float64(i)/n - math.Pi/2
		at[name] = point{side/2 + radius*math.Cos(angle), side/2 + radius*math.Sin(angle)}
	}
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="12">`+"\n", side, side, side, side)
	fmt.Fprintf(w, "<title>who waits for whom in %s</title>\n", html.EscapeString(g.arena))
	for _, c := range []struct{ id, color string }{{"a", "#555"}, {"d", "#c00"}} {
		fmt.Fprintf(w, `<marker id="%s" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto"><path d="M0,0 L10,5 L0,10 z" fill="%s"/></marker>`+"\n", c.id, c.color)
	}
	var labels strings.Builder // drawn last, so that they are above lines and boxes
	if len(g.edges) == 0 {
		fmt.Fprintf(&labels, `<text x="%.1f" y="%.1f" text-anchor="middle" fill="#555">no process waits for another</text>`+"\n", side/2, side/2)
	}
	lines := map[[2]string]int{}
	for _, e := range g.edges {
		from, to := at[e.From], at[e.To]
		dx, dy := to.x-from.x, to.y-from.y
		far := math.Hypot(dx, dy)
		// The line begins and ends at the edges of the boxes. The variable out is the share of the distance between the
		// centres that lies inside one box.
		out := math.Min(boxW/2/math.Max(math.Abs(dx), 1e-9), boxH/2/math.Max(math.Abs(dy), 1e-9))
		x1, y1, x2, y2 := from.x+dx*out, from.y+dy*out, to.x-dx*out, to.y-dy*out
		// If k lines already lead from e.From to e.To, the next line is drawn beside them.
		k := lines[[2]string{e.From, e.To}]
		lines[[2]string{e.From, e.To}]++
		shift := 8 + 16*float64(k)
		ox, oy := -dy/far*shift, dx/far*shift
		id, color, width := "a", "#555", 1
		if g.stuck[[2]string{e.From, e.To}] {
			id, color, width = "d", "#c00", 2
		}
		fmt.Fprintf(w, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%d" marker-end="url(#%s)"/>`+"\n",
			x1+ox, y1+oy, x2+ox, y2+oy, color, width, id)
		fmt.Fprintf(&labels, `<text x="%.1f" y="%.1f" text-anchor="middle" fill="%s" stroke="#fff" stroke-width="4" paint-order="stroke">%s</text>`+"\n",
			(x1+x2)/2+2*ox, (y1+y2)/2+2*oy+4, color, html.EscapeString(e.For+" of "+e.Object))
	}
	for _, name := range g.nodes {
		p, fill := at[name], "#fff"
		if g.life[name] != "alive" {
			fill = "#ddd"
		}
		fmt.Fprintf(w, `<rect x="%.1f" y="%.1f" width="%.0f" height="%.0f" rx="6" fill="%s" stroke="#333"/>`+"\n", p.x-boxW/2, p.y-boxH/2, boxW, boxH, fill)
		fmt.Fprintf(w, `<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`+"\n", p.x, p.y+4, html.EscapeString(g.titles[name]))
	}
	_, err := fmt.Fprintln(w, labels.String()+"</svg>")
	return err
}
