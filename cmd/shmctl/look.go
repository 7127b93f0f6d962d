//go:build linux

package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/diagnose"
)

type (
	psCmd struct {
		view
		Arena string `arg:"" help:"Name, path or dump."`
		Gone  bool   `help:"Also participants that left or died recently."`
	}
	objectsCmd struct {
		view
		Arena string `arg:"" help:"Name, path or dump."`
	}
	showCmd struct {
		view
		Arena string `arg:"" help:"Name, path or dump."`
		Name  string `arg:"" help:"Name of the object, or its offset."`
	}
	locksCmd struct {
		view
		Arena string        `arg:"" help:"Name, path or dump."`
		Older time.Duration `help:"Only what is held, or waited for, for at least this time. Exit status 3 if there is any."`
	}
	waitsCmd struct {
		view
		Arena string        `arg:"" help:"Name, path or dump."`
		Older time.Duration `help:"Only waits that have lasted at least this time. Exit status 3 if there is any."`
	}
)

// begin returns a new document for the output of the named command.
func (s *session) begin(command string) *document {
	return &document{Command: command, Time: s.now().UTC()}
}

func sinceNs(now time.Time, t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	ns := int64(now.Sub(*t))
	return &ns
}

// with opens an arena and takes a snapshot of it. It calls fill to complete a document. Then it writes the document as
// JSON, or calls text to write it for people.
func (s *session) with(command, name string, fill func(d *document, src *source, snap *snapshot) error, text func(d *document, snap *snapshot) error) error {
	src, err := open(name)
	if err != nil {
		return err
	}
	defer src.Close()
	src.opts.Older = s.older
	f, snap, err := src.sure()
	if err != nil {
		return err
	}
	d := s.begin(command)
	d.Arena = &snap.Info
	d.Arena.Health = health(f)
	d.Findings, d.Participants = f, snap.Participants
	if err := fill(d, src, snap); err != nil {
		return err
	}
	switch {
	case s.json:
		err = writeJSON(s.stdout, d)
	case s.format == formatName:
		err = writeNames(s.stdout, d, snap)
	default:
		err = text(d, snap)
	}
	if err == nil && (trouble(d.Findings) || len(d.Damage) > 0 || s.older > 0 && len(d.Holds)+len(d.Waits) > 0) {
		err = status(exitTrouble)
	}
	return err
}

// Run lists the participants.
func (c *psCmd) Run(s *session) error {
	return s.with("ps", c.Arena, func(d *document, _ *source, snap *snapshot) error {
		if c.Gone {
			d.Gone = snap.Gone
		}
		return nil
	}, func(d *document, snap *snapshot) error {
		t := newTable(s.stdout, s.wide([]string{"NAME", "LABEL", "PID", "LIFE", "PROCESS", "JOINED", "HOLDS", "WAITS"},
			"UID", "PIDNS", "NOTICE", "STATE", "FENCED", "JOINED AT")...)
		for _, p := range d.Participants {
			process := p.Process
			if p.HostPID != 0 && p.HostPID != p.PID {
				process += fmt.Sprintf(" (pid %d here)", p.HostPID)
			}
			t.row(s.wide([]string{p.Name, p.Label, strconv.Itoa(p.PID), lifeText(p), process, since(d.Time, p.Joined), strconv.Itoa(p.Holds), strconv.Itoa(p.Waits)},
				strconv.Itoa(p.UID), strconv.FormatUint(p.PIDNamespace, 10), p.Notice, p.State, strconv.FormatBool(p.Fenced), clock(p.Joined))...)
		}
		for _, g := range d.Gone {
			life := "died"
			if g.Left {
				life = "left"
			}
			t.row(s.wide([]string{g.Name, g.Label, strconv.Itoa(g.PID), life + " " + since(d.Time, g.Time), "", "", "", ""},
				"", "", "", "", "", clock(g.Time))...)
		}
		err := t.flush()
		s.writeFindings(d.Findings)
		return err
	})
}

// lifeText returns whether a participant is alive, as text. If its slot has a state other than live, such as leaving,
// the text names this state, too.
func lifeText(p participant) string {
	if p.State != "live" && p.State != p.Life {
		return p.Life + ", " + p.State
	}
	return p.Life
}

// Run lists the objects.
func (c *objectsCmd) Run(s *session) error {
	return s.with("objects", c.Arena, func(d *document, _ *source, snap *snapshot) error {
		d.Objects = slices.Clone(snap.Objects)
		for i := range d.Objects {
			d.Objects[i].Words = nil
		}
		return nil
	}, func(d *document, snap *snapshot) error {
		t := newTable(s.stdout, s.wide([]string{"OBJECT", "TYPE", "STATE", "HOLDS", "WAITS", "OPEN", "SIZE", "AGE"},
			"OFFSET", "KIND", "VERSION", "POLICY", "SPIN", "OPEN BY")...)
		for _, o := range d.Objects {
			t.row(s.wide([]string{o.Name, o.Type, stateText(&o), strconv.Itoa(len(o.Holds)), strconv.Itoa(len(o.Waits)), strconv.Itoa(len(o.OpenBy)),
				size(o.Size), diagnose.Age(sinceNs(d.Time, o.Created))},
				arena.Offset(o.Offset).String(), o.Kind, strconv.Itoa(int(o.Version)), o.Policy, o.Spin, snap.Shorts(o.OpenBy))...)
		}
		err := t.flush()
		s.writeFindings(d.Findings)
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

// find returns the object with that name or offset. It refuses to choose one of several objects that are printed with
// the same name.
func find(s *snapshot, name string) (*object, error) {
	found := s.Find(name)
	switch len(found) {
	case 0:
		return nil, missing{fmt.Sprintf("%s: there is no object %q; shmctl objects lists all", s.Info.Name, name)}
	case 1:
		return found[0], nil
	}
	var offsets []string
	for _, o := range found {
		offsets = append(offsets, s.Argument(o))
	}
	if len(offsets) > 5 {
		offsets = append(offsets[:5], "...")
	}
	return nil, fmt.Errorf("%s: %d objects are printed as %q; give the offset of one: %s", s.Info.Name, len(found), name, strings.Join(offsets, ", "))
}

// Run shows one object.
func (c *showCmd) Run(s *session) error {
	return s.with("show", c.Arena, func(d *document, _ *source, snap *snapshot) error {
		o, err := find(snap, c.Name)
		if err != nil {
			return err
		}
		d.Objects = []object{*o}
		for _, h := range o.Holds {
			d.Holds = append(d.Holds, snap.Holds[h])
		}
		for _, w := range o.Waits {
			d.Waits = append(d.Waits, snap.Waits[w])
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
		fmt.Fprintf(s.stdout, "  died     %s%s\n", snap.Title(o.Died), snap.DiedWhen(o.Died))
	}
	for _, l := range []struct{ name, text string }{
		{"policy", o.Policy}, {"spin", o.Spin}, {"offset", arena.Offset(o.Offset).String()}, {"size", size(o.Size)},
		{"kind", fmt.Sprintf("%s version %d", o.Kind, o.Version)}, {"created", since(d.Time, o.Created)}, {"open by", s.shorts(snap, o.OpenBy)},
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
		t := newTable(s.stdout, s.wide([]string{"  MODE", "HELD BY", "AGE", "NOTE"}, "PARTICIPANT", "PROCESS")...)
		for _, h := range d.Holds {
			t.row(s.wide([]string{"  " + what(h.Mode, h.Key, h.Count), snap.Short(h.Owner), diagnose.HoldAge(&h), h.Note}, h.Owner, processOf(snap, h.Owner))...)
		}
		t.flush()
	}
	if len(d.Waits) > 0 {
		fmt.Fprintln(s.stdout, "waiting, in order where there is one:")
		t := newTable(s.stdout, s.wide([]string{"  WAITS FOR", "WHO", "AGE", "HOW", "COUNT", "HELD BY"}, "PARTICIPANT", "ORDER", "PROCESS")...)
		for _, w := range d.Waits {
			t.row(s.wide([]string{"  " + diagnose.Wants(&w), snap.Short(w.Owner), diagnose.Age(w.AgeNs), w.How, goroutines(w.Goroutines), s.shorts(snap, w.On)},
				w.Owner, strconv.FormatUint(w.Order, 10), processOf(snap, w.Owner))...)
		}
		t.flush()
	}
	s.writeFindings(d.Findings)
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
	s.older = c.Older
	return s.with("locks", c.Arena, func(d *document, _ *source, snap *snapshot) error {
		d.Holds = snap.OldHolds()
		return nil
	}, func(d *document, snap *snapshot) error {
		t := newTable(s.stdout, s.wide([]string{"OBJECT", "TYPE", "MODE", "HELD BY", "AGE", "WAITS", "NOTE"}, "PARTICIPANT", "OFFSET", "STATE", "PROCESS")...)
		for _, h := range d.Holds {
			o := &snap.Objects[h.ObjectIndex]
			t.row(s.wide([]string{h.Object, o.Type, what(h.Mode, h.Key, h.Count), snap.Short(h.Owner), diagnose.HoldAge(&h), strconv.Itoa(len(o.Waits)), h.Note},
				h.Owner, arena.Offset(o.Offset).String(), stateText(o), processOf(snap, h.Owner))...)
		}
		err := t.flush()
		s.writeFindings(d.Findings)
		return err
	})
}

// Run lists the waits, and their causes.
func (c *waitsCmd) Run(s *session) error {
	s.older = c.Older
	return s.with("waits", c.Arena, func(d *document, _ *source, snap *snapshot) error {
		d.Waits, d.Edges = snap.OldWaits(), snap.Edges()
		return nil
	}, func(d *document, snap *snapshot) error {
		t := newTable(s.stdout, s.wide([]string{"WHO", "OBJECT", "WAITS FOR", "AGE", "COUNT", "HELD BY"}, "HOW", "PARTICIPANT", "TYPE", "OFFSET", "ORDER", "PROCESS")...)
		for _, w := range s.rows(d.Waits) {
			how := w.How
			if snap.IsGone(w.Owner) {
				how = "gone"
			}
			o := &snap.Objects[w.ObjectIndex]
			t.row(s.wide([]string{snap.Short(w.Owner), w.Object, diagnose.Wants(&w), diagnose.Age(w.AgeNs), goroutines(w.Goroutines), s.shorts(snap, w.On)},
				how, w.Owner, o.Type, arena.Offset(o.Offset).String(), strconv.FormatUint(w.Order, 10), processOf(snap, w.Owner))...)
		}
		err := t.flush()
		if len(d.Findings) == 0 {
			writeLines(s.stdout, s.width(), "", s.stuckText(d.Waits, snap))
		}
		s.writeFindings(d.Findings)
		return err
	})
}

// rows returns the waits that a table shows. Waits of one process that differ only in their age become one row, with
// the age of the oldest wait. The format wide has a row for each wait.
func (s *session) rows(waits []wait) (rows []wait) {
	if s.format == formatWide {
		return waits
	}
	first := map[string]int{} // the index in rows, by key
	for _, w := range waits {
		key := fmt.Sprintf("%s %d %s %q %v", w.Owner, w.ObjectIndex, diagnose.Wants(&w), w.On, w.Goroutines == 0)
		i, seen := first[key]
		if !seen {
			first[key] = len(rows)
			rows = append(rows, w)
			continue
		}
		r := &rows[i]
		r.Goroutines += w.Goroutines
		if w.AgeNs != nil && (r.AgeNs == nil || *w.AgeNs > *r.AgeNs) {
			r.AgeNs = w.AgeNs
		}
	}
	return rows
}

// stuckText returns the line after the table of waits if no wait is reported as a problem. The line begins with the
// number of waits, because one of these waits may be the one that the user is looking for.
func (s *session) stuckText(waits []wait, snap *snapshot) string {
	n, longest := uint64(0), int64(-1)
	for _, w := range waits {
		if snap.IsGone(w.Owner) {
			continue // a dead process does not wait
		}
		n += max(w.Goroutines, 1)
		if w.AgeNs != nil {
			longest = max(longest, *w.AgeNs)
		}
	}
	if n == 0 && s.older > 0 {
		return "no wait is that old"
	}
	if s.older > 0 {
		return "these waits are that old, and nothing that they need is held"
	}
	none := fmt.Sprintf("no cycle, no holder that is dead or stopped, and no wait for a lock for %s, or for work for %s",
		diagnose.Short(diagnose.LongLock), diagnose.Short(diagnose.LongWork))
	unseen := snap.Unseen()
	if unseen == 1 {
		none += "; the process of 1 participant cannot be seen from here, so it may be stopped"
	} else if unseen > 1 {
		none += fmt.Sprintf("; the processes of %d participants cannot be seen from here, so they may be stopped", unseen)
	}
	if unseen > 0 && os.Geteuid() != 0 {
		none += " (root sees more)"
	}
	if n == 0 {
		return "no process is stuck: " + none
	}
	text := fmt.Sprintf("%d waits", n)
	if n == 1 {
		text = "1 wait"
	}
	if longest >= 0 {
		text += ", for up to " + diagnose.Short(time.Duration(longest))
	}
	return text + "; none is known to be stuck: " + none + "; --older 1s examines younger waits, too"
}
