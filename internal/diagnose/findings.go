package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// Title returns the name of a participant for use in a sentence.
func (s *Snapshot) Title(name string) string {
	if i, ok := s.who[name]; ok {
		p := &s.Participants[i]
		if p.HostPID != 0 && p.HostPID != p.PID {
			return fmt.Sprintf("%s (pid %d, here %d, %s)", p.Label, p.PID, p.HostPID, name)
		}
		return fmt.Sprintf("%s (pid %d, %s)", p.Label, p.PID, name)
	}
	for _, g := range s.Gone {
		if g.Name == name {
			return fmt.Sprintf("%s (pid %d, %s, gone)", g.Label, g.PID, name)
		}
	}
	return name
}

// Findings lists the findings of a snapshot, the worst first.
func (s *Snapshot) Findings() []Finding { return causes(s.findings()) }

// causes omits each finding of a long or leaked hold whose process is in a deadlock that is also found. The deadlock is
// the cause of the hold.
func causes(all []Finding) []Finding {
	deadlocked := map[string]bool{}
	for _, f := range all {
		if f.Kind == Deadlock {
			for _, name := range f.Participants {
				deadlocked[name] = true
			}
		}
	}
	return slices.DeleteFunc(all, func(f Finding) bool {
		return (f.Kind == LongHold || f.Kind == LeakedHold) && deadlocked[f.Participants[0]]
	})
}

// findings lists everything that a snapshot shows, the worst first.
func (s *Snapshot) findings() (all []Finding) {
	if s.Damage != nil {
		all = append(all, Finding{Kind: Corrupt, Trouble: true, Text: ErrorText(s.Damage),
			Advice: "keep a dump for a report, and create a new arena", Command: s.dumpCommand()})
	}
	for _, c := range s.deadlocks() {
		all = append(all, s.deadlockFinding(c))
	}
	for i := range s.Objects {
		all = append(all, s.objectFindings(i)...)
	}
	all = append(all, s.joinFindings()...)
	all = s.unlockedFindings(all)
	slices.SortStableFunc(all, func(a, b Finding) int { return cmp.Compare(rank(a), rank(b)) })
	return all
}

func rank(f Finding) int {
	if f.Trouble {
		return slices.Index(Kinds, f.Kind)
	}
	return 100
}

// stepsFirst is how many waits of a deadlock the text describes before the last one. A deadlock may have very many
// waits.
const stepsFirst = 7

func (s *Snapshot) deadlockFinding(c []Edge) Finding {
	f := Finding{Kind: Deadlock, Trouble: true}
	var steps []string
	for i, e := range c {
		switch left := len(c) - 1 - stepsFirst; {
		case i < stepsFirst || i == len(c)-1 || left == 1:
			steps = append(steps, fmt.Sprintf("%s waits for %s of %s, which %s has", s.Title(e.From), e.For, e.Object, s.Title(e.To)))
		case i == stepsFirst:
			steps = append(steps, fmt.Sprintf("and so on through %d more", left))
		}
		f.Participants = append(f.Participants, e.From)
		f.Objects = append(f.Objects, e.Object)
		f.proof = append(f.proof, s.prove(e))
	}
	f.Text = fmt.Sprintf("%d processes wait for each other: %s", len(c), strings.Join(steps, "; "))
	f.Advice = "end one of them; a death passes its holds on by the policies of the locks"
	f.end(s, c[len(c)-1].From)
	return f
}

func (s *Snapshot) objectFindings(i int) (all []Finding) {
	o := &s.Objects[i]
	waiters := s.waiters(o)
	died := func() string {
		if o.Died == "" {
			return ""
		}
		return ": " + s.Title(o.Died) + " died" + s.DiedWhen(o.Died)
	}
	switch {
	case strings.Contains(o.Error, shmsync.ErrCorrupt.Error()) || o.State == "unreadable":
		all = append(all, Finding{Kind: Corrupt, Trouble: true, Objects: []string{o.Name},
			Text: fmt.Sprintf("%s %s has impossible bytes: %s", o.Type, o.Name, o.State), Advice: "look at all damage", Command: s.Command("check", nil)})
	case o.Error == shmsync.ErrNotRecoverable.Error():
		f := Finding{Kind: NotRecoverable, Trouble: true, Objects: []string{o.Name}, Participants: none(o.Died),
			Text: fmt.Sprintf("%s %s is not recoverable: a repair failed%s", o.Type, o.Name, died())}
		f.recover(s, o, "let the application call Recover; only it knows which state is right", "see to the data, and then make it usable")
		all = append(all, f)
	case o.Error != "":
		text := fmt.Sprintf("%s %s is owner-dead%s; policy report, so nobody gets it%s", o.Type, o.Name, died(), waiters)
		app, tool := "let the application call Recover", "or, if the data is sound, make it usable"
		if o.Policy == "" {
			text = fmt.Sprintf("%s %s cannot be completed%s%s", o.Type, o.Name, died(), waiters)
			app, tool = "let the application call Reset", "or, if what the dead process owed is not needed, reset it"
		}
		f := Finding{Kind: OwnerDead, Trouble: true, Objects: []string{o.Name}, Participants: none(o.Died), Text: text}
		f.recover(s, o, app, app+", "+tool)
		all = append(all, f)
	}
	told := map[string]bool{}
	for _, h := range o.Holds {
		h := &s.Holds[h]
		f, ok := s.holderFinding(o, h, waiters)
		if ok && !told[f.Kind+h.Owner] {
			told[f.Kind+h.Owner] = true
			all = append(all, f)
		}
	}
	if len(all) == 0 {
		all = s.wedgeFindings(o, waiters)
	}
	return all
}

func none(name string) []string {
	if name == "" {
		return nil
	}
	return []string{name}
}

// holderFinding returns a finding about a holder that will not release its hold by itself. ok is false if the holder
// may still release it.
func (s *Snapshot) holderFinding(o *Object, h *Hold, waiters string) (f Finding, ok bool) {
	f = Finding{Objects: []string{o.Name}, Participants: []string{h.Owner}, Trouble: true}
	what := s.heldText(o, h)
	i, present := s.who[h.Owner]
	if !present || s.Participants[i].Life == arenakernel.LifeDead {
		f.Kind = DeadHolder
		dead := "is dead"
		if when := s.DiedWhen(h.Owner); when != "" {
			dead = "died" + when
		}
		f.Text = fmt.Sprintf("%s %s and %s; nobody has reaped it yet%s", s.Title(h.Owner), what, dead, waiters)
		f.Advice = "any living participant reaps it; if all are stopped, or none is left, reap it from outside"
		f.Command = s.change("reap", nil)
		f.joins(s)
		return f, true
	}
	if s.isStopped(h.Owner) {
		f.Kind = StoppedHolder
		f.Trouble = waiters != ""
		f.Text = fmt.Sprintf("%s %s and is %s%s", s.Title(h.Owner), what, s.Participants[i].Process, waiters)
		f.continueAdvice(s, h.Owner)
		return f, true
	}
	return f, false
}

// DiedWhen says how long ago a participant died. It is empty if that is not known.
func (s *Snapshot) DiedWhen(name string) string {
	if i, ok := s.who[name]; ok && s.Participants[i].Died != nil {
		return " " + Ago(time.Since(*s.Participants[i].Died))
	}
	for _, g := range s.Gone {
		if g.Name == name && g.Time != nil {
			return " " + Ago(time.Since(*g.Time))
		}
	}
	return ""
}

// IsGone reports whether the participant with that name is dead, reaped or not.
func (s *Snapshot) IsGone(name string) bool {
	i, ok := s.who[name]
	return !ok || s.Participants[i].Life == arenakernel.LifeDead
}

// waiters returns a phrase that says how many living participants wait for an object, and for how long.
func (s *Snapshot) waiters(o *Object) string {
	n, longest := uint64(0), int64(-1)
	for _, w := range o.Waits {
		if s.IsGone(s.Waits[w].Owner) {
			continue
		}
		n += max(s.Waits[w].Goroutines, 1)
		if a := s.Waits[w].AgeNs; a != nil {
			longest = max(longest, *a)
		}
	}
	if n == 0 {
		return ""
	}
	text := fmt.Sprintf("; %d wait", n)
	if n == 1 {
		text = "; 1 waits"
	}
	if longest >= 0 {
		text += ", for up to " + Short(time.Duration(longest))
	}
	return text
}
