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
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/diagnose"
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
		Arena string        `arg:"" help:"Name, path or dump."`
		Older time.Duration `help:"Only what is held, or waited for, for at least this time. Exit status 3 if there is any."`
	}
	waitsCmd struct {
		Arena string        `arg:"" help:"Name, path or dump."`
		Older time.Duration `help:"Only waits that have lasted at least this time. Exit status 3 if there is any."`
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
	t := newTable(s.stdout, "ARENA", "SIZE", "USED", "USERS", "OBJECTS", "AGE", "EPOCH", "HEALTH")
	for _, info := range segments(s.stderr) {
		a, err := summary(info.Name)
		if err != nil {
			if other, ok := arenakernel.InspectOtherLayout(info.Name); ok {
				d.Arenas = append(d.Arenas, otherArena(info.Name, other))
				users := "none"
				if other.InUse {
					users = "some"
				}
				t.row(info.Name, size(uint64(other.Size)), "", users, "", "", "", d.Arenas[len(d.Arenas)-1].Health)
				continue
			}
			no := errors.Is(err, shmsync.ErrIncompatible)
			if no && !c.All {
				continue // another program's file
			}
			a = arenaInfo{Name: info.Name, Path: shm.Dir + "/" + info.Name, Size: info.Size, Health: diagnose.ErrorText(err)}
			bad = bad || !no
		}
		d.Arenas = append(d.Arenas, a)
		bad = bad || err == nil && a.Health != "ok"
		t.row(a.Name, size(uint64(a.Size)), size(a.Used), fmt.Sprintf("%d/%d", a.Participants, a.MaxParticipants),
			strconv.FormatUint(a.Objects, 10), diagnose.Age(sinceNs(d.Time, a.Created)), epochText(a), a.Health)
	}
	for _, path := range removedSegments() {
		a, err := summary(path)
		if err != nil || a.Removed == "" {
			continue // another program's file, or its last user has just left
		}
		d.Arenas = append(d.Arenas, a)
		bad = bad || a.Health != "ok"
		t.row(a.Name, size(uint64(a.Size)), size(a.Used), fmt.Sprintf("%d/%d", a.Participants, a.MaxParticipants),
			strconv.FormatUint(a.Objects, 10), diagnose.Age(sinceNs(d.Time, a.Created)), epochText(a), a.Health+", "+removedNote(a.Removed))
	}
	err := error(nil)
	switch {
	case c.Names:
		for _, a := range d.Arenas {
			if a.Removed == "" { // otherwise the arena has no name
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

// otherArena is the row of ls for an arena with another layout.
func otherArena(name string, l arenakernel.OtherLayout) arenaInfo {
	return arenaInfo{Name: name, Path: l.Path, Size: l.Size, Layout: l.Version,
		Health: fmt.Sprintf("layout %d, this shmctl reads %d", l.Version, arenakernel.LayoutVersion)}
}

// epochText is the number of an arena's epoch, and whether a participant died since it began.
func epochText(a arenaInfo) string {
	s := strconv.FormatUint(a.Epoch, 10)
	if a.Epoch != 0 && !a.Clean {
		s += ", deaths"
	}
	return s
}

// segments are the segments of this host, by name.
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

// summary is the row of ls for an arena.
func summary(name string) (arenaInfo, error) {
	src, err := open(name)
	if err != nil {
		return arenaInfo{}, err
	}
	defer src.Close()
	f, snap, err := src.sure()
	if err != nil {
		return arenaInfo{}, err
	}
	snap.Info.Health = health(f)
	return snap.Info, nil
}

// with takes a snapshot of an arena, lets fill complete a document, and writes the document, or
// lets text write it.
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
	if s.json {
		err = writeJSON(s.stdout, d)
	} else {
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

// lifeText is the life of a participant, and its slot's state if that differs.
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
		t := newTable(s.stdout, "OBJECT", "TYPE", "STATE", "HOLDS", "WAITS", "OPEN", "SIZE", "AGE")
		for _, o := range d.Objects {
			t.row(o.Name, o.Type, stateText(&o), strconv.Itoa(len(o.Holds)), strconv.Itoa(len(o.Waits)), strconv.Itoa(len(o.OpenBy)),
				size(o.Size), diagnose.Age(sinceNs(d.Time, o.Created)))
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

// find returns the object with that name or offset.
func find(s *snapshot, name string) (*object, error) {
	for i := range s.Objects {
		if o := &s.Objects[i]; o.Name == name || arena.Offset(o.Offset).String() == name {
			return o, nil
		}
	}
	if off, err := strconv.ParseUint(name, 0, 64); err == nil {
		for i := range s.Objects {
			if s.Objects[i].Offset == off {
				return &s.Objects[i], nil
			}
		}
	}
	return nil, missing{fmt.Sprintf("%s: there is no object %q", s.Info.Name, name)}
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
		{"kind", fmt.Sprintf("%s version %d", o.Kind, o.Version)}, {"created", since(d.Time, o.Created)}, {"open by", snap.Shorts(o.OpenBy)},
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
			t.row("  "+what(h.Mode, h.Key, h.Count), snap.Short(h.Owner), h.Owner, diagnose.HoldAge(&h), h.Note)
		}
		t.flush()
	}
	if len(d.Waits) > 0 {
		fmt.Fprintln(s.stdout, "waiting, in order where there is one:")
		t := newTable(s.stdout, "  FOR", "WHO", "NAME", "SINCE", "HOW", "GOROUTINES", "ON")
		for _, w := range d.Waits {
			t.row("  "+diagnose.Wants(&w), snap.Short(w.Owner), w.Owner, diagnose.Age(w.AgeNs), w.How, goroutines(w.Goroutines), snap.Shorts(w.On))
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
	s.older = c.Older
	return s.with("locks", c.Arena, func(d *document, _ *source, snap *snapshot) error {
		d.Holds = snap.OldHolds()
		return nil
	}, func(d *document, snap *snapshot) error {
		t := newTable(s.stdout, "OBJECT", "TYPE", "MODE", "BY", "NAME", "FOR", "WAITERS", "NOTE")
		for _, h := range d.Holds {
			o := &snap.Objects[h.ObjectIndex]
			t.row(h.Object, o.Type, what(h.Mode, h.Key, h.Count), snap.Short(h.Owner), h.Owner, diagnose.HoldAge(&h), strconv.Itoa(len(o.Waits)), h.Note)
		}
		err := t.flush()
		writeFindings(s.stdout, d.Findings)
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
		t := newTable(s.stdout, "WHO", "NAME", "OBJECT", "FOR", "SINCE", "HOW", "GOROUTINES", "ON")
		for _, w := range d.Waits {
			how := w.How
			if snap.IsGone(w.Owner) {
				how = "gone"
			}
			t.row(snap.Short(w.Owner), w.Owner, w.Object, diagnose.Wants(&w), diagnose.Age(w.AgeNs), how, goroutines(w.Goroutines), snap.Shorts(w.On))
		}
		err := t.flush()
		if len(d.Findings) == 0 {
			fmt.Fprintln(s.stdout, s.stuckText(len(d.Waits)))
		}
		writeFindings(s.stdout, d.Findings)
		return err
	})
}

// stuckText says that so many waits gave no finding.
func (s *session) stuckText(waits int) string {
	switch {
	case s.older <= 0:
		return fmt.Sprintf("no process is stuck: no cycle, no holder that is dead or stopped, and no wait for a lock for %s, or for work for %s",
			diagnose.Short(diagnose.LongLock), diagnose.Short(diagnose.LongWork))
	case waits == 0:
		return "no wait is that old"
	}
	return "these waits are that old, and nothing that they need is held"
}
