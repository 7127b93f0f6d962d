//go:build linux

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// edges says which process waits for which: waits whose holds are known, and whose owners
// are not the same. A process that waits for a hold of another of its goroutines is no sign
// of anything.
func (s *snapshot) edges() (all []edge) {
	seen := map[edge]bool{}
	for _, w := range s.waits {
		for _, h := range w.on {
			e := edge{From: w.Owner, To: s.holds[h].Owner, Object: w.Object, For: w.For}
			if e.From != e.To && !seen[e] {
				seen[e] = true
				all = append(all, e)
			}
		}
	}
	return all
}

// stuck gives the participants none of whose waits can end as long as those in the set
// themselves give nothing up. It begins with all, and takes out, again and again, the
// participants that wait for nothing, or for something that a participant outside can end.
func (s *snapshot) stuck() map[string]bool {
	waiting := map[string][]*wait{}
	for i := range s.waits {
		w := &s.waits[i]
		waiting[w.Owner] = append(waiting[w.Owner], w)
	}
	set := map[string]bool{}
	for name := range waiting {
		if i, ok := s.who[name]; ok && s.participants[i].Life == arenakernel.LifeAlive {
			set[name] = true
		}
	}
	for again := true; again; {
		again = false
		for name := range set {
			if !slices.ContainsFunc(waiting[name], func(w *wait) bool { return s.hopeless(w, set) }) {
				delete(set, name)
				again = true
			}
		}
	}
	return set
}

// hopeless reports whether a wait cannot end unless a participant of the set goes on.
func (s *snapshot) hopeless(w *wait, set map[string]bool) bool {
	others, in := 0, 0
	for _, h := range w.on {
		if owner := s.holds[h].Owner; owner != w.Owner {
			others++
			if set[owner] {
				in++
			}
		} else if w.Any {
			return false // enough of it may be this process's own
		}
	}
	if w.Any {
		return others > 0 && in == others
	}
	return in > 0
}

// deadlocks are the cycles of stuck participants: sets in which each waits, in the end, for
// each other.
func (s *snapshot) deadlocks() (all [][]edge) {
	set := s.stuck()
	next := map[string][]edge{}
	for i := range s.waits {
		w := &s.waits[i]
		if !set[w.Owner] || !s.hopeless(w, set) {
			continue
		}
		for _, h := range w.on {
			to := s.holds[h].Owner
			e := edge{From: w.Owner, To: to, Object: w.Object, For: w.For}
			if to != w.Owner && set[to] && !slices.Contains(next[w.Owner], e) {
				next[w.Owner] = append(next[w.Owner], e)
			}
		}
	}
	for _, members := range components(next) {
		if len(members) > 1 {
			all = append(all, cycle(next, members))
		}
	}
	return all
}

// components gives the strongly connected components, after Tarjan, without recursion:
// a chain of waits may be long.
func components(next map[string][]edge) (all []map[string]bool) {
	index, low, on := map[string]int{}, map[string]int{}, map[string]bool{}
	var stack []string
	type frame struct {
		name string
		edge int
	}
	names := make([]string, 0, len(next))
	for name := range next {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, root := range names {
		if index[root] != 0 {
			continue
		}
		work := []frame{{name: root}}
		for len(work) > 0 {
			f := &work[len(work)-1]
			if f.edge == 0 {
				index[f.name] = len(index) + 1
				low[f.name] = index[f.name]
				stack = append(stack, f.name)
				on[f.name] = true
			}
			if f.edge < len(next[f.name]) {
				to := next[f.name][f.edge].To
				f.edge++
				if index[to] == 0 {
					work = append(work, frame{name: to})
				} else if on[to] {
					low[f.name] = min(low[f.name], index[to])
				}
				continue
			}
			if low[f.name] == index[f.name] {
				members := map[string]bool{}
				for {
					top := stack[len(stack)-1]
					stack = stack[:len(stack)-1]
					on[top] = false
					members[top] = true
					if top == f.name {
						break
					}
				}
				all = append(all, members)
			}
			done := f.name
			work = work[:len(work)-1]
			if len(work) > 0 {
				above := work[len(work)-1].name
				low[above] = min(low[above], low[done])
			}
		}
	}
	return all
}

// cycle is a shortest cycle through the first of the members, by slot.
func cycle(next map[string][]edge, members map[string]bool) []edge {
	first := ""
	for m := range members {
		if first == "" || slotOf(m) < slotOf(first) {
			first = m
		}
	}
	came := map[string]edge{}
	for queue := []string{first}; len(queue) > 0; queue = queue[1:] {
		for _, e := range next[queue[0]] {
			if !members[e.To] {
				continue
			}
			if _, seen := came[e.To]; seen {
				continue
			}
			came[e.To] = e
			if e.To == first {
				var c []edge
				for at := first; len(c) == 0 || at != first; at = came[at].From {
					c = append(c, came[at])
				}
				slices.Reverse(c)
				return c
			}
			queue = append(queue, e.To)
		}
	}
	return nil
}

func slotOf(name string) (slot int) {
	fmt.Sscanf(name, "%d.", &slot)
	return slot
}

// title is how a participant is called in a sentence.
func (s *snapshot) title(name string) string {
	if i, ok := s.who[name]; ok {
		p := &s.participants[i]
		return fmt.Sprintf("%s (pid %d, %s)", p.Label, p.PID, name)
	}
	for _, g := range s.gone {
		if g.Name == name {
			return fmt.Sprintf("%s (pid %d, %s, gone)", g.Label, g.PID, name)
		}
	}
	return name
}

// findings lists the findings of a snapshot, the worst first.
func (s *snapshot) findings() (all []finding) {
	if s.damage != nil {
		all = append(all, finding{Kind: findCorrupt, Trouble: true, Text: errorText(s.damage),
			Advice: "dump the arena, and create a new one"})
	}
	for _, c := range s.deadlocks() {
		all = append(all, s.deadlockFinding(c))
	}
	for i := range s.objects {
		all = append(all, s.objectFindings(i)...)
	}
	slices.SortStableFunc(all, func(a, b finding) int { return cmp.Compare(rank(a), rank(b)) })
	return all
}

func rank(f finding) int {
	if f.Trouble {
		return slices.Index([]string{findCorrupt, findDeadlock, findDeadHolder, findStoppedHolder, findOwnerDead, findNotRecoverable}, f.Kind)
	}
	return 100
}

func (s *snapshot) deadlockFinding(c []edge) finding {
	f := finding{Kind: findDeadlock, Trouble: true}
	var steps []string
	for _, e := range c {
		steps = append(steps, fmt.Sprintf("%s waits for %s of %s, which %s has", s.title(e.From), e.For, e.Object, s.title(e.To)))
		f.Participants = append(f.Participants, e.From)
		f.Objects = append(f.Objects, e.Object)
		f.proof = append(f.proof, s.prove(e))
	}
	f.Text = fmt.Sprintf("%d processes wait for each other: %s", len(c), strings.Join(steps, "; "))
	f.Advice = "end one of them; the hold of the dead passes by the policy of its lock"
	return f
}

func (s *snapshot) objectFindings(i int) (all []finding) {
	o := &s.objects[i]
	waiters := s.waiters(o)
	died := func() string {
		if o.Died == "" {
			return ""
		}
		return ": " + s.title(o.Died) + " died" + s.diedWhen(o.Died)
	}
	switch {
	case strings.Contains(o.Error, shmsync.ErrCorrupt.Error()) || o.State == "unreadable":
		all = append(all, finding{Kind: findCorrupt, Trouble: true, Objects: []string{o.Name},
			Text: fmt.Sprintf("%s %s has impossible bytes: %s", o.Type, o.Name, o.State), Advice: "shmctl check tells more"})
	case o.Error == shmsync.ErrNotRecoverable.Error():
		all = append(all, finding{Kind: findNotRecoverable, Trouble: true, Objects: []string{o.Name}, Participants: none(o.Died),
			Text:   fmt.Sprintf("%s %s is not recoverable: a repair failed%s", o.Type, o.Name, died()),
			Advice: "see to the data, then: " + s.recoverCommand(o)})
	case o.Error != "":
		text := fmt.Sprintf("%s %s is owner-dead%s; policy report, so nobody gets it%s", o.Type, o.Name, died(), waiters)
		advice := "let the application call Recover, or, if the data is sound: " + s.recoverCommand(o)
		if o.Policy == "" {
			text, advice = fmt.Sprintf("%s %s cannot be completed%s%s", o.Type, o.Name, died(), waiters), ""
		}
		all = append(all, finding{Kind: findOwnerDead, Trouble: true, Objects: []string{o.Name}, Participants: none(o.Died), Text: text, Advice: advice})
	}
	told := map[string]bool{}
	for _, h := range o.holds {
		h := &s.holds[h]
		f, ok := s.holderFinding(o, h, waiters)
		if ok && !told[f.Kind+h.Owner] {
			told[f.Kind+h.Owner] = true
			all = append(all, f)
		}
	}
	return all
}

// recoverCommand is the command that makes an object usable again.
func (s *snapshot) recoverCommand(o *object) string {
	command := "shmctl recover "
	if o.Key != nil {
		command += fmt.Sprintf("--key=%d ", *o.Key)
	}
	return command + s.info.Name + " " + o.Name
}

func none(name string) []string {
	if name == "" {
		return nil
	}
	return []string{name}
}

// holderFinding tells of a holder that will not give up what it has by itself.
func (s *snapshot) holderFinding(o *object, h *hold, waiters string) (f finding, ok bool) {
	f = finding{Objects: []string{o.Name}, Participants: []string{h.Owner}, Trouble: true}
	what := "has " + h.Mode + " of"
	if h.Mode == arenakernel.HoldExclusive {
		what = "holds"
	}
	at := o.Type + " " + o.Name
	if h.Key != nil {
		at += fmt.Sprintf(" (%d)", *h.Key)
	}
	i, present := s.who[h.Owner]
	if !present || s.participants[i].Life == arenakernel.LifeDead {
		f.Kind = findDeadHolder
		dead := "is dead"
		if when := s.diedWhen(h.Owner); when != "" {
			dead = "died" + when
		}
		f.Text = fmt.Sprintf("%s %s %s and %s; nobody has reaped it yet%s", s.title(h.Owner), what, at, dead, waiters)
		f.Advice = "any living participant reaps it; if all are stopped, or none is left: shmctl reap " + s.info.Name
		return f, true
	}
	if life := s.participants[i].Life; life == lifeStopped || life == lifeTraced {
		f.Kind = findStoppedHolder
		f.Trouble = waiters != ""
		f.Text = fmt.Sprintf("%s %s %s and is %s%s", s.title(h.Owner), what, at, s.participants[i].Process, waiters)
		f.Advice = fmt.Sprintf("kill -CONT %d", cmp.Or(s.participants[i].HostPID, s.participants[i].PID))
		return f, true
	}
	return f, false
}

// diedWhen says how long ago a participant died, if that is known.
func (s *snapshot) diedWhen(name string) string {
	if i, ok := s.who[name]; ok && s.participants[i].Died != nil {
		return " " + ago(time.Since(*s.participants[i].Died))
	}
	for _, g := range s.gone {
		if g.Name == name && g.Time != nil {
			return " " + ago(time.Since(*g.Time))
		}
	}
	return ""
}

// isGone reports whether the participant of that name is dead, reaped or not.
func (s *snapshot) isGone(name string) bool {
	i, ok := s.who[name]
	return !ok || s.participants[i].Life == arenakernel.LifeDead
}

// waiters says how many of the living wait for an object, and for how long.
func (s *snapshot) waiters(o *object) string {
	n, longest := uint64(0), int64(-1)
	for _, w := range o.waits {
		if s.isGone(s.waits[w].Owner) {
			continue
		}
		n += max(s.waits[w].Goroutines, 1)
		if a := s.waits[w].AgeNs; a != nil {
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
		text += ", for up to " + short(time.Duration(longest))
	}
	return text
}
