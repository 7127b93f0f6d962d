package arenakernel

import (
	"fmt"

	"github.com/shmsync/shmsync"
)

// upgradeCalls names, for each kind, the function that changes the type of an object and keeps its
// contents. Kinds without such a function are missing.
var upgradeCalls = map[Kind]string{
	KindValue:        "arena.Upgrade",
	kindSynchronized: "prims.UpgradeSynchronized",
}

var kindSynchronized = KindOf("SYNC")

// compatible returns an error if the existing object h is not what spec asks for.
func (a *Arena) compatible(h *header, spec ObjectSpec) error {
	var what string
	switch {
	case h.Kind != spec.Kind:
		what = fmt.Sprintf("it is %s, asked for %s", KindPhrase(h.Kind), KindPhrase(spec.Kind))
		if h.Kind == KindValue && spec.Kind == kindSynchronized {
			what += fmt.Sprintf(": %s in OnFirst keeps its contents, and arena.Replace drops them%s", upgradeCalls[spec.Kind], a.keptFromFirst())
		}
	case h.Version != spec.Version:
		what = fmt.Sprintf("it has version %d of the layout of %s, asked for %d", h.Version, KindPhrase(h.Kind), spec.Version)
	case h.Layout == spec.Layout && h.Size != spec.Size && !spec.AnySize:
		what = fmt.Sprintf("it has %d bytes, asked for %d", h.Size, spec.Size)
	default:
		if what = a.differs(h, spec.Layout, spec.Type); what == "" {
			return nil
		}
		change := "arena.Replace drops its contents, which you may copy in OnFirst before"
		if call := upgradeCalls[spec.Kind]; call != "" {
			change = call + " in OnFirst keeps its contents, and arena.Replace drops them"
		}
		what = fmt.Sprintf("%s; it has %d bytes, asked for %d: a program with another type has made it; if that one is newer, start it; otherwise %s%s",
			what, h.Size, spec.Size, change, a.keptFromFirst())
	}
	return a.failObject("arena.open_object", h.Object.String(), shmsync.ErrIncompatible, what)
}

// keptFromFirst returns a clause for an error message that says when OnFirst runs, and which
// processes prevent that now. It returns "" while OnFirst is running.
func (a *Arena) keptFromFirst() string {
	if w := a.epochWord(); w.phase() == epochClaimed && w.claimant() == a.self {
		return ""
	}
	text := "; OnFirst runs only while no other process is in"
	switch who, n := a.insiders(); n {
	case 0:
		return text
	case 1:
		return fmt.Sprintf("%s, and %s is in: end it and start again", text, who)
	default:
		return fmt.Sprintf("%s, and %s are in: end them and start again", text, who)
	}
}

// insiders returns the other participants that are in the arena, as a list for an error message,
// and their number.
func (a *Arena) insiders() (who string, n int) {
	var in []ParticipantID
	for i := 1; i <= a.geo.slots; i++ {
		w := a.slotState(i)
		present := w.phase() == phaseLive || w.phase() == phaseLeaving
		if i != a.mySlot && present && a.u32(a.slot(i)+slotAdmission).Load() == admissionIn && !a.surveyDead(i, w) {
			in = append(in, participantIn(i, w))
		}
	}
	return a.called(in), len(in)
}

// called returns a list of participants by label and pid, for an error message. If there are too
// many, the list ends with the number of those left out.
func (a *Arena) called(who []ParticipantID) string {
	text := ""
	for k, n := range who {
		if len(text) >= 200 {
			return fmt.Sprintf("%s and %d more", text, len(who)-k)
		}
		if text != "" {
			text += ", "
		}
		if p, ok := a.participant(n.Slot()); ok && p.Name() == n {
			text += p.Identity.String()
		} else {
			text += "participant " + n.String()
		}
	}
	return text
}

// openIn returns a clause that says which participants have an object open.
func (a *Arena) openIn(who []ParticipantID) string {
	if len(who) == 1 {
		return a.called(who) + " has it open"
	}
	return a.called(who) + " have it open"
}
