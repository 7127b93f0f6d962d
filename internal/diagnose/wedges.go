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
// distinguish a wedge from slow work. So a wait counts as a wedge when its age reaches the value of one of these
// variables. Tests change the values.
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

// A wedge struct determines the text of a finding about a wait that has lasted too long. If several waits for one
// object have equal structs, only the first of these waits makes a finding. So there are few findings even if a peer
// has written very many waits.
type wedge struct {
	work    string // what the wait is for; empty if it is for a hold
	stopped bool   // every process that could end the wait is stopped
	hold    int    // the hold that keeps the wait waiting
	self    bool   // the process waits for a hold of its own
}

// wedgeFindings returns a finding for each wait for the object that has lasted too long. If the object has a finding
// of another kind, that finding names the cause of the long waits, and wedgeFindings returns none. The parameter
// waiters is what s.waiters(o) returns.
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
		cause, noted := wedge{work: w.For}, false
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
			if cause = s.holdBefore(w); s.waitsForReaders(o, cause) {
				continue // the writer with this hold waits for the readers, and its wait has a finding of its own
			}
			find = func() Finding { return s.longHold(o, cause, waiters) }
		case len(w.OnHolds) == 0 && age >= lock && stopped():
			cause.stopped = true
			find = func() Finding { return s.missingParties(o, w, waiters) }
		case len(w.OnHolds) == 0 && s.opts.Older > 0 && age >= s.opts.Older && w.For != "room" && w.For != "permits":
			// The user asked for old waits. The wait is not marked as trouble, because it may end when work comes.
			noted = true
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
		f.Trouble = !noted
		f.Objects = []string{o.Name}
		all = append(all, f)
	}
	return all
}

// holdBefore returns the hold that keeps w waiting. If there are several, it chooses the first hold of another
// process, or else a hold of the waiting process.
func (s *Snapshot) holdBefore(w *Wait) wedge {
	for _, i := range w.OnHolds {
		if s.Holds[i].Owner != w.Owner {
			return wedge{hold: i}
		}
	}
	return wedge{hold: w.OnHolds[0], self: true}
}

// waitsForReaders reports whether the hold in cause belongs to a writer that itself waits until the readers of o have
// left. If so, this writer is not the cause of the wait.
func (s *Snapshot) waitsForReaders(o *Object, cause wedge) bool {
	h := &s.Holds[cause.hold]
	return h.Mode == arenakernel.HoldClosing && !cause.self && s.waitFor(o, h.Owner) != nil
}

// waitFor returns a wait of a participant for o, or nil.
func (s *Snapshot) waitFor(o *Object, name string) *Wait {
	if s.waitsFor.object != o {
		s.waitsFor.object, s.waitsFor.byOwner = o, map[string]*Wait{} // a map, because there may be very many waits
		for _, i := range o.Waits {
			s.waitsFor.byOwner[s.Waits[i].Owner] = &s.Waits[i]
		}
	}
	return s.waitsFor.byOwner[name]
}

// waitsOf has some waits of one participant. The fields first and second are its first two waits for different objects.
// The field lastDated is its last wait of known age, and beforeDated is the last such wait for another object.
type waitsOf struct{ first, second, lastDated, beforeDated *Wait }

// behind returns a wait of a participant for an object other than o, or nil. It prefers the last such wait whose age
// is known.
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

// longHold returns a finding about a hold of the object o that has kept a wait waiting for too long.
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
	if behind == nil && h.Mode != arenakernel.HoldPermits {
		behind = s.waitFor(o, h.Owner) // for example the wait of a reader that wants to write
	}
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
		if q := s.throttled(h.Owner); q != nil {
			f.Text = fmt.Sprintf("%s and runs, but %s%s", hold, q, waiters)
			f.Advice, f.Command = "raise the quota, or remove it", q.command()
			if os.Geteuid() != 0 {
				f.Advice += "; root may do so"
			}
			return f
		}
		f.Text = fmt.Sprintf("%s and runs%s", hold, waiters)
	default:
		if w := s.waitElsewhere(h.Owner); w != nil {
			f.behindElsewhere(s, o, h.Owner, hold, waiters, w)
			return f
		}
		f.Kind = LeakedHold
		f.Text = fmt.Sprintf("%s, sleeps, and waits for nothing in this arena%s", hold, waiters)
		switch {
		case !s.showsFiles(h.Owner):
			f.Text += "; root can see whether it waits in another arena"
		case slices.Contains([]string{arenakernel.HoldExclusive, arenakernel.HoldShared, arenakernel.HoldUpgradable}, h.Mode):
			f.Text += "; it may have forgotten to unlock"
		}
	}
	f.end(s, h.Owner)
	return f
}

// heldTexts has a phrase for each mode of a hold. The %s stands for the type and the name of the object.
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

// isSeen reports whether /proc shows the process of a participant.
func (s *Snapshot) isSeen(name string) bool {
	i, ok := s.who[name]
	return ok && s.Participants[i].HostPID != 0
}

// Unseen returns how many living participants have processes that /proc does not show.
func (s *Snapshot) Unseen() (n int) {
	for i := range s.Participants {
		if p := &s.Participants[i]; p.HostPID == 0 && !s.IsGone(p.Name) && s.opts.Dump == nil {
			n++
		}
	}
	return n
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
