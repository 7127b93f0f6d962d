package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// exhausted returns a finding about a semaphore whose permits are not returned.
func (s *Snapshot) exhausted(o *Object, waiters string) Finding {
	f := Finding{Kind: Exhausted}
	holders, most := s.listHolds(o, arenakernel.HoldPermits, "has")
	f.Text = fmt.Sprintf("%s %s is exhausted (%s)%s%s", o.Type, o.Name, o.State, holders, waiters)
	f.Participants = none(most)
	f.Advice = "look at what its holders do"
	f.Command = s.Command("show", o)
	if most != "" {
		f.Advice = "if the one that has most is stuck, end it; a death gives its permits back"
		f.end(s, most)
	}
	return f
}

// missingParties returns a finding about a wait for work that is not done, or for parties that have not arrived.
func (s *Snapshot) missingParties(o *Object, w *Wait, waiters string) Finding {
	f := Finding{Kind: MissingParties}
	mode, verb := arenakernel.HoldOwes, "owes"
	if w.For == "phase" {
		mode, verb = arenakernel.HoldParty, "has yet to arrive with"
	}
	holders, most := s.listHolds(o, mode, verb)
	if holders == "" {
		holders = "; no participant has claimed what is missing"
	}
	if w.For != "zero" && w.For != "phase" {
		holders = "" // participants claim only counts and arrivals
	}
	f.Participants = none(most)
	others, found := s.others(o)
	f.Text = fmt.Sprintf("%s %s waits for what does not come (%s)%s%s%s", o.Type, o.Name, o.State, holders, others, waiters)
	f.Advice = "see which process should come; one that left without it has to be started again"
	f.Command = s.Command("show", o)
	if !found {
		f.Advice, f.Command = "start the process that should do it; see which ones left or died", s.command("ps", []string{"--gone"})
	}
	if stopped := s.stoppedUser(o); stopped != "" {
		f.Participants = []string{stopped}
		f.continueAdvice(s, stopped)
	}
	return f
}

// stoppedUser returns the first participant that has the object open and is stopped, or an empty string.
func (s *Snapshot) stoppedUser(o *Object) string {
	if i := slices.IndexFunc(o.OpenBy, s.isStopped); i >= 0 {
		return o.OpenBy[i]
	}
	return ""
}

// fullQueue returns a finding about a full queue from which no process takes items.
func (s *Snapshot) fullQueue(o *Object, waiters string) Finding {
	f := Finding{Kind: FullQueue, Advice: "see why none of them takes items", Command: s.Command("show", o)}
	others, found := s.others(o)
	if !found {
		f.Advice, f.Command = "start a process that takes items; see which ones left or died", s.command("ps", []string{"--gone"})
	}
	f.Text = fmt.Sprintf("%s %s is full (%s), and no process takes items%s%s%s", o.Type, o.Name, o.State, others, s.leases(o), waiters)
	if stopped := s.stoppedUser(o); stopped != "" {
		f.Participants = []string{stopped}
		f.Text = fmt.Sprintf("%s %s is full (%s), and %s is %s%s", o.Type, o.Name, o.State, s.Title(stopped), s.Participants[s.who[stopped]].Process, waiters)
		f.continueAdvice(s, stopped)
	}
	return f
}

func (s *Snapshot) isStopped(name string) bool {
	i, ok := s.who[name]
	return ok && slices.Contains([]string{LifeStopped, LifeTraced, LifeFrozen}, s.Participants[i].Life)
}

// owners returns the participants that wait for an object.
func (s *Snapshot) owners(o *Object) map[string]bool {
	names := map[string]bool{}
	for _, w := range o.Waits {
		names[s.Waits[w].Owner] = true
	}
	return names
}

// allStopped reports whether no process can take items from a queue because of a stop: at least one process that has
// the queue open is stopped, and all other living ones that have it open wait for the queue.
func (s *Snapshot) allStopped(o *Object) bool {
	stopped, waits := 0, s.owners(o)
	for _, name := range o.OpenBy {
		switch {
		case s.isStopped(name):
			stopped++
		case !s.IsGone(name) && !waits[name]:
			return false
		}
	}
	return stopped > 0
}

// listHolds returns a text that lists the participants with holds of the given mode. It also returns the name of the
// participant with the largest count, which comes first in the text.
func (s *Snapshot) listHolds(o *Object, mode, verb string) (text, most string) {
	var holds []*Hold
	for _, h := range o.Holds {
		if s.Holds[h].Mode == mode {
			holds = append(holds, &s.Holds[h])
		}
	}
	slices.SortStableFunc(holds, func(a, b *Hold) int { return cmp.Compare(b.Count, a.Count) })
	for i, h := range holds {
		if i == 5 {
			text += fmt.Sprintf("; and %d more", len(holds)-i)
			break
		}
		text += fmt.Sprintf("; %s %s %d", s.Title(h.Owner), verb, max(h.Count, 1))
	}
	if len(holds) > 0 {
		most = holds[0].Owner
	}
	return text, most
}

// others names the participants that have the object open and do not wait for it, and reports whether there is any. If
// there is none, it names the participant that was the last to die.
func (s *Snapshot) others(o *Object) (text string, found bool) {
	var names []string
	waits := s.owners(o)
	for _, name := range o.OpenBy {
		if !s.IsGone(name) && !waits[name] {
			text := s.Title(name)
			if s.isStopped(name) {
				text += ", which is " + s.Participants[s.who[name]].Process
			}
			names = append(names, text)
		}
	}
	switch {
	case len(names) == 0:
		text = "; no process but those that wait has it open"
		if died := s.lastDeath(); died != "" {
			text += "; " + s.Title(died) + " was the last to die," + s.DiedWhen(died)
		}
		return text, false
	case len(names) > 5:
		names = append(names[:5], fmt.Sprintf("%d more", len(names)-5))
	}
	return "; open in " + strings.Join(names, ", "), true
}

// lastDeath returns the participant that was the last to die, or an empty string.
func (s *Snapshot) lastDeath() string {
	var last *DeathRecord
	for i := range s.Gone {
		if g := &s.Gone[i]; !g.Left && g.Time != nil && (last == nil || g.Time.After(*last.Time)) {
			last = g
		}
	}
	if last == nil {
		return ""
	}
	return last.Name
}

// leases returns a phrase about the participants that have items of a queue on lease.
func (s *Snapshot) leases(o *Object) string {
	var names []string
	for _, h := range o.Holds {
		if h := &s.Holds[h]; h.Mode == arenakernel.HoldLease && !slices.Contains(names, h.Owner) {
			names = append(names, h.Owner)
		}
	}
	switch {
	case len(names) == 0:
		return ""
	case len(names) > 1:
		return fmt.Sprintf("; %s and %d more have items on lease", s.Title(names[0]), len(names)-1)
	}
	return fmt.Sprintf("; %s has items on lease", s.Title(names[0]))
}
