//go:build linux

package report

import (
	"cmp"
	_ "embed"
	"html/template"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/shmsync/shmsync/internal/bench"
)

// CreateHTML writes the page of a document to a file.
func CreateHTML(name string, d *Document) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	return WriteHTML(f, d)
}

//go:embed report.html.tmpl
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// htmlPage has what the page shows.
type htmlPage struct {
	*Document
	Line     string // the command line
	Head     string // the measured machine, and whether its figures are reliable
	Answers  []decision
	Legend   []family
	Glance   []glanceRow
	Sections []htmlSection
	Skipped  []*Cell
	Bad      []*Cell
	Pictures []*figure // pictures of the host
	Advised  bool      // the page has advice
}

// htmlSection is the part of the page about one scenario.
type htmlSection struct {
	Name, Help string
	Again      string // the command line that measures the section again
	Groups     []htmlGroup
	Figures    []*figure
}

// WriteHTML renders a document as one page that loads nothing from elsewhere: no script, no font and no picture.
func WriteHTML(w io.Writer, d *Document) error {
	p := &htmlPage{Document: d, Line: strings.Join(d.Command, " ")}
	for i := range d.Cells {
		switch c := &d.Cells[i]; c.Status {
		case bench.StatusOK:
		case bench.StatusSkipped:
			p.Skipped = append(p.Skipped, c)
		default:
			p.Bad = append(p.Bad, c)
		}
	}
	for _, sc := range bench.Scenarios {
		s, err := newSection(sc, d)
		if err != nil {
			return err
		}
		if len(s.Groups) > 0 {
			p.Sections = append(p.Sections, *s)
		}
	}
	p.Glance = glanceOf(d)
	if d.Topology != nil {
		p.Pictures = append(p.Pictures, topologyFigure(d.Topology))
		if f := distanceFigure(d.Topology); f != nil {
			p.Pictures = append(p.Pictures, f)
		}
	}
	if len(d.Cells) > 0 {
		d.Advice = Recommend(d.latest())
	}
	p.Advised = len(d.Advice) > 0
	if p.Advised {
		p.Answers = Decisions(d.latest(), d.Advice)
	}
	p.Head, p.Legend = d.headline(), families
	return pageTemplate.Execute(w, p)
}

// sectionHelp has a sentence for each scenario, which says what the scenario measures.
var sectionHelp = map[string]string{
	"uncontended": "Lock and unlock where nobody else wants the lock: one pair.",
	"handoff":     "A token passed to and fro between two processes: one round trip.",
	"wake":        "From the post to the first instruction of the one it woke, which had slept.",
	"lock":        "Everybody locks, works and unlocks: how many do in a second, and how evenly.",
	"crash":       "SIGKILL to the owner, or to the waiter or reader of its role: how long until somebody else owns.",
	"waiters":     "Many goroutines that wait in one process: memory, threads, and what it costs to block, wake and cancel one.",
	"idle":        "CPU that a wait of a second takes.",
	"readers":     "Readers at the same time: one pair.",
	"rw":          "Readers mixed with writers.",
	"sem":         "Permits, held and waited for.",
	"cond":        "A bounded buffer behind a lock, with condition variables.",
	"event":       "One lets many go: until the last of them runs.",
	"seq":         "A step of a counter that many wait for.",
	"multi":       "Locks by key.",
	"barrier":     "Phases that everybody must come to.",
	"padding":     "Counters of different threads, each used by its own thread only: increments a second, by the distance of the counters in bytes.",
	"intruder":    "A lock that one process uses all the time, and another one now and then.",
	"fence":       "A memory barrier in all CPUs that run processes of the library: membarrier.",
	"stream":      "A load that depends on the one before, while other cores stream through memory of their own.",
	"home":        "A lock of two processes whose memory lies on the node of the first, of the second, or on a third one.",
	"queue":       "Items from producers to consumers.",
	"matrix":      "A cache line passed to and fro between two CPUs: one way.",
	"mem":         "The memory of an arena from each node's CPUs, by where it is: a load that depends on the one before, and what was asked beside what was got.",
	"herd":        "Some of many that sleep in one place are woken: until the last of them runs.",
	"open":        "A lock taken at a rate, also while others wait for it: from when it was due until it was got.",
	"oversub":     "A lock of more workers than CPUs, by how long its waiters spin.",
}

// sectionCommand has the command that measures a scenario, if the command is not the name of the scenario.
var sectionCommand = map[string]string{
	"readers": "rw", "idle": "waiters", "herd": "wake", "open": "lock --rate 10000,100000", "intruder": "bias", "fence": "bias",
}

func newSection(sc *bench.Scenario, d *Document) (*htmlSection, error) {
	s := &htmlSection{Name: sc.Name, Help: sectionHelp[sc.Name], Again: "go run ./cmd/shmbench " + cmp.Or(sectionCommand[sc.Name], sc.Name) + " --count 10"}
	var keys []string
	groups := map[string][]*Cell{}
	var all []*Cell
	for i := range d.Cells {
		c := &d.Cells[i]
		if c.Scenario != sc.Name || len(c.Values(c.Unit)) == 0 {
			continue
		}
		k := c.group()
		if groups[k] == nil {
			keys = append(keys, k)
		}
		groups[k] = append(groups[k], c)
		all = append(all, c)
	}
	if sc.Name == "mem" {
		s.Groups = memGroups(sc, all)
		for _, one := range d.byFile() {
			s.Figures = append(s.Figures, one.called(memFigures(one.find(sc.Name)))...)
		}
		return s, nil
	}
	for _, k := range keys {
		s.Groups = append(s.Groups, newGroup(sc, k, groups[k]))
		if sc.Unit != "p50-ns" {
			continue
		}
		picture, what := latencies, "Latency"
		if sc.Name == "crash" {
			picture, what = distribution, "Recovery"
		}
		f, err := picture(strings.TrimSpace(what+" "+k), notable(sc, groups[k]))
		if err != nil {
			return nil, err
		}
		if f != nil {
			s.Figures = append(s.Figures, f)
		}
	}
	if sc.Name == "matrix" {
		for _, one := range d.byFile() {
			s.Figures = append(s.Figures, one.called(matrixFigures(one))...)
		}
		if len(s.Groups) > mostPairs {
			s.Groups = []htmlGroup{byClass(sc, all, d.Topology)}
		}
	}
	more, err := shapeFigures(sc, keys, groups, all)
	if err != nil {
		return nil, err
	}
	s.Figures = append(s.Figures, more...)
	if !sc.Higher || sc.Name == "oversub" {
		return s, nil
	}
	for _, group := range scalingGroups(all) {
		f, err := scaling("Throughput "+group[0].group(varying(group)...), notable(sc, group), len(d.Env.Used))
		if err != nil {
			return nil, err
		}
		if f != nil {
			s.Figures = append(s.Figures, f)
		}
	}
	return s, nil
}

// group returns a text with the parameters of c, without those that describe the subject and those that the caller
// names. Cells with the same text can be compared.
func (c *Cell) group(but ...string) string {
	var parts []string
	for k, v := range c.Params {
		if k != "by" && k != "prim" && !slices.Contains(but, k) {
			parts = append(parts, k+"="+v)
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

func scalingGroups(all []*Cell) [][]*Cell {
	var keys []string
	groups := map[string][]*Cell{}
	for _, c := range all {
		k := c.group("procs", "threads")
		if groups[k] == nil {
			keys = append(keys, k)
		}
		groups[k] = append(groups[k], c)
	}
	list := make([][]*Cell, 0, len(keys))
	for _, k := range keys {
		procs, threads := map[string]bool{}, map[string]bool{}
		for _, c := range groups[k] {
			procs[c.Params["procs"]], threads[c.Params["threads"]] = true, true
		}
		if len(procs) > 1 && len(threads) > 1 { // draw a line for each number of threads
			list = append(list, groupsBut(groups[k], "procs")...)
			continue
		}
		list = append(list, groups[k])
	}
	return list
}

// varying returns which of the parameters procs and threads differ between the cells. The title of a figure that shows
// these cells omits such a parameter.
func varying(cells []*Cell) (names []string) {
	for _, name := range []string{"procs", "threads"} {
		for _, c := range cells {
			if c.Params[name] != cells[0].Params[name] {
				names = append(names, name)
				break
			}
		}
	}
	return names
}

// notable returns the cells for which a figure has room: those of the library, and those of the most important
// primitives of the host. It returns all cells of a throughput scenario that has no reference for its ratios.
func notable(sc *bench.Scenario, cells []*Cell) (list []*Cell) {
	for _, c := range cells {
		if c.ours() || sc.Higher && len(sc.Ref) == 0 || slices.Contains(sc.Versus, c.Subject) || slices.Contains(sc.Ref, c.Subject) {
			list = append(list, c)
		}
	}
	return list
}

func (c *Cell) ours() bool { return strings.HasPrefix(c.Subject, bench.Library+":") }
