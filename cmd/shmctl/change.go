//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/diagnose"
	"github.com/shmsync/shmsync/prims"
)

type (
	reapCmd struct {
		Arena  string        `arg:"" help:"Name or path."`
		DryRun bool          `short:"n" help:"Only list the dead participants, and what they have. Does not join."`
		Wait   time.Duration `default:"5s" help:"How long to wait for the reaps, and for a process that begins an epoch."`
	}
	setCmd struct {
		Arena string   `arg:"" help:"Name or path."`
		Name  string   `arg:"" help:"Name of the object, or its offset."`
		What  []string `arg:"" help:"spin=adaptive, spin=none, or spin=20us: how long waiters spin before they sleep."`

		Wait time.Duration `default:"5s" help:"How long to wait for a process that begins an epoch."`
	}
	createCmd struct {
		Name            string `arg:"" help:"Name of the arena, or a path with a slash in it."`
		Size            string `default:"64M" help:"In bytes, or with K, M, G, T."`
		MaxParticipants int    `default:"128" help:"Processes that can be in it at once."`
		Mode            string `default:"0600" help:"Permissions of the file."`
		Counted         bool   `help:"Objects count what is done with them, and date holds; locks get slower."`
	}
)

// Run reaps the dead participants.
func (c *reapCmd) Run(s *session) error {
	src, err := open(c.Arena)
	if err != nil {
		return err
	}
	defer src.Close()
	snap := src.look()
	d := s.begin("reap")
	d.Arena = &snap.Info
	had := map[string][]hold{}
	for _, h := range snap.Holds {
		had[h.Owner] = append(had[h.Owner], h)
	}
	for _, p := range snap.Participants {
		if p.Life == arenakernel.LifeDead {
			d.Participants = append(d.Participants, p)
			d.Holds = append(d.Holds, had[p.Name]...)
		}
	}
	if src.isDump() && !c.DryRun {
		return refused{c.Arena + " is a dump"}
	}
	if !c.DryRun && len(d.Participants) > 0 {
		if err := c.reap(s, src, snap, d); err != nil {
			return err
		}
	}
	if s.json {
		err = writeJSON(s.stdout, d)
	} else {
		reapText(s, d, snap, had)
	}
	if err == nil && c.DryRun && len(d.Participants) > 0 {
		err = status(exitTrouble)
	}
	return err
}

// reapText writes which participants were dead, and the first holds that each of them had.
func reapText(s *session, d *document, snap *snapshot, had map[string][]hold) {
	if len(d.Participants) == 0 {
		fmt.Fprintln(s.stdout, "nobody is dead")
	}
	for _, p := range d.Participants {
		fmt.Fprintf(s.stdout, "%s is dead\n", snap.Title(p.Name))
		for i, h := range had[p.Name] {
			if left := len(had[p.Name]) - i; i == mostFindings && left > 1 {
				fmt.Fprintf(s.stdout, "  had %d more; --json lists all\n", left)
				break
			}
			fmt.Fprintf(s.stdout, "  had %s of %s\n", what(h.Mode, h.Key, h.Count), h.Object)
		}
	}
	for _, line := range d.Done {
		fmt.Fprintln(s.stdout, line)
	}
}

// reap joins the arena, and waits until all dead participants are reaped. Joining is enough, because every
// participant reaps the dead.
func (c *reapCmd) reap(s *session, src *source, snap *snapshot, d *document) error {
	return s.inArena(c.Arena, snap, c.Wait, func(*arena.Arena) error {
		end := time.Now().Add(c.Wait)
		for {
			if err := src.ins.Refresh(); err != nil {
				return err
			}
			left := slices.ContainsFunc(src.ins.Participants(), func(w arenakernel.Witness) bool { return w.Life == arenakernel.LifeDead })
			if !left {
				d.Done = append(d.Done, fmt.Sprintf("reaped %d", len(d.Participants)))
				return nil
			}
			if time.Now().After(end) || s.ctx.Err() != nil {
				return errors.New("not all of the dead are reaped yet: the kernel may not have finished with them; try again")
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// objectOf opens an object of a snapshot in an arena that this process has joined.
func objectOf(a *arena.Arena, o *object) (arenakernel.Object, error) {
	obj, err := (*arenakernel.Arena)(a).ObjectAt(arena.Offset(o.Offset))
	if err == nil && (diagnose.Clean(obj.String()) != o.Name || diagnose.Clean(obj.Kind.String()) != o.Kind) {
		(*arenakernel.Arena)(a).CloseObject(obj)
		return obj, missing{fmt.Sprintf("%s %s was deleted meanwhile", o.Type, o.Name)}
	}
	return obj, err
}

// Run changes a setting of an object.
func (c *setCmd) Run(s *session) error {
	type setting struct {
		text string
		spin time.Duration
	}
	var all []setting
	for _, w := range c.What {
		name, value, ok := strings.Cut(w, "=")
		spin, err := parseSpin(value)
		if !ok || name != "spin" || err != nil {
			return fmt.Errorf("%q: want spin=adaptive, spin=none or spin=TIME up to 1ms", w)
		}
		all = append(all, setting{w, spin})
	}
	src, err := open(c.Arena)
	if err != nil {
		return err
	}
	defer src.Close()
	if src.isDump() {
		return refused{c.Arena + " is a dump"}
	}
	snap := src.look()
	found, err := find(snap, c.Name)
	if err != nil {
		return err
	}
	var done []string
	err = s.inArena(c.Arena, snap, c.Wait, func(a *arena.Arena) error {
		o, err := objectOf(a, found)
		if err != nil {
			return err
		}
		defer (*arenakernel.Arena)(a).CloseObject(o)
		for _, v := range all {
			if err := prims.SetSpinOf(a, arena.Object(o), v.spin); err != nil {
				return err
			}
			done = append(done, c.Name+": "+v.text)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.did("set", done...)
}

func parseSpin(text string) (time.Duration, error) {
	switch text {
	case "adaptive", "0":
		return 0, nil
	case "none":
		return -1, nil
	}
	d, err := time.ParseDuration(text)
	if err == nil && (d <= 0 || d > time.Millisecond) {
		err = errors.New("out of range")
	}
	return d, err
}

// Run creates an arena.
func (c *createCmd) Run(s *session) error {
	bytes, err := parseSize(c.Size)
	if err != nil {
		return err
	}
	mode, err := strconv.ParseUint(c.Mode, 8, 32)
	if err != nil || mode > 0o777 {
		return fmt.Errorf("%q is no mode such as 0600", c.Mode)
	}
	opts := &arena.Options{Size: bytes, MaxParticipants: c.MaxParticipants, Mode: fs.FileMode(mode), Counted: c.Counted, Label: "shmctl"}
	a, err := arena.Create(c.Name, opts)
	if errors.Is(err, fs.ErrExist) {
		return refused{c.Name + " is there already"}
	}
	if err != nil {
		return err
	}
	done := fmt.Sprintf("created %s: %s, %d participants at most", a.Path(), size(uint64(a.Size())), a.MaxParticipants())
	if err := a.Close(); err != nil {
		return err
	}
	return s.did("create", done)
}

func parseSize(text string) (int64, error) {
	digits, unit := strings.TrimRight(text, "KMGTiB"), int64(1)
	switch strings.TrimSuffix(strings.TrimSuffix(text[len(digits):], "B"), "i") {
	case "":
	case "K":
		unit = 1 << 10
	case "M":
		unit = 1 << 20
	case "G":
		unit = 1 << 30
	case "T":
		unit = 1 << 40
	default:
		unit = 0
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n <= 0 || unit == 0 || n > sizeMost/unit {
		return 0, fmt.Errorf("%q is no size such as 64M", text)
	}
	return n * unit, nil
}
