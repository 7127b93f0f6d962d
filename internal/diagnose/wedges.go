package diagnose

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// A wedge is a wait that has lasted long although all processes that are involved are alive. The arena cannot
// distinguish a wedge from slow work. So a wait counts as a wedge when it is as old as one of these variables says.
// Tests change them.
var (
	LongLock = 10 * time.Second // a wait for a lock, or for a function that another process runs
	LongWork = time.Minute      // a wait for work: permits, parties, room in a queue
)

// limits returns the ages from which a wait counts as a wedge. If the user has chosen an age, it applies to both
// kinds of waits.
func (s *Snapshot) limits() (lock, work time.Duration) {
	if s.opts.Older > 0 {
		return s.opts.Older, s.opts.Older
	}
	return LongLock, LongWork
}

// OldWaits returns the waits that are at least as old as the user asked for. If the user gave no age, it returns all
// waits.
func (s *Snapshot) OldWaits() []Wait {
	return slices.DeleteFunc(slices.Clone(s.Waits), func(w Wait) bool { return !s.isOld(w.AgeNs) })
}

// OldHolds returns the holds that are as old as the user asked for. It also returns the holds for which another process
// has waited that long.
func (s *Snapshot) OldHolds() []Hold {
	waited := map[int]bool{}
	for _, w := range s.Waits {
		for _, h := range w.OnHolds {
			waited[h] = waited[h] || s.isOld(w.AgeNs)
		}
	}
	var old []Hold
	for i, h := range s.Holds {
		if s.isOld(h.AgeNs) || waited[i] {
			old = append(old, h)
		}
	}
	return old
}

func (s *Snapshot) isOld(ns *int64) bool {
	return s.opts.Older <= 0 || ns != nil && time.Duration(*ns) >= s.opts.Older
}

// wedge has everything that determines the text of a finding about a long wait for a certain object. If several waits
// have the same wedge, only the first of them makes a finding. So the findings stay few even if a peer has written very
// many waits.
type wedge struct {
	work    string // what the wait is for; empty if it is for a hold
	stopped bool   // the processes from which the missing change has to come are stopped
	hold    int    // the hold that keeps the wait waiting
	self    bool   // the process waits for a hold of its own
}

// wedgeFindings returns a finding for each wait for the object that has lasted too long. It returns none if the object
// has a finding of another kind, because that is the cause of the long waits. The parameter waiters is the result of
// the method of that name.
func (s *Snapshot) wedgeFindings(o *Object, waiters string) (all []Finding) {
	lock, work := s.limits()
	made, seen := map[wedge]bool{}, map[string]bool{}
	stopped := sync.OnceValue(func() bool { return s.allStopped(o) })
	for _, i := range o.Waits {
		w := &s.Waits[i]
		if w.AgeNs == nil || s.IsGone(w.Owner) {
			continue
		}
		age := time.Duration(*w.AgeNs)
		cause := wedge{work: w.For}
		var find func() Finding
		switch {
		case w.For == "permits" && age >= work:
			find = func() Finding { return s.exhausted(o, waiters) }
		case w.For == "zero" || w.For == "phase":
			if age >= work || age >= lock && stopped() {
				find = func() Finding { return s.missingParties(o, w, waiters) }
			}
		case w.For == "room" && (age >= work || stopped()):
			find = func() Finding { return s.fullQueue(o, waiters) }
		case len(w.OnHolds) > 0 && !w.Any && age >= lock:
			cause = s.holdBefore(w)
			find = func() Finding { return s.longHold(o, cause, waiters) }
		case len(w.OnHolds) == 0 && age >= lock && stopped():
			cause.stopped = true
			find = func() Finding { return s.missingParties(o, w, waiters) }
		}
		if find == nil || made[cause] {
			continue
		}
		made[cause] = true
		f := find()
		if seen[key(f)+f.Text] {
			continue
		}
		seen[key(f)+f.Text] = true
		f.Trouble = true
		f.Objects = []string{o.Name}
		all = append(all, f)
	}
	return all
}

// holdBefore returns the hold that keeps w waiting. If several holds do, it chooses the first one of another process. If
// there is none, it chooses one of the waiting process.
func (s *Snapshot) holdBefore(w *Wait) wedge {
	for _, i := range w.OnHolds {
		if s.Holds[i].Owner != w.Owner {
			return wedge{hold: i}
		}
	}
	return wedge{hold: w.OnHolds[0], self: true}
}

// waitsOf has some of the waits of a participant: the first two for different objects, and the last two for different
// objects whose ages are known.
type waitsOf struct{ first, second, lastDated, beforeDated *Wait }

// behind returns a wait of a participant for another object than o, or nil. If the ages of such waits are known, it
// returns the last of those.
func (s *Snapshot) behind(name string, o *Object) *Wait {
	if s.waitsOf == nil {
		s.waitsOf = map[string]*waitsOf{}
		for i := range s.Waits {
			w := &s.Waits[i]
			of := s.waitsOf[w.Owner]
			if of == nil {
				of = &waitsOf{}
				s.waitsOf[w.Owner] = of
			}
			switch {
			case of.first == nil:
				of.first = w
			case of.second == nil && w.Object != of.first.Object:
				of.second = w
			}
			if w.AgeNs != nil {
				if of.lastDated != nil && w.Object != of.lastDated.Object {
					of.beforeDated = of.lastDated
				}
				of.lastDated = w
			}
		}
	}
	if of := s.waitsOf[name]; of != nil {
		for _, w := range []*Wait{of.lastDated, of.beforeDated, of.first, of.second} {
			if w != nil && w.Object != o.Name {
				return w
			}
		}
	}
	return nil
}

// longHold returns a finding about the hold of an object that has kept a wait waiting for too long.
func (s *Snapshot) longHold(o *Object, cause wedge, waiters string) Finding {
	h := &s.Holds[cause.hold]
	f := Finding{Participants: []string{h.Owner}}
	hold := fmt.Sprintf("%s %s", s.Title(h.Owner), s.heldText(o, h))
	if cause.self {
		f.Kind = SelfWait
		f.Text = fmt.Sprintf("%s, and a goroutine of the same process waits for it%s; a goroutine that locks it twice waits for itself", hold, waiters)
		f.Advice = "if it is stuck, end it; a death passes the hold on by the policy of the lock"
		f.end(s, h.Owner)
		return f
	}
	f.Advice = "if it is stuck, end it; a death passes the hold on by the policy of the lock"
	behind := s.behind(h.Owner, o)
	switch {
	case behind != nil:
		f.Kind = LongHold
		f.Text = fmt.Sprintf("%s, and itself waits for %s of %s", hold, Wants(behind), behind.Object)
		if behind.AgeNs != nil {
			f.Text += ", for " + Age(behind.AgeNs)
		}
		f.Text += waiters
		f.Advice = "see why that does not come"
		f.Command = s.Command("show", &s.Objects[behind.ObjectIndex])
		return f
	case s.opts.Dump != nil:
		f.Kind = LongHold
		f.Text = fmt.Sprintf("%s%s; a dump does not say whether it runs", hold, waiters)
		f.Advice = "look at what it does, if it is still there"
	case !s.isSeen(h.Owner):
		f.Kind = LongHold
		f.Text = fmt.Sprintf("%s%s; its process cannot be seen from here, so it may run, sleep or be stopped", hold, waiters)
		f.Advice = "run shmctl where /proc shows that process, such as in its container, or on the host as root"
	case s.runs(h.Owner):
		f.Kind = LongHold
		f.Text = fmt.Sprintf("%s and runs%s", hold, waiters)
	default:
		f.Kind = LeakedHold
		f.Text = fmt.Sprintf("%s, sleeps, and waits for nothing in this arena%s", hold, waiters)
		if slices.Contains([]string{arenakernel.HoldExclusive, arenakernel.HoldShared, arenakernel.HoldUpgradable}, h.Mode) {
			f.Text += "; it may have forgotten to unlock"
		}
	}
	f.end(s, h.Owner)
	return f
}

// heldTexts has a phrase for each mode of a hold. The name of the object follows "of" or "to".
var heldTexts = map[string]string{
	arenakernel.HoldExclusive:  "holds %s",
	arenakernel.HoldShared:     "holds %s for reading",
	arenakernel.HoldUpgradable: "holds %s upgradable",
	arenakernel.HoldClosing:    "keeps new readers out of %s",
	arenakernel.HoldRecovering: "recovers %s",
	arenakernel.HoldReserved:   "is the next to get %s",
	arenakernel.HoldPermits:    "has permits of %s",
	arenakernel.HoldOwes:       "owes work to %s",
	arenakernel.HoldParty:      "is a party of %s",
	arenakernel.HoldRunner:     "runs the function of %s",
	arenakernel.HoldProducer:   "is the producer of %s",
	arenakernel.HoldLease:      "has an item of %s on lease",
	arenakernel.HoldClaim:      "has a claim of %s",
	arenakernel.HoldExecutor:   "examines %s",
}

// heldText returns a phrase that says what a participant holds of an object.
func (s *Snapshot) heldText(o *Object, h *Hold) string {
	object := o.Type + " " + o.Name
	if h.Key != nil {
		object += fmt.Sprintf(" (%d)", *h.Key)
	}
	return fmt.Sprintf(cmp.Or(heldTexts[h.Mode], "has "+strings.ReplaceAll(h.Mode, "%", "")+" of %s"), object)
}

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
		holders = "" // only a count or an arrival can be claimed
	}
	f.Participants = none(most)
	f.Text = fmt.Sprintf("%s %s waits for what does not come (%s)%s%s%s", o.Type, o.Name, o.State, holders, s.others(o), waiters)
	f.Advice = "see which of them should come; a process that left without it has to be started again"
	f.Command = s.Command("show", o)
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
	f.Text = fmt.Sprintf("%s %s is full (%s), and no process takes items%s%s", o.Type, o.Name, o.State, s.others(o), waiters)
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

// allStopped reports whether no process can take items from a queue. This is so if each process that has the queue open
// is stopped, apart from those that wait for the queue.
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

// others names the participants that have the object open and do not wait for it.
func (s *Snapshot) others(o *Object) string {
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
		return "; no process but those that wait has it open"
	case len(names) > 5:
		names = append(names[:5], fmt.Sprintf("%d more", len(names)-5))
	}
	return "; open in " + strings.Join(names, ", ")
}

// isSeen reports whether /proc shows the process of a participant.
func (s *Snapshot) isSeen(name string) bool {
	i, ok := s.who[name]
	return ok && s.Participants[i].HostPID != 0
}

// runs reports whether the process of a participant is busy. This is so if one of its threads runs, waits for a CPU, or
// waits for a disk in the kernel.
func (s *Snapshot) runs(name string) bool {
	if runs, known := s.running[name]; known {
		return runs
	}
	i, ok := s.who[name]
	if !ok || s.Participants[i].HostPID == 0 {
		return false
	}
	stats, _ := filepath.Glob("/proc/" + strconv.Itoa(s.Participants[i].HostPID) + "/task/[0-9]*/stat")
	runs := slices.ContainsFunc(stats, func(path string) bool {
		b, err := os.ReadFile(path)
		at := strings.LastIndex(string(b), ") ")
		return err == nil && at >= 0 && at+2 < len(b) && (b[at+2] == 'R' || b[at+2] == 'D')
	})
	s.running[name] = runs
	return runs
}
