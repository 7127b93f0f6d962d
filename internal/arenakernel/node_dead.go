package arenakernel

import (
	"sync"
	"time"

	"github.com/shmsync/shmsync"
)

// deadNodes lists, for each object, the nodes of dead participants that may be waits in recorded
// queues. A recorded queue is a queue of waits that changes without a lock. This process makes the
// list once after a death, because it has to look at all nodes of the arena for that. A dead
// participant claims no node. So the list stays complete for the participants that were already
// dead when the list was made. A node of the list may have been freed since then, and may belong to
// another participant.
type deadNodes struct {
	mu      sync.Mutex
	states  []slotWord          // guarded by: mu; the state of each slot when the list was made
	leaving bool                // guarded by: mu; the list has the nodes of this participant, too
	checked int64               // guarded by: mu; when states was last compared, CLOCK_MONOTONIC ns
	of      map[Offset][]Offset // guarded by: mu
}

// NodesOfDead returns the wait nodes of an object that belonged to dead participants. The caller
// reaps the participant that the argument named dead names. That may be this participant itself if
// it is leaving. The caller has to check each node: see [deadNodes].
func (a *Arena) NodesOfDead(object Offset, dead ParticipantID) []Offset {
	l := &a.deadNodes
	l.mu.Lock()
	defer l.mu.Unlock()
	switch i := dead.Slot(); {
	case dead == a.self:
		if !l.leaving {
			a.listDeadNodes(true)
		}
	case i >= len(l.states) || l.states[i] != a.slotState(i):
		a.listDeadNodes(false)
	}
	return l.of[object]
}

// NodesOfAllDead returns the nodes of an object that belonged to dead participants. The result is
// complete for all participants that were marked dead more than age ago. The caller has to check each
// node: see [deadNodes].
func (a *Arena) NodesOfAllDead(object Offset, age time.Duration) []Offset {
	l := &a.deadNodes
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := shmsync.Monotonic(); l.states == nil || now-l.checked >= int64(age) {
		l.checked = now
		if !a.sameSlots(l.states) {
			a.listDeadNodes(l.leaving)
		}
	}
	return l.of[object]
}

func (a *Arena) sameSlots(states []slotWord) bool {
	if states == nil {
		return false
	}
	for i := 1; i <= a.geo.slots; i++ {
		if a.slotState(i) != states[i] {
			return false
		}
	}
	return true
}

func (a *Arena) listDeadNodes(leaving bool) { // guarded by: deadNodes.mu
	l := &a.deadNodes
	if l.states == nil {
		l.states = make([]slotWord, a.geo.slots+1)
	}
	// The states must be read before the nodes. If a participant dies in between, the next
	// comparison of the states fails, and the list is made again.
	for i := 1; i <= a.geo.slots; i++ {
		l.states[i] = a.slotState(i)
	}
	l.leaving, l.of = leaving, map[Offset][]Offset{}
	a.eachNode(func(off Offset, n *Node) {
		owner := n.Owner()
		if owner != 0 && n.list.Load() == 0 && n.recorded() && (!a.current(owner) || leaving && owner == a.self) {
			object := n.Object()
			l.of[object] = append(l.of[object], off)
		}
	})
}
