//go:build linux

package stopstorm

import (
	"fmt"
	"strings"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// excuseAfter determines when a stop may end early. A lane is a goroutine or thread of a worker that repeats one
// operation. If all lanes that make no progress have an excuse, the stop ends after the time bound/excuseAfter.
const excuseAfter = 30

// excused reports whether each of the given lanes has an excuse, that is, needs something that the worker victim
// visibly holds. If so, excused adds 1 to a field of the result: to Excused if inside returns true, and otherwise to
// Granted.
func (s *storm) excused(victim int, still [][2]int) bool {
	for _, x := range still {
		if !s.lanes[x[1]].needs {
			return false
		}
	}
	holds := s.holdsOf(victim)
	if len(holds) == 0 {
		return false
	}
	if s.inside(victim) {
		s.res.Excused++
	} else {
		s.res.Granted++
	}
	return true
}

// inside reports whether a lane of the victim is between its acquisition and its release: the call that acquires
// has returned, and the call that releases has not.
func (s *storm) inside(victim int) bool {
	for k := range s.lanes {
		if at := s.page.proc[victim].lane[k].at.Load(); at == atHolding || at == atReleasing {
			return true
		}
	}
	return false
}

// judge records a stop during which the given lanes made no progress for longer than the bound. The stop counts as a
// freeze unless each of these lanes has an excuse, that is, needs something that the victim visibly holds. The
// parameter where is a function that returns the place of the victim in the code.
func (s *storm) judge(victim int, still [][2]int, where func() string) {
	if s.excused(victim, still) {
		return
	}
	holds := s.holdsOf(victim)
	for _, x := range still {
		if !s.lanes[x[1]].needs || len(holds) == 0 {
			s.observed.lanes[s.lanes[x[1]].name]++
		}
	}
	s.res.Freezes++
	place := where()
	s.observed.where[place]++
	if len(s.res.Texts) < mostTexts {
		s.res.Texts = append(s.res.Texts, s.text(victim, still, holds, place))
	}
}

// holdsOf returns what the worker victim visibly holds.
func (s *storm) holdsOf(victim int) (holds []string) {
	self := arenakernel.ParticipantID(s.page.proc[victim].self.Load())
	if err := s.look.Refresh(); err != nil {
		return nil
	}
	for _, o := range s.look.Objects() {
		for _, h := range s.look.Look(o.Object).Holds {
			if h.Owner == self {
				holds = append(holds, fmt.Sprintf("%s of %q", h.Mode, o.Name))
			}
		}
	}
	return holds
}

// text returns the description of a freeze for the report.
func (s *storm) text(victim int, still [][2]int, holds []string, place string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "worker %d, stopped %s\n", victim, place)
	fmt.Fprintf(&b, "  holds: %s\n", strings.Join(holds, ", "))
	for _, x := range still {
		fmt.Fprintf(&b, "  worker %d does not go on: %s\n", x[0], s.lanes[x[1]].name)
	}
	return b.String() + s.words()
}

// words returns a description of the objects and their holds.
func (s *storm) words() string {
	var b strings.Builder
	if err := s.look.Refresh(); err != nil {
		return err.Error()
	}
	for _, o := range s.look.Objects() {
		fmt.Fprintf(&b, "  %v %q: %s\n", o.Kind, o.Name, s.look.Describe(o.Object))
		for _, h := range s.look.Look(o.Object).Holds {
			fmt.Fprintf(&b, "    %s: %v\n", h.Mode, h.Owner)
		}
	}
	return b.String()
}
