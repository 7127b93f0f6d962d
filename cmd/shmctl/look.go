//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/shm"
)

type (
	lsCmd struct {
		Names bool `help:"Only the names."`
		All   bool `short:"a" help:"Files that are no arenas, too, and why."`
	}
	psCmd struct {
		Arena string `arg:"" help:"Name, path or dump."`
		Gone  bool   `help:"Those, too, who left or died lately."`
	}
	objectsCmd struct {
		Arena string `arg:"" help:"Name, path or dump."`
	}
	showCmd struct {
		Arena string `arg:"" help:"Name, path or dump."`
		Name  string `arg:"" help:"Of the object, or its offset."`
	}
	locksCmd struct {
		Arena string `arg:"" help:"Name, path or dump."`
	}
	waitsCmd struct {
		Arena string `arg:"" help:"Name, path or dump."`
	}
	checkCmd struct {
		Arena string `arg:"" help:"Name, path or dump."`
	}
)

// begin makes the document of a command.
func (s *session) begin(command string) *document {
	return &document{Command: command, Time: s.now().UTC()}
}

// Run lists the arenas.
func (c *lsCmd) Run(s *session) error {
	d := s.begin("ls")
	bad := false
	t := newTable(s.stdout, "ARENA", "SIZE", "USED", "USERS", "OBJECTS", "AGE", "HEALTH")
	for _, info := range segments(s.stderr) {
		a, err := summary(info.Name)
		if err != nil {
			no := errors.Is(err, shmsync.ErrIncompatible)
			if no && !c.All {
				continue // another program's file
			}
			a = arenaInfo{Name: info.Name, Path: shm.Dir + "/" + info.Name, Size: info.Size, Health: errorText(err)}
			bad = bad || !no
		}
		d.Arenas = append(d.Arenas, a)
		bad = bad || err == nil && a.Health != "ok"
		t.row(a.Name, size(uint64(a.Size)), size(a.Used), fmt.Sprintf("%d/%d", a.Participants, a.MaxParticipants),
			strconv.FormatUint(a.Objects, 10), age(sinceNs(d.Time, a.Created)), a.Health)
	}
	for _, path := range removedSegments() {
		a, err := summary(path)
		if err != nil || a.Removed == "" {
			continue // another program's file, or its last user has just left
		}
		d.Arenas = append(d.Arenas, a)
		bad = bad || a.Health != "ok"
		t.row(a.Name, size(uint64(a.Size)), size(a.Used), fmt.Sprintf("%d/%d", a.Participants, a.MaxParticipants),
			strconv.FormatUint(a.Objects, 10), age(sinceNs(d.Time, a.Created)), a.Health+", "+removedNote(a.Removed))
	}
	err := error(nil)
	switch {
	case c.Names:
		for _, a := range d.Arenas {
			if a.Removed == "" { // else it has no name
				fmt.Fprintln(s.stdout, a.Name)
			}
		}
	case s.json:
		err = writeJSON(s.stdout, d)
	default:
		err = t.flush()
	}
	if err == nil && bad {
		err = status(exitTrouble)
	}
	return err
}

// segments are those of this host, by name.
func segments(stderr io.Writer) (all []shm.Info) {
	for info, err := range shm.List() {
		if err != nil {
			fmt.Fprintln(stderr, "shmctl:", err)
			continue
		}
		all = append(all, info)
	}
	slices.SortFunc(all, func(a, b shm.Info) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func sinceNs(now time.Time, t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	ns := int64(now.Sub(*t))
	return &ns
}

// summary is what ls tells of an arena.
func summary(name string) (arenaInfo, error) {
	src, err := open(name)
	if err != nil {
		return arenaInfo{}, err
	}
	defer src.Close()
	f, snap, err := sure(src, src.look())
	if err != nil {
		return arenaInfo{}, err
	}
	snap.info.Health = health(f)
	return snap.info, nil
}

// with takes a snapshot of an arena, fills in a document and writes it, or has text
// write it.
func (s *session) with(command, name string, fill func(d *document, src *source, snap *snapshot) error, text func(d *document, snap *snapshot) error) error {
	src, err := open(name)
	if err != nil {
		return err
	}
	defer src.Close()
	f, snap, err := sure(src, src.look())
	if err != nil {
		return err
	}
	d := s.begin(command)
	d.Arena = &snap.info
	d.Arena.Health = health(f)
	d.Findings, d.Participants = f, snap.participants
	if err := fill(d, src, snap); err != nil {
		return err
	}
	if s.json {
		err = writeJSON(s.stdout, d)
	} else {
		err = text(d, snap)
	}
	if err == nil && (trouble(d.Findings) || len(d.Damage) > 0) {
		err = status(exitTrouble)
	}
	return err
}

// Run lists the participants.
func (c *psCmd) Run(s *session) error {
	return s.with("ps", c.Arena, func(d *document, _ *source, snap *snapshot) error {
		if c.Gone {
			d.Gone = snap.gone
		}
		return nil
	}, func(d *document, snap *snapshot) error {
		t := newTable(s.stdout, "NAME", "LABEL", "PID", "LIFE", "PROCESS", "JOINED", "HOLDS", "WAITS", "UID", "PIDNS", "NOTICE")
		for _, p := range d.Participants {
			process := p.Process
			if p.HostPID != 0 && p.HostPID != p.PID {
				process += fmt.Sprintf(" (pid %d here)", p.HostPID)
			}
			t.row(p.Name, p.Label, strconv.Itoa(p.PID), lifeText(p), process, since(d.Time, p.Joined), strconv.Itoa(p.Holds),
				strconv.Itoa(p.Waits), strconv.Itoa(p.UID), strconv.FormatUint(p.PIDNamespace, 10), p.Notice)
		}
		for _, g := range d.Gone {
			life := "died"
			if g.Left {
				life = "left"
			}
			t.row(g.Name, g.Label, strconv.Itoa(g.PID), life+" "+since(d.Time, g.Time), "", "", "", "", "", "", "")
		}
		err := t.flush()
		writeFindings(s.stdout, d.Findings)
		return err
	})
}

// lifeText is the life of a participant, and its slot's state where that differs.
func lifeText(p participant) string {
	if p.State != "live" && p.State != p.Life {
		return p.Life + ", " + p.State
	}
	return p.Life
}

// Run lists the objects.
func (c *objectsCmd) Run(s *session) error {
	return s.with("objects", c.Arena, func(d *document, _ *source, snap *snapshot) error {
		d.Objects = slices.Clone(snap.objects)
		for i := range d.Objects {
			d.Objects[i].Words = nil
		}
		return nil
	}, func(d *document, snap *snapshot) error {
		t := newTable(s.stdout, "OBJECT", "TYPE", "STATE", "HOLDS", "WAITS", "OPEN", "SIZE", "AGE")
		for _, o := range d.Objects {
			t.row(o.Name, o.Type, stateText(&o), strconv.Itoa(len(o.holds)), strconv.Itoa(len(o.waits)), strconv.Itoa(len(o.OpenBy)),
				size(o.Size), age(sinceNs(d.Time, o.Created)))
		}
		err := t.flush()
		writeFindings(s.stdout, d.Findings)
		return err
	})
}

func stateText(o *object) string {
	text := o.State
	if o.Error != "" && o.State == "" {
		text = o.Error
	}
	return text
}

// find gives the object of that name or offset.
func (s *snapshot) find(name string) (*object, error) {
	for i := range s.objects {
		if o := &s.objects[i]; o.Name == name || arena.Offset(o.Offset).String() == name {
			return o, nil
		}
	}
	if off, err := strconv.ParseUint(name, 0, 64); err == nil {
		for i := range s.objects {
			if s.objects[i].Offset == off {
				return &s.objects[i], nil
			}
		}
	}
	return nil, missing{fmt.Sprintf("%s: there is no object %q", s.info.Name, name)}
}

// Run shows one object.
func (c *showCmd) Run(s *session) error {
	return s.with("show", c.Arena, func(d *document, _ *source, snap *snapshot) error {
		o, err := snap.find(c.Name)
		if err != nil {
			return err
		}
		d.Objects = []object{*o}
		for _, h := range o.holds {
			d.Holds = append(d.Holds, snap.holds[h])
		}
		for _, w := range o.waits {
			d.Waits = append(d.Waits, snap.waits[w])
		}
		d.Findings = slices.DeleteFunc(d.Findings, func(f finding) bool { return !slices.Contains(f.Objects, o.Name) })
		return nil
	}, func(d *document, snap *snapshot) error { return showText(s, d, snap) })
}

func showText(s *session, d *document, snap *snapshot) error {
	o := &d.Objects[0]
	fmt.Fprintf(s.stdout, "%s %s: %s\n", o.Type, o.Name, o.State)
	if o.Error != "" {
		fmt.Fprintf(s.stdout, "  error    %s\n", o.Error)
	}
	if o.Died != "" {
		fmt.Fprintf(s.stdout, "  died     %s%s\n", snap.title(o.Died), snap.diedWhen(o.Died))
	}
	for _, l := range []struct{ name, text string }{
		{"policy", o.Policy}, {"spin", o.Spin}, {"offset", arena.Offset(o.Offset).String()}, {"size", size(o.Size)},
		{"kind", fmt.Sprintf("%s version %d", o.Kind, o.Version)}, {"created", since(d.Time, o.Created)}, {"open by", snap.shorts(o.OpenBy)},
	} {
		if l.text != "" {
			fmt.Fprintf(s.stdout, "  %-8s %s\n", l.name, l.text)
		}
	}
	if n := o.Counters; n != nil {
		fmt.Fprintf(s.stdout, "  counters %d acquired, %d contended, %d spins paid, %d slept, %d woken, %d recovered\n",
			n.Acquired, n.Contended, n.SpinsPaid, n.Slept, n.Woken, n.Recovered)
	}
	for _, w := range o.Words {
		fmt.Fprintf(s.stdout, "  word %s = %s: %s\n", w.Name, w.Bits, w.Text)
	}
	if len(d.Holds) > 0 {
		fmt.Fprintln(s.stdout, "held:")
		t := newTable(s.stdout, "  MODE", "BY", "NAME", "FOR", "NOTE")
		for _, h := range d.Holds {
			t.row("  "+what(h.Mode, h.Key, h.Count), snap.short(h.Owner), h.Owner, age(h.AgeNs), h.Note)
		}
		t.flush()
	}
	if len(d.Waits) > 0 {
		fmt.Fprintln(s.stdout, "waiting, in order where there is one:")
		t := newTable(s.stdout, "  FOR", "WHO", "NAME", "SINCE", "HOW", "GOROUTINES", "ON")
		for _, w := range d.Waits {
			t.row("  "+wants(&w), snap.short(w.Owner), w.Owner, age(w.AgeNs), w.How, goroutines(w.Goroutines), snap.shorts(w.On))
		}
		t.flush()
	}
	writeFindings(s.stdout, d.Findings)
	return nil
}

func goroutines(n uint64) string {
	if n == 0 {
		return "unknown"
	}
	return strconv.FormatUint(n, 10)
}

// Run lists what is held.
func (c *locksCmd) Run(s *session) error {
	return s.with("locks", c.Arena, func(d *document, _ *source, snap *snapshot) error {
		d.Holds = snap.holds
		return nil
	}, func(d *document, snap *snapshot) error {
		t := newTable(s.stdout, "OBJECT", "TYPE", "MODE", "BY", "NAME", "FOR", "WAITERS", "NOTE")
		for _, h := range d.Holds {
			o := &snap.objects[h.object]
			t.row(h.Object, o.Type, what(h.Mode, h.Key, h.Count), snap.short(h.Owner), h.Owner, age(h.AgeNs), strconv.Itoa(len(o.waits)), h.Note)
		}
		err := t.flush()
		writeFindings(s.stdout, d.Findings)
		return err
	})
}

// Run lists the waits, and their causes.
func (c *waitsCmd) Run(s *session) error {
	return s.with("waits", c.Arena, func(d *document, _ *source, snap *snapshot) error {
		d.Waits, d.Edges = snap.waits, snap.edges()
		return nil
	}, func(d *document, snap *snapshot) error {
		t := newTable(s.stdout, "WHO", "NAME", "OBJECT", "FOR", "SINCE", "HOW", "GOROUTINES", "ON")
		for _, w := range d.Waits {
			how := w.How
			if snap.isGone(w.Owner) {
				how = "gone"
			}
			t.row(snap.short(w.Owner), w.Owner, w.Object, wants(&w), age(w.AgeNs), how, goroutines(w.Goroutines), snap.shorts(w.On))
		}
		err := t.flush()
		if len(d.Findings) == 0 {
			fmt.Fprintln(s.stdout, "nobody is stuck, as far as the arena tells")
		}
		writeFindings(s.stdout, d.Findings)
		return err
	})
}

// Run checks the arena.
func (c *checkCmd) Run(s *session) error {
	src, err := open(c.Arena)
	if err != nil {
		return err
	}
	defer src.Close()
	d := s.begin("check")
	d.Damage = s.check(src)
	snap := src.look()
	d.Arena = &snap.info
	if len(d.Damage) > 0 {
		d.Arena.Health = findCorrupt
	}
	if s.json {
		err = writeJSON(s.stdout, d)
	} else {
		for _, line := range d.Damage {
			fmt.Fprintln(s.stdout, line)
		}
		if d.Arena.Removed != "" {
			fmt.Fprintln(s.stdout, removedNote(d.Arena.Removed))
		}
		if len(d.Damage) == 0 {
			fmt.Fprintf(s.stdout, "%s is sound: %d objects, %d wait nodes, %d participants\n", d.Arena.Name, d.Arena.Objects, d.Arena.Nodes, d.Arena.Participants)
		} else {
			fmt.Fprintf(s.stdout, "%s is damaged: %d findings\n", d.Arena.Name, len(d.Damage))
		}
	}
	if err == nil && len(d.Damage) > 0 {
		err = status(exitTrouble)
	}
	return err
}

// checkTries is how often an arena in use is checked: what two looks do not both find
// was in passing.
const checkTries = 3

// check gives what every one of several checks finds.
func (s *session) check(src *source) []string {
	var found []string
	for try := range checkTries {
		now := lines(src.ins.Check())
		if try > 0 {
			now = slices.DeleteFunc(now, func(l string) bool { return !slices.Contains(found, l) })
		}
		found = now
		if len(found) == 0 || src.dump != nil || try == checkTries-1 {
			break
		}
		time.Sleep(confirmAfter)
		if err := src.ins.Refresh(); err != nil {
			return append(found, errorText(err))
		}
	}
	return found
}

// lines are the lines of an error, once each.
func lines(err error) (all []string) {
	if err == nil {
		return nil
	}
	for l := range strings.SplitSeq(err.Error(), "\n") {
		if l = clean(l); !slices.Contains(all, l) {
			all = append(all, l)
		}
	}
	return all
}
