//go:build linux

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/shmsync/shmsync/internal/diagnose"
)

type diffCmd struct {
	Arena string `arg:"" help:"Name, path or dump: the state before."`
	After string `arg:"" help:"Name, path or dump: the state after."`
}

// change is a difference between two states of an arena.
type change struct {
	What   string `json:"what"` // finding, participant, object, hold, wait, counters, or arena
	Name   string `json:"name"`
	Before string `json:"before,omitempty"` // the state before; empty for something new
	After  string `json:"after,omitempty"`  // the state after; empty for something that is gone
}

// Run lists what differs between two states.
func (c *diffCmd) Run(s *session) error {
	before, err := facts(c.Arena)
	if err != nil {
		return err
	}
	after, err := facts(c.After)
	if err != nil {
		return err
	}
	d := s.begin("diff")
	d.Changes = changes(before, after)
	if s.json {
		return writeJSON(s.stdout, d)
	}
	if len(d.Changes) == 0 {
		fmt.Fprintln(s.stdout, "no difference")
		return nil
	}
	t := newTable(s.stdout, "CHANGE", "WHAT", "NAME", "BEFORE", "AFTER")
	for _, c := range d.Changes {
		mark := "~"
		switch {
		case c.Before == "":
			mark = "+"
		case c.After == "":
			mark = "-"
		}
		t.row(mark, c.What, c.Name, c.Before, c.After)
	}
	return t.flush()
}

// fact is something that is true of an arena at the time of a snapshot. The fields what and name say what the fact is
// about, for example a participant and its ID; the field text is its state. Ages and times are not facts, because they
// differ between any two snapshots.
type fact struct{ what, name, text string }

// facts opens an arena or a dump, and returns the facts about it.
func facts(name string) (all []fact, err error) {
	src, err := open(name)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	findings, snap, err := src.sure()
	if err != nil {
		return nil, err
	}
	add := func(what, name, format string, args ...any) {
		all = append(all, fact{what, name, fmt.Sprintf(format, args...)})
	}
	add("arena", "used", "%s", size(snap.Info.Used))
	add("arena", "reaps", "%d", snap.Info.Deaths)
	add("arena", "epoch", "%s", epochText(snap.Info))
	for _, p := range snap.Participants {
		add("participant", p.Name, "%s[%d], %s", p.Label, p.PID, lifeText(p))
	}
	for i := range snap.Objects {
		o := &snap.Objects[i]
		add("object", o.Name, "%s, %s", o.Type, stateText(o))
		if n := o.Counters; n != nil {
			add("counters", o.Name, "%d acquired, %d contended, %d slept, %d recovered", n.Acquired, n.Contended, n.Slept, n.Recovered)
		}
	}
	for _, h := range snap.Holds {
		mode := h.Mode
		if h.Key != nil {
			mode += " " + strconv.FormatUint(*h.Key, 10)
		}
		add("hold", h.Object+", "+snap.Short(h.Owner), "%s ×%d", mode, max(h.Count, 1))
	}
	for _, w := range snap.Waits {
		add("wait", w.Object+", "+snap.Short(w.Owner), "%s, %s", diagnose.Wants(&w), w.How)
	}
	for _, f := range findings {
		for _, object := range f.Objects {
			add("finding", f.Kind+", "+object, "%s", cmp.Or(f.Advice, "found"))
		}
	}
	return all, nil
}

// changes returns the differences between two lists of facts. It compares the texts of facts about the same thing.
func changes(before, after []fact) (all []change) {
	type key struct{ what, name string }
	parts := map[key]*[2][]string{} // lists, because very many facts may have the same key
	var order []key
	for i, facts := range [][]fact{before, after} {
		for _, f := range facts {
			k := key{f.what, f.name}
			if parts[k] == nil {
				parts[k] = &[2][]string{}
				order = append(order, k)
			}
			parts[k][i] = append(parts[k][i], f.text)
		}
	}
	for _, k := range order {
		p := parts[k]
		if t := [2]string{strings.Join(p[0], "; "), strings.Join(p[1], "; ")}; t[0] != t[1] {
			all = append(all, change{k.what, k.name, t[0], t[1]})
		}
	}
	kinds := []string{"finding", "participant", "object", "hold", "wait", "counters", "arena"}
	slices.SortStableFunc(all, func(a, b change) int { return slices.Index(kinds, a.What) - slices.Index(kinds, b.What) })
	return all
}
