package topology

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// textWidth is the width at which long lines of the tree are broken.
const textWidth = 96

// printer writes lines, and keeps the first error of a write.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(indent int, format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, "%s%s\n", strings.Repeat("  ", indent), fmt.Sprintf(format, args...))
	}
}

// words writes a heading, and the words of a list after it, on as many lines as they need.
func (p *printer) words(indent int, head string, words []string) {
	line := head
	for _, w := range words {
		if utf8.RuneCountInString(line)+1+utf8.RuneCountInString(w)+2*indent > textWidth {
			p.line(indent, "%s", line)
			line = "   "
		}
		line += " " + w
	}
	p.line(indent, "%s", line)
}

// WriteText writes the topology as a tree for people.
func (t *Topology) WriteText(w io.Writer) error {
	p := &printer{w: w}
	p.line(0, "%s", t.Title())
	p.line(0, "%s", t.Summary())
	for _, pkg := range t.Groups(t.Near(t.IDs()), ByPackage) {
		first, _ := t.CPU(pkg[0])
		p.line(0, "package %d", first.Package)
		dies := t.Groups(pkg, func(c CPU) int { return c.Die })
		for _, die := range dies {
			indent := 1
			if len(dies) > 1 {
				first, _ := t.CPU(die[0])
				p.line(indent, "die %d", first.Die)
				indent++
			}
			for _, node := range t.Groups(die, ByNode) {
				t.writeNode(p, indent, node)
			}
		}
	}
	for _, n := range t.Nodes {
		if len(n.CPUs) == 0 {
			t.writeNodeLines(p, 0, n)
		}
	}
	t.writeDistances(p)
	t.writeLimits(p)
	for _, note := range t.Notes {
		p.line(0, "note: %s", note)
	}
	return p.err
}

func (t *Topology) writeNode(p *printer, indent int, cpus []int) {
	first, _ := t.CPU(cpus[0])
	n, _ := t.Node(first.Node)
	t.writeNodeLines(p, indent, n)
	for _, group := range t.Groups(cpus, ByLLC) {
		c, _ := t.CPU(group[0])
		var cores []string
		for _, core := range t.Groups(group, ByCore) {
			cores = append(cores, JoinCPUs(core))
		}
		p.words(indent+1, t.LLCName(c.LLC)+": cpus", cores)
	}
}

// JoinCPUs writes CPUs in the form in which the user names a placement, such as 0+4.
func JoinCPUs(cpus []int) string {
	parts := make([]string, len(cpus))
	for i, c := range cpus {
		parts[i] = strconv.Itoa(c)
	}
	return strings.Join(parts, "+")
}

// LLCName returns a name for a last-level cache, with its level and size.
func (t *Topology) LLCName(i int) string {
	l := t.LLCs[i]
	switch {
	case l.Level == 0:
		return fmt.Sprintf("LLC %d (not told)", i)
	case l.Bytes == 0:
		return fmt.Sprintf("LLC %d (L%d)", i, l.Level)
	}
	return fmt.Sprintf("LLC %d (L%d, %s)", i, l.Level, formatSize(l.Bytes))
}

// Title returns the CPU model and the kernel of the host.
func (t *Topology) Title() string {
	title := t.Model
	if title == "" {
		title = "unnamed CPU"
	}
	if t.Kernel != "" {
		title += ", Linux " + t.Kernel
	}
	return title
}

// Summary returns the numbers of packages, nodes, cores and so on.
func (t *Topology) Summary() string {
	count := func(n int, what string) string {
		if n == 1 {
			return "1 " + what
		}
		return fmt.Sprintf("%d %ss", n, what)
	}
	ids := t.IDs()
	cores := len(t.Groups(ids, ByCore))
	parts := []string{count(len(t.Groups(ids, ByPackage)), "package"), count(len(t.Nodes), "node"), count(len(t.LLCs), "LLC"),
		count(cores, "core"), count(len(ids), "CPU")}
	text := strings.Join(parts, ", ")
	if most := t.threads(); most > 1 {
		text += fmt.Sprintf(" (up to %d threads a core)", most)
	}
	if len(t.Offline) > 0 {
		text += fmt.Sprintf("; offline: %s", FormatList(t.Offline))
	}
	return text
}

// threads returns the number of threads of a core. If the cores differ, it returns the largest number.
func (t *Topology) threads() (most int) {
	for _, c := range t.CPUs {
		most = max(most, c.Thread+1)
	}
	return most
}

// writeNodeLines writes the properties of a node other than its CPUs.
func (t *Topology) writeNodeLines(p *printer, indent int, n Node) {
	p.line(indent, "%s", t.nodeLine(n))
	if text := n.Access.firmware(); text != "" {
		p.line(indent+1, "%s", text)
	}
}

func (t *Topology) nodeLine(n Node) string {
	parts := []string{fmt.Sprintf("node %d: %s, %s free", n.ID, formatSize(n.Bytes), formatSize(n.Free))}
	switch {
	case n.Bytes == 0 && t.HasMemory(n):
		parts[0] = fmt.Sprintf("node %d: the host does not say how much memory", n.ID)
	case n.Bytes == 0:
		parts[0] = fmt.Sprintf("node %d: no memory", n.ID)
		if near := t.Nearest(n.ID); near >= 0 {
			parts[0] += fmt.Sprintf(", takes it from node %d", near)
		}
	}
	if len(n.CPUs) == 0 {
		parts = append(parts, "no CPUs")
	}
	for _, pool := range n.HugePages {
		if pool.Total > 0 {
			parts = append(parts, fmt.Sprintf("%d pages of %s, %d free", pool.Total, formatSize(pool.Bytes), pool.Free))
		}
	}
	if n.Weight > 1 {
		parts = append(parts, fmt.Sprintf("interleave weight %d", n.Weight))
	}
	return strings.Join(parts, "; ")
}

// firmware returns the bandwidths and latencies that the firmware reports for a node's memory, as text. The text is
// empty if there is no report.
func (a *Access) firmware() string {
	if a == nil {
		return ""
	}
	var parts []string
	for _, f := range []struct {
		v    int
		unit string
	}{{a.ReadLatency, "ns to read"}, {a.WriteLatency, "ns to write"}, {a.ReadBandwidth, "MB/s read"}, {a.WriteBandwidth, "MB/s written"}} {
		if f.v > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", f.v, f.unit))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	text := "firmware says: " + strings.Join(parts, ", ")
	if len(a.Initiators) > 0 {
		text += ", from node " + FormatList(a.Initiators)
	}
	return text
}

// writeDistances writes the matrix of distances if there are several nodes.
func (t *Topology) writeDistances(p *printer) {
	if len(t.Nodes) < 2 || slices.ContainsFunc(t.Nodes, func(n Node) bool { return len(n.Distance) != len(t.Nodes) }) {
		return
	}
	p.line(0, "distances")
	line := "      to"
	for _, n := range t.Nodes {
		line += fmt.Sprintf(" %4d", n.ID)
	}
	p.line(0, "%s", line)
	for _, n := range t.Nodes {
		line := fmt.Sprintf("of %5d", n.ID)
		for _, d := range n.Distance {
			line += fmt.Sprintf(" %4d", d)
		}
		p.line(0, "%s", line)
	}
}

// Cgroup returns one text for each limit that the cgroup of the process imposes.
func (l *Limits) Cgroup() (list []string) {
	if l.Quota > 0 {
		list = append(list, fmt.Sprintf("time of %.2f CPUs", l.Quota))
	}
	if l.Memory > 0 {
		list = append(list, "memory of "+formatSize(l.Memory))
	}
	if l.Pids > 0 {
		list = append(list, fmt.Sprintf("%d processes and threads", l.Pids))
	}
	return list
}

func (t *Topology) writeLimits(p *printer) {
	l := t.Limits
	p.line(0, "this process may use: CPUs %s, memory of nodes %s", FormatList(l.CPUs), FormatList(l.Nodes))
	for _, text := range l.Cgroup() {
		p.line(0, "cgroup: %s", text)
	}
	if l.Filter {
		p.line(0, "a seccomp filter is in force")
	}
	s := t.Settings
	if len(s.Isolated) > 0 {
		p.line(0, "isolated CPUs: %s", FormatList(s.Isolated))
	}
	if len(s.NoHz) > 0 {
		p.line(0, "CPUs without a tick: %s", FormatList(s.NoHz))
	}
	if kinds := t.capacities(); len(kinds) > 1 {
		p.words(0, "kinds of CPU:", kinds)
	}
	if s.THP != "" {
		p.line(0, "transparent huge pages: %s, of shared memory: %s", s.THP, s.ShmemTHP)
	}
	if s.NUMABalancing {
		p.line(0, "automatic NUMA balancing is on")
	}
	if s.Governor != "" {
		p.line(0, "frequency governor: %s", s.Governor)
	}
}

// capacities returns one text for each capacity, with the CPUs that have it. It returns none if all CPUs have the same
// capacity.
func (t *Topology) capacities() (kinds []string) {
	for _, group := range t.Groups(t.IDs(), func(c CPU) int { return c.Capacity }) {
		c, _ := t.CPU(group[0])
		kinds = append(kinds, fmt.Sprintf("%s (capacity %d)", FormatList(group), c.Capacity))
	}
	return kinds
}
