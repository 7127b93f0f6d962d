package diagnose

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// Confirm compares the snapshot s with a later one, which the call again() returns. It returns the findings of s that
// the later snapshot confirms, and the later snapshot. A single snapshot is not enough: it is read word by word, so it
// can show a deadlock that never existed.
func Confirm(s *Snapshot, again func() (*Snapshot, error)) ([]Finding, *Snapshot, error) {
	f := s.findings()
	passing := func(f Finding) bool { return f.Kind != Corrupt || s.Damage == nil }
	if s.opts.Dump != nil || !slices.ContainsFunc(f, passing) {
		return causes(f), s, nil
	}
	time.Sleep(ConfirmAfter)
	later, err := again()
	if err != nil {
		return nil, s, err
	}
	earlier := map[string][]Finding{} // a map, because there may be very many findings
	for _, before := range f {
		earlier[key(before)] = append(earlier[key(before)], before)
	}
	stays := func(now Finding) bool {
		return slices.ContainsFunc(earlier[key(now)], func(before Finding) bool {
			return slices.EqualFunc(before.proof, now.proof, proof.same)
		})
	}
	still := slices.DeleteFunc(later.findings(), func(f Finding) bool { return !stays(f) })
	isUnreaped := func(f Finding) bool { return f.Kind == DeadHolder }
	for end := time.Now().Add(ReapWithin); later.hasReaper() && slices.ContainsFunc(still, isUnreaped) && time.Now().Before(end); {
		time.Sleep(ConfirmAfter)
		if later, err = again(); err != nil {
			return nil, s, err
		}
		still = slices.DeleteFunc(later.findings(), func(f Finding) bool { return !stays(f) })
	}
	return causes(still), later, nil // after the checks: only a confirmed deadlock may hide a long hold
}

// ReapWithin is how long a living participant may take to reap a dead one before Confirm reports the dead one. On a
// busy host, a reap takes longer than ConfirmAfter. Tests change ReapWithin.
var ReapWithin = time.Second

// hasReaper reports whether a participant lives that can reap the dead ones.
func (s *Snapshot) hasReaper() bool {
	return slices.ContainsFunc(s.Participants, func(p Participant) bool { return p.Life == arenakernel.LifeAlive && p.State == "live" })
}

// proof identifies one wait and one hold, to recognize them in a later snapshot. When the same process waits for the
// same object again, that wait has another proof. The same is true of a new hold. Without proofs, two short cycles
// could look like one lasting cycle.
type proof struct {
	order uint64
	since int64
	words string
}

// prove returns the proof of an edge, which identifies its wait and its hold. If several waits belong to the edge, the
// proof is that of the oldest one. It has four parts:
//
//   - the stamp of the wait, and when the wait began
//   - the words of the object that each release changes while a process waits
//   - the phase or the key that the wait is for
//   - the mode and the count of each hold of the other participant
func (s *Snapshot) prove(e Edge) (p proof) {
	for _, w := range s.Waits {
		if w.Owner != e.From || w.Object != e.Object || w.For != e.For {
			continue
		}
		held := ""
		for _, i := range w.OnHolds {
			if h := &s.Holds[i]; h.Owner == e.To {
				held += fmt.Sprintf("%s %d ", h.Mode, h.Count)
			}
		}
		if held == "" {
			continue // another wait of this participant for the same object, such as for another key
		}
		if p.words == "" || w.Order < p.order || w.Order == p.order && w.since != 0 && w.since < p.since {
			p = proof{w.Order, w.since, held}
			if w.ObjectIndex < len(s.Objects) {
				p.words += wordsOf(&s.Objects[w.ObjectIndex], &w)
			}
			if w.Want != nil {
				p.words += fmt.Sprintf("for %d", *w.Want)
			}
		}
	}
	return p
}

func wordsOf(o *Object, w *Wait) (text string) {
	for _, v := range o.Words {
		switch {
		case v.Name == "owner", v.Name == "wake", v.Name == "state", v.Name == "gate", v.Name == "writers",
			w.Want != nil && v.Name == fmt.Sprintf("key %d", *w.Want):
			text += v.Name + v.Bits + " "
		}
	}
	return text
}

// same reports whether a proof from a later snapshot identifies the same wait for the same hold. The later proof may
// contain a time that was still unknown in the earlier one.
func (p proof) same(later proof) bool {
	return p.order == later.order && (p.since == 0 || p.order != 0 || p.since == later.since) && p.words == later.words
}

// ConfirmAfter is the time between the two snapshots. Tests change it.
var ConfirmAfter = 50 * time.Millisecond

// key identifies a finding by its kind, its participants and its objects.
func key(f Finding) string {
	return f.Kind + "\x00" + strings.Join(f.Participants, ",") + "\x00" + strings.Join(f.Objects, "\x00")
}
