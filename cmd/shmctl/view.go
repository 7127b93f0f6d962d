//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// Output formats of a command that examines an arena.
const (
	formatText = "text"
	formatWide = "wide"
	formatJSON = "json"
	formatName = "name"
)

type (
	// watching has the flags of a command that can repeat its output at an interval.
	watching struct {
		Watch time.Duration `short:"w" placeholder:"TIME" help:"Show it again each time that this time has passed, until interrupted."`
	}
	// view has the flags of a command that lists things.
	view struct {
		watching
		Output string `short:"o" enum:"text,wide,json,name" default:"text" help:"One of ${enum}: wide has more columns, name only the names."`
	}
)

func (w *watching) interval() time.Duration { return w.Watch }
func (v *view) formatOf() string            { return v.Output }

// run executes the chosen command once or, if the user gave an interval, repeatedly until it is interrupted.
func (s *session) run(k *kong.Context) error {
	command := k.Selected().Target.Addr().Interface()
	if f, ok := command.(interface{ formatOf() string }); ok {
		s.format = f.formatOf()
		s.json = s.json || s.format == formatJSON
	}
	w, ok := command.(interface{ interval() time.Duration })
	if !ok || w.interval() == 0 {
		return k.Run(s)
	}
	if w.interval() < 0 {
		return errors.New("--watch: want a time such as 2s")
	}
	return s.watch(k, max(w.interval(), 50*time.Millisecond))
}

// watch runs a command repeatedly until it is interrupted, and returns the error of the last run. It writes the
// output of a run in one piece, so that a screen does not flicker.
func (s *session) watch(k *kong.Context, interval time.Duration) error {
	out := s.stdout
	screen := s.terminal != nil && !s.json
	for first := true; ; first = false {
		var b bytes.Buffer
		s.stdout = &b
		err := k.Run(s)
		s.stdout = out
		var st status
		if err != nil && !errors.As(err, &st) {
			return err
		}
		if werr := s.show(b.Bytes(), screen, first); werr != nil {
			return werr
		}
		select {
		case <-s.ctx.Done():
			return err
		case <-time.After(interval):
		}
	}
}

// show writes the output of one run.
func (s *session) show(text []byte, screen, first bool) error {
	switch {
	case screen:
		text = append([]byte(screenHome+screenClearRest+s.now().Format(time.TimeOnly)+"\n\n"), text...)
	case !first && !s.json:
		text = append([]byte("\n"), text...)
	}
	_, err := s.stdout.Write(text)
	return err
}

// wide returns the cells of a row of a table. If the user chose the format wide, the further cells follow.
func (s *session) wide(cells []string, further ...string) []string {
	if s.format == formatWide {
		return append(cells, further...)
	}
	return cells
}

// shorts returns the names of participants for a table. The format wide has all names, and other formats have only a
// few.
func (s *session) shorts(snap *snapshot, names []string) string {
	if s.format == formatWide {
		return snap.Shorts(names)
	}
	return snap.ShortsOfMany(names)
}

// writeNames writes the names of the things that a command lists. Each name is an argument that other commands of
// shmctl accept.
func writeNames(w io.Writer, d *document, snap *snapshot) error {
	var names []string
	add := func(index int) { names = append(names, snap.Argument(&snap.Objects[index])) }
	switch d.Command {
	case "ps":
		for _, p := range d.Participants {
			names = append(names, p.Name)
		}
	case "locks":
		for _, h := range d.Holds {
			add(h.ObjectIndex)
		}
	case "waits":
		for _, v := range d.Waits {
			add(v.ObjectIndex)
		}
	default:
		for i := range d.Objects {
			names = append(names, snap.Argument(&d.Objects[i]))
		}
	}
	var unique []string
	seen := map[string]bool{} // a map, because there may be very many objects
	for _, n := range names {
		if !seen[n] {
			seen[n] = true
			unique = append(unique, n)
		}
	}
	if len(unique) == 0 {
		return nil
	}
	_, err := fmt.Fprintln(w, strings.Join(unique, "\n"))
	return err
}

// clock renders a point in time for the format wide.
func clock(t *time.Time) string {
	if t == nil {
		return "unknown"
	}
	return t.UTC().Format(time.RFC3339)
}

// processOf renders the process of a participant for the format wide.
func processOf(snap *snapshot, name string) string {
	p := snap.Participant(name)
	if p == nil {
		return "gone"
	}
	return p.Process
}
