package diagnose

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// Short writes a duration in a short form for people.
func Short(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

func Ago(d time.Duration) string { return Short(d) + " ago" }

// Age writes the age of a wait or hold, or a placeholder if the age is not known.
func Age(ns *int64) string {
	if ns == nil {
		return "unknown"
	}
	return Short(time.Duration(*ns))
}

// HoldAge writes the age of a hold. It puts "≥" before the age if the hold may be older.
func HoldAge(h *Hold) string {
	if h.AgeNs != nil && h.AtLeast {
		return "≥" + Age(h.AgeNs)
	}
	return Age(h.AgeNs)
}

// Short returns the name of a participant for a table, with its label, pid and ID.
func (s *Snapshot) Short(name string) string {
	if i, ok := s.who[name]; ok {
		p := &s.Participants[i]
		text := fmt.Sprintf("%s[%d]", p.Label, p.PID)
		if p.Life != "alive" {
			text += " " + p.Life
		}
		return text
	}
	for _, g := range s.Gone {
		if g.Name == name {
			return fmt.Sprintf("%s[%d] gone", g.Label, g.PID)
		}
	}
	return name + " gone"
}

// Shorts returns the names of several participants for a table; see Short.
func (s *Snapshot) Shorts(names []string) string {
	var list []string
	for _, n := range names {
		list = append(list, s.Short(n))
	}
	return strings.Join(list, ", ")
}

// namesFirst is the number of participants that ShortsOfMany names if there are very many.
const namesFirst = 3

// ShortsOfMany is like Shorts, but names only the first of very many participants, and says how many more there are.
func (s *Snapshot) ShortsOfMany(names []string) string {
	if left := len(names) - namesFirst; left > 1 {
		return fmt.Sprintf("%s +%d", s.Shorts(names[:namesFirst]), left)
	}
	return s.Shorts(names)
}

func Wants(w *Wait) string {
	text := w.For
	if text == "" {
		text = "something"
	}
	if w.Want != nil {
		text += fmt.Sprintf(" %d", *w.Want)
	}
	return text
}

// removedPath returns the path that the file had before it was removed, or an empty string if it was not removed.
func removedPath(f *os.File) string {
	link, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	return Clean(strings.TrimSuffix(link, " (deleted)"))
}

func ErrorText(err error) string {
	return Clean(strings.ReplaceAll(err.Error(), "\n", "; "))
}

// Clean makes text that a peer has written safe for a terminal.
func Clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0xfffd || r >= 0x200b && r <= 0x200f || r >= 0x2028 && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			return '?'
		}
		return r
	}, text)
}
