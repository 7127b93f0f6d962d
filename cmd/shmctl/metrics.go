//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/shmsync/shmsync/internal/diagnose"
	"github.com/shmsync/shmsync/shm"
)

type metricsCmd struct {
	watching
	Arena []string `arg:"" optional:"" help:"Names, paths or dumps; default all arenas under /dev/shm, and those that processes have open elsewhere."`
}

// Run writes the counters.
func (c *metricsCmd) Run(s *session) error {
	names := c.Arena
	if len(names) == 0 {
		names = everyArena(s.stderr)
	}
	m := &metrics{families: map[string]*family{}, labels: map[string]bool{}}
	seen := map[fileID]bool{} // each series must occur once, even if an arena is given twice
	for _, name := range names {
		if id, ok := idOfArena(name); ok {
			if seen[id] {
				continue
			}
			seen[id] = true
		}
		src, err := open(name)
		if err != nil {
			if len(c.Arena) > 0 {
				return err
			}
			continue // no arena
		}
		f, snap, err := src.sure()
		if err == nil {
			m.add(snap, f, m.label(snap, name))
		}
		src.Close()
		if err != nil && len(c.Arena) > 0 {
			return err
		}
	}
	return m.write(s.stdout)
}

// everyArena returns arguments that name the arenas of this host: those under /dev/shm, and those that processes have
// open elsewhere. An arena may occur several times, and some arguments may name no arena.
func everyArena(stderr io.Writer) (names []string) {
	for _, info := range segments(stderr) {
		names = append(names, info.Name)
	}
	return append(names, otherPlaces()...)
}

// idOfArena identifies the file that an argument names.
func idOfArena(name string) (fileID, bool) {
	if !strings.Contains(name, "/") {
		if id, ok := fileIDOf(shm.Dir + "/" + name); ok {
			return id, true
		}
	}
	return fileIDOf(name)
}

// metrics writes the text format of Prometheus, version 0.0.4.
type metrics struct {
	families map[string]*family
	order    []string
	labels   map[string]bool // the labels of the arenas that were added
}

// label returns a text that identifies an arena in the output: the name of the arena or, if another arena has this
// label, the argument. Several dumps of one arena have the same name.
func (m *metrics) label(s *snapshot, argument string) string {
	label := s.Info.Name
	if !s.IsDump() {
		label = quoteUnsafe(label, s.Info.Path)
	}
	if m.labels[label] {
		label = quoteUnsafe(argument, argument)
	}
	for n, first := 2, label; m.labels[label]; n++ {
		label = fmt.Sprintf("%s #%d", first, n)
	}
	m.labels[label] = true
	return label
}

// quoteUnsafe returns text if path cannot control a terminal. Otherwise it returns path with escapes. It does not use
// diagnose.Clean, which can make different paths equal.
func quoteUnsafe(text, path string) string {
	if diagnose.Clean(path) == path {
		return text
	}
	quoted := strconv.QuoteToASCII(path)
	return quoted[1 : len(quoted)-1]
}

// labelText writes a text as the value of a label.
var labelText = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

type family struct {
	kind, help string
	lines      []string
}

func (m *metrics) put(name, kind, help string, value any, labels ...string) {
	f := m.families[name]
	if f == nil {
		f = &family{kind: kind, help: help}
		m.families[name] = f
		m.order = append(m.order, name)
	}
	var pairs []string
	for i := 0; i+1 < len(labels); i += 2 {
		pairs = append(pairs, fmt.Sprintf("%s=\"%s\"", labels[i], labelText.Replace(labels[i+1])))
	}
	f.lines = append(f.lines, fmt.Sprintf("%s{%s} %v", name, strings.Join(pairs, ","), value))
}

// add adds the metrics of an arena, and its confirmed findings. The parameter a is the label of the arena.
func (m *metrics) add(s *snapshot, findings []finding, a string) {
	m.put("shmsync_arena_bytes", "gauge", "Size of the arena.", s.Info.Size, "arena", a)
	m.put("shmsync_arena_used_bytes", "gauge", "Bytes of its heap that have memory.", s.Info.Used, "arena", a)
	m.put("shmsync_arena_damaged", "gauge", "1 if its header cannot be right.", bit(s.Damage != nil), "arena", a)
	m.put("shmsync_reaps_total", "counter", "Participants whose death or leaving was dealt with.", s.Info.Deaths, "arena", a)
	lives := map[string]int{"alive": 0, "dead": 0, "stopped": 0}
	for _, p := range s.Participants {
		lives[p.Life]++
	}
	for _, life := range sorted(lives) {
		m.put("shmsync_participants", "gauge", "Processes in the arena, by life.", lives[life], "arena", a, "life", life)
	}
	stuck := map[string]int{}
	for _, f := range findings {
		if f.Trouble {
			stuck[f.Kind]++
		}
	}
	for _, kind := range diagnose.Kinds {
		m.put("shmsync_trouble", "gauge", "What keeps processes from going on, by kind.", stuck[kind], "arena", a, "kind", kind)
	}
	for i := range s.Objects {
		m.object(s, &s.Objects[i], a)
	}
}

func (m *metrics) object(s *snapshot, o *object, a string) {
	labels := []string{"arena", a, "object", s.Argument(o), "type", o.Type} // each series must be unique
	if o.Type == "Value" || o.Type == "Block" {
		return
	}
	waiters, longest := uint64(0), int64(0)
	for _, w := range o.Waits {
		waiters += max(s.Waits[w].Goroutines, 1)
		if age := s.Waits[w].AgeNs; age != nil {
			longest = max(longest, *age)
		}
	}
	m.put("shmsync_holds", "gauge", "Holds of the object.", len(o.Holds), labels...)
	m.put("shmsync_waiters", "gauge", "Goroutines that wait for the object.", waiters, labels...)
	m.put("shmsync_longest_wait_seconds", "gauge", "How long the one waits that has waited longest, as far as known.", float64(longest)/1e9, labels...)
	m.put("shmsync_unusable", "gauge", "1 if nobody can take the object.", bit(o.Error != ""), labels...)
	if c := o.Counters; c != nil {
		for _, v := range []struct {
			name, help string
			value      uint64
		}{
			{"acquired", "Times that the object was taken.", c.Acquired},
			{"contended", "Of those, times that somebody was in the way.", c.Contended},
			{"spins_paid", "Waits that spinning ended.", c.SpinsPaid},
			{"slept", "Times that a waiter went to sleep.", c.Slept},
			{"woken", "Times that waiters were woken.", c.Woken},
			{"recovered", "Holds of the dead that were taken back.", c.Recovered},
		} {
			m.put("shmsync_"+v.name+"_total", "counter", v.help, v.value, labels...)
		}
	}
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func sorted(m map[string]int) (names []string) {
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func (m *metrics) write(w io.Writer) error {
	for _, name := range m.order {
		f := m.families[name]
		if _, err := fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n%s\n", name, f.help, name, f.kind, strings.Join(f.lines, "\n")); err != nil {
			return err
		}
	}
	return nil
}
