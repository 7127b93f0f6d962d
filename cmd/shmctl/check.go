//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shmsync/shmsync/internal/diagnose"
)

type checkCmd struct {
	watching
	Arena string `arg:"" help:"Name, path or dump."`
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
	d.Arena = &snap.Info
	if len(d.Damage) > 0 {
		d.Arena.Health = diagnose.Corrupt
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

// checkTries is how often an arena in use is checked. A finding that is missing from one of these
// checks was only a temporary state.
const checkTries = 3

// check checks the arena several times, and returns the findings that every check had.
func (s *session) check(src *source) []string {
	var found []string
	for try := range checkTries {
		now := lines(src.ins.Check())
		if try > 0 {
			before := map[string]bool{} // a map, because there may be very many findings
			for _, l := range found {
				before[l] = true
			}
			now = slices.DeleteFunc(now, func(l string) bool { return !before[l] })
		}
		found = now
		if len(found) == 0 || src.isDump() || try == checkTries-1 {
			break
		}
		time.Sleep(diagnose.ConfirmAfter)
		if err := src.ins.Refresh(); err != nil {
			return append(found, diagnose.ErrorText(err))
		}
	}
	return found
}

// lines returns the lines of an error, each once.
func lines(err error) (all []string) {
	if err == nil {
		return nil
	}
	seen := map[string]bool{}
	for l := range strings.SplitSeq(err.Error(), "\n") {
		if l = diagnose.Clean(l); !seen[l] {
			seen[l] = true
			all = append(all, l)
		}
	}
	return all
}
