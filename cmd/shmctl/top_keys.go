//go:build linux

package main

import (
	"cmp"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"

	"github.com/shmsync/shmsync/internal/diagnose"
)

// topKeys are the columns by which top can sort. Numbers are sorted from the largest to the smallest, names
// alphabetically.
var topKeys = []string{"contention", "waits", "longest", "holds", "acquired", "name"}

// topState is what the user of top has chosen.
type topState struct {
	sort   string
	filter string // only objects with this text in their name or type are shown
	paused bool
	typing bool // the keys that the user presses go to the filter
}

// status returns the line that shows the choices of the user, and the keys that top knows.
func (s *topState) status() string {
	text := "sort: " + s.sort
	if s.filter != "" || s.typing {
		text += "  filter: " + diagnose.Clean(s.filter)
	}
	if s.typing {
		return text + "_  (Enter: keep, Esc: clear)"
	}
	if s.paused {
		text += "  PAUSED"
	}
	return text + "  (s: sort, /: filter, space: pause, q: quit)"
}

// press handles a key, and reports whether it ends top.
func (s *topState) press(key byte) (quit bool) {
	const ctrlC, escape, backspace, del = 3, 27, 8, 127
	switch {
	case key == ctrlC:
		return true
	case s.typing && (key == '\r' || key == '\n'):
		s.typing = false
	case s.typing && key == escape:
		s.typing, s.filter = false, ""
	case s.typing && (key == backspace || key == del):
		s.filter = strings.ToValidUTF8(s.filter[:max(len(s.filter)-1, 0)], "")
	case s.typing:
		s.filter += string([]byte{key})
	case key == 'q' || key == 'Q':
		return true
	case key == 's':
		s.sort = topKeys[(slices.Index(topKeys, s.sort)+1)%len(topKeys)]
	case key == '/':
		s.typing = true
	case key == ' ':
		s.paused = !s.paused
	}
	return false
}

// shows reports whether the filter matches an object, so that top shows the object.
func (s *topState) shows(o *object) bool {
	return o.Type != "Value" && o.Type != "Block" && (strings.Contains(o.Name, s.filter) || strings.Contains(o.Type, s.filter))
}

// compare orders two objects of a snapshot, whose rates are x and y.
func (s *topState) compare(snap *snapshot, a, b *object, x, y rates) int {
	longest := func(o *object) (ns int64) {
		for _, w := range o.Waits {
			if age := snap.Waits[w].AgeNs; age != nil {
				ns = max(ns, *age)
			}
		}
		return ns
	}
	first := 0
	switch s.sort {
	case "waits":
		first = cmp.Compare(len(b.Waits), len(a.Waits))
	case "longest":
		first = cmp.Compare(longest(b), longest(a))
	case "holds":
		first = cmp.Compare(len(b.Holds), len(a.Holds))
	case "acquired":
		first = cmp.Compare(y.acquired, x.acquired)
	case "name":
		first = cmp.Compare(a.Name, b.Name)
	}
	return cmp.Or(first, cmp.Compare(y.contended, x.contended), cmp.Compare(len(b.Waits), len(a.Waits)),
		cmp.Compare(y.acquired, x.acquired), cmp.Compare(len(b.Holds), len(a.Holds)))
}

// pressedKeys returns a channel with the keys that the user presses at the terminal in, and a function that restores
// the terminal. If in is not a terminal, the channel is nil.
func pressedKeys(in *os.File) (keys <-chan byte, restore func()) {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, func() {}
	}
	pressed := make(chan byte)
	go func() {
		for b := make([]byte, 1); ; {
			if n, err := in.Read(b); err != nil || n == 0 {
				pressed <- 'q' // the terminal is gone
				return
			}
			pressed <- b[0]
		}
	}()
	return pressed, func() { term.Restore(int(in.Fd()), before) }
}

// colours reports whether top may use colours.
func colours() bool { return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" }

// paint colours the lines that report trouble red.
func paint(line string) string {
	for _, kind := range diagnose.Kinds {
		if strings.HasPrefix(line, strings.ToUpper(kind)+": ") {
			return "\x1b[31m" + line + "\x1b[0m"
		}
	}
	return line
}
