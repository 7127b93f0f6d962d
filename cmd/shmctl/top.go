//go:build linux

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/shmsync/shmsync/internal/diagnose"
	"golang.org/x/term"
)

type topCmd struct {
	Arena    string        `arg:"" help:"Name, path or dump."`
	Interval time.Duration `short:"d" default:"1s" help:"Time between two updates."`
	Count    int           `short:"n" help:"End after this many updates; 0: at q, or when interrupted."`
	Sort     string        `enum:"contention,waits,longest,holds,acquired,name" default:"contention" help:"What the objects are sorted by, one of ${enum}; the key s changes it."`
	Filter   string        `placeholder:"TEXT" help:"Only objects with this text in their name or type; the key / changes it."`
}

// The terminal sequences that top uses.
const (
	screenAlternate = "\x1b[?1049h\x1b[?25l"
	screenNormal    = "\x1b[?25h\x1b[?1049l"
	screenHome      = "\x1b[H"
	lineClear       = "\x1b[K"
	screenClearRest = "\x1b[J"
)

// Run shows the arena until it is interrupted.
func (c *topCmd) Run(s *session) error {
	src, err := open(c.Arena)
	if err != nil {
		return err
	}
	defer src.Close()
	interval := max(c.Interval, 50*time.Millisecond)
	live := s.terminal != nil && !s.json
	state := &topState{sort: c.Sort, filter: c.Filter}
	var keys <-chan byte
	resized := make(chan os.Signal, 1)
	if live {
		fmt.Fprint(s.stdout, screenAlternate)
		defer fmt.Fprint(s.stdout, screenNormal)
		var restore func()
		keys, restore = pressedKeys(os.Stdin)
		defer restore()
		signal.Notify(resized, syscall.SIGWINCH)
		defer signal.Stop(resized)
	}
	snap := src.look()
	var before *snapshot
	for looks := 1; ; looks++ {
		if err := c.draw(s, state, snap, before, live); err != nil {
			return err
		}
		if c.Count > 0 && looks >= c.Count {
			return nil
		}
		for end := time.After(interval); ; {
			select {
			case <-s.ctx.Done():
				return nil
			case key := <-keys:
				if state.press(key) {
					return nil
				}
			case <-resized:
			case <-end:
				end = nil
			}
			if end == nil && !state.paused {
				break
			}
			if err := c.draw(s, state, snap, before, live); err != nil {
				return err
			}
		}
		before = snap
		if snap, err = src.again(); err != nil {
			return err
		}
	}
}

// fit returns the lines of text that fit on the screen. It wraps the lines above the first empty line, because they are
// sentences. It cuts off the ends of the lines below, because they are a table.
func fit(text string, width, height int) (lines []string) {
	sentences := true
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		sentences = sentences && line != ""
		if sentences {
			lines = append(lines, wrap(line, width, "")...)
			continue
		}
		runes := []rune(line)
		lines = append(lines, string(runes[:min(len(runes), width)]))
	}
	return lines[:min(len(lines), max(height-1, 1))]
}

func (c *topCmd) draw(s *session, state *topState, snap, before *snapshot, live bool) error {
	if s.json {
		d := s.begin("top")
		d.Arena, d.Participants, d.Objects, d.Holds, d.Waits, d.Findings = &snap.Info, snap.Participants, snap.Objects, snap.Holds, snap.Waits, snap.Findings()
		return writeJSON(s.stdout, d)
	}
	var b bytes.Buffer
	if !live {
		topText(&b, state, snap, before, s.now(), len(snap.Objects))
		_, err := s.stdout.Write(append(b.Bytes(), '\n'))
		return err
	}
	width, height, err := term.GetSize(int(s.terminal.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	fmt.Fprintln(&b, state.status())
	topText(&b, state, snap, before, s.now(), height)
	var out strings.Builder
	out.WriteString(screenHome)
	for _, l := range fit(b.String(), width, height) {
		if colours() {
			l = paint(l)
		}
		out.WriteString(l + lineClear + "\r\n")
	}
	out.WriteString(screenClearRest)
	_, err = s.stdout.Write([]byte(out.String()))
	return err
}

// rates are the operations of an object per second between two refreshes. They are unknown if the arena has no
// counters.
type rates struct {
	known                                  bool
	acquired, contended, paid, slept, woke float64
}

func ratesOf(o *object, snap, before *snapshot) (r rates) {
	if before == nil || o.Counters == nil {
		return r
	}
	i, found := slices.BinarySearchFunc(before.Objects, o.Offset, func(b object, off uint64) int { return cmp.Compare(b.Offset, off) })
	seconds := float64(snap.Time-before.Time) / 1e9
	if !found || before.Objects[i].Kind != o.Kind || before.Objects[i].Counters == nil || seconds <= 0 {
		return r
	}
	per := func(now, then uint64) float64 { return float64(now-min(then, now)) / seconds }
	n, b := o.Counters, before.Objects[i].Counters
	return rates{true, per(n.Acquired, b.Acquired), per(n.Contended, b.Contended), per(n.SpinsPaid, b.SpinsPaid), per(n.Slept, b.Slept), per(n.Woken, b.Woken)}
}

func (r rates) text(v float64) string {
	switch {
	case !r.known:
		return "unknown"
	case v >= 1e6:
		return fmt.Sprintf("%.1fM", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.0fk", v/1e3)
	}
	return fmt.Sprintf("%.0f", v)
}

// topText writes the state of an arena, with a table of its first objects. The parameter most is the maximum number of
// rows, because a screen shows only a few of very many objects.
func topText(b *bytes.Buffer, state *topState, snap, before *snapshot, now time.Time, most int) {
	f := snap.Findings()
	lives := map[string]int{}
	for _, p := range snap.Participants {
		lives[p.Life]++
	}
	var who []string
	for _, l := range sorted(lives) {
		who = append(who, fmt.Sprintf("%d %s", lives[l], l))
	}
	fmt.Fprintf(b, "%s  %s  %s of %s used, %d objects, %d held, %d waits, %d reaps\n", snap.Info.Name, now.Format(time.TimeOnly),
		size(snap.Info.Used), size(uint64(snap.Info.Size)), snap.Info.Objects, len(snap.Holds), len(snap.Waits), snap.Info.Deaths)
	fmt.Fprintf(b, "participants: %s\nhealth: %s\n", cmp.Or(strings.Join(who, ", "), "none"), health(f))
	if !snap.Info.Counted {
		fmt.Fprintln(b, "rates: not known; an arena created with Options.Counted has them")
	}
	writeFindings(b, 0, f)
	fmt.Fprintln(b)
	order := make([]int, 0, len(snap.Objects))
	rate := make([]rates, len(snap.Objects))
	for i := range snap.Objects {
		if state.shows(&snap.Objects[i]) {
			rate[i] = ratesOf(&snap.Objects[i], snap, before)
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(x, y int) int {
		return state.compare(snap, &snap.Objects[x], &snap.Objects[y], rate[x], rate[y])
	})
	columns := []string{"OBJECT", "TYPE", "WAITS", "LONGEST WAIT", "HELD BY", "AGE OF HOLD"}
	if snap.Info.Counted {
		columns = append(columns, "ACQ/S", "CONT/S", "SPIN/S", "SLEEP/S", "WAKE/S")
	}
	t := newTable(b, columns...)
	for _, i := range order[:min(len(order), most)] {
		o, r := &snap.Objects[i], rate[i]
		var longest *int64
		for _, w := range o.Waits {
			if a := snap.Waits[w].AgeNs; a != nil && (longest == nil || *a > *longest) {
				longest = a
			}
		}
		longestText := ""
		if len(o.Waits) > 0 {
			longestText = diagnose.Age(longest)
		}
		holder, held := "", ""
		if len(o.Holds) > 0 {
			h := &snap.Holds[o.Holds[0]]
			holder, held = snap.Short(h.Owner), diagnose.HoldAge(h)
			if n := len(o.Holds) - 1; n > 0 {
				holder += fmt.Sprintf(" +%d", n)
			}
		}
		cells := []string{o.Name, o.Type, strconv.Itoa(len(o.Waits)), longestText, holder, held}
		if snap.Info.Counted {
			cells = append(cells, r.text(r.acquired), r.text(r.contended), r.text(r.paid), r.text(r.slept), r.text(r.woke))
		}
		t.row(cells...)
	}
	t.flush()
}
