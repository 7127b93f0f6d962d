package diagnose

import (
	"fmt"
	"slices"
	"time"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// Edges returns an edge for each wait of one process for another. It omits a wait if the snapshot does not show the
// hold that the wait is for. It also omits a wait for a hold of the same process: another goroutine of the process may
// release the hold, so the wait is no evidence of a deadlock.
func (s *Snapshot) Edges() (all []Edge) {
	seen := map[Edge]bool{}
	for _, w := range s.Waits {
		for _, h := range w.OnHolds {
			e := Edge{From: w.Owner, To: s.Holds[h].Owner, Object: w.Object, For: w.For}
			if e.From != e.To && !seen[e] {
				seen[e] = true
				all = append(all, e)
			}
		}
	}
	return all
}

// stuck returns the largest set of living participants in which each participant has a wait that only participants of
// the set can end. It begins with all living participants that wait. It repeatedly removes the participants without
// such a wait.
func (s *Snapshot) stuck() map[string]bool {
	waiting := map[string][]*Wait{}
	for i := range s.Waits {
		w := &s.Waits[i]
		waiting[w.Owner] = append(waiting[w.Owner], w)
	}
	set := map[string]bool{}
	for name := range waiting {
		if i, ok := s.who[name]; ok && s.Participants[i].Life == arenakernel.LifeAlive {
			set[name] = true
		}
	}
	for again := true; again; {
		again = false
		for name := range set {
			if !slices.ContainsFunc(waiting[name], func(w *Wait) bool { return s.hopeless(w, set) }) {
				delete(set, name)
				again = true
			}
		}
	}
	return set
}

// CycleOfWork is the age from which a wait for work may be part of a deadlock. Often, one goroutine of a process waits
// while another one does work for other processes. So processes may well wait for each other for a short time. Tests
// change CycleOfWork.
var CycleOfWork = time.Second

// hopeless reports whether the wait w can end only if a participant of the set releases something.
func (s *Snapshot) hopeless(w *Wait, set map[string]bool) bool {
	if slices.Contains([]string{"phase", "zero", "result"}, w.For) && (w.AgeNs == nil || time.Duration(*w.AgeNs) < CycleOfWork) {
		return false
	}
	others, in := 0, 0
	for _, h := range w.OnHolds {
		if owner := s.Holds[h].Owner; owner != w.Owner {
			others++
			if set[owner] {
				in++
			}
		} else if w.Any {
			return false // the waiting process has a hold that another of its goroutines may release
		}
	}
	if w.Any {
		return others > 0 && in == others
	}
	return in > 0
}

// deadlocks returns a cycle for each deadlock. A deadlock is a group of stuck participants. Each of them waits for
// every other one, directly or through others.
func (s *Snapshot) deadlocks() (all [][]Edge) {
	set := s.stuck()
	next, seen := map[string][]Edge{}, map[Edge]bool{}
	for i := range s.Waits {
		w := &s.Waits[i]
		if !set[w.Owner] || !s.hopeless(w, set) {
			continue
		}
		for _, h := range w.OnHolds {
			to := s.Holds[h].Owner
			e := Edge{From: w.Owner, To: to, Object: w.Object, For: w.For}
			if to != w.Owner && set[to] && !seen[e] {
				seen[e] = true
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

// components returns the strongly connected components, after Tarjan. It does not recurse,
// because a chain of waits may be long.
func components(next map[string][]Edge) (all []map[string]bool) {
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

// cycle returns a shortest cycle through the member with the lowest slot.
func cycle(next map[string][]Edge, members map[string]bool) []Edge {
	first := ""
	for m := range members {
		if first == "" || SlotOf(m) < SlotOf(first) {
			first = m
		}
	}
	came := map[string]Edge{}
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
				var c []Edge
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

func SlotOf(name string) (slot int) {
	fmt.Sscanf(name, "%d.", &slot)
	return slot
}
