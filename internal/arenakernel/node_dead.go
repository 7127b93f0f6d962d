package arenakernel

import (
	"sync"
	"time"

	"github.com/shmsync/shmsync"
)

// deadNodes lists, for each object, the nodes of dead participants that may be waits in recorded queues. A recorded
// queue is a queue of waits that changes without a lock. To make the list, this process reads all nodes of the arena,
// so it makes the list only once after a death. The list contains all nodes of the participants that were dead when
// it was made, because a dead participant claims no node. But a node of the list may have been freed since then, and
// may belong to another participant.
type deadNodes struct {
	mu      sync.Mutex
	slots   []slotSeen          // guarded by: mu; the state of each slot when the list was made
	leaving bool                // guarded by: mu; the list has the nodes of this participant, too
	checked int64               // guarded by: mu; when slots was last compared, CLOCK_MONOTONIC ns
	of      map[Offset][]Offset // guarded by: mu
}

// slotSeen identifies a participant and its state. In another window of generations, the same state word
// may stand for another participant.
type slotSeen struct {
	state  slotWord
	window uint64
}

func (a *Arena) slotSeen(i int) slotSeen {
	_, window := a.windowOf(i)
	return slotSeen{a.slotState(i), window}
}

// NodesOfDead returns the wait nodes of an object that belonged to dead participants. The caller reaps the
// participant with the ID dead, or leaves and passes its own ID. The caller has to check each node: see [deadNodes].
func (a *Arena) NodesOfDead(object Offset, dead ParticipantID) []Offset {
	l := &a.deadNodes
	l.mu.Lock()
	defer l.mu.Unlock()
	switch i := dead.Slot(); {
	case dead == a.self:
		if !l.leaving {
			a.listDeadNodes(true)
		}
	case i >= len(l.slots) || l.slots[i] != a.slotSeen(i):
		a.listDeadNodes(false)
	}
	return l.of[object]
}

// NodesOfAllDead returns the nodes of an object that belonged to dead participants. The result is complete for all
// participants that were marked dead more than age ago. If age is not 0, NodesOfAllDead first marks the participants
// whose death only the kernel has marked, and includes their nodes: all processes that watch these participants may
// be stopped. The caller has to check each node: see [deadNodes].
func (a *Arena) NodesOfAllDead(object Offset, age time.Duration) []Offset {
	l := &a.deadNodes
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := shmsync.Monotonic(); l.slots == nil || now-l.checked >= int64(age) {
		l.checked = now
		if age != 0 {
			a.markDead()
		}
		if !a.sameSlots(l.slots) {
			a.listDeadNodes(l.leaving)
		}
	}
	return l.of[object]
}

// markDead marks the participants that are dead and not marked yet.
func (a *Arena) markDead() {
	for i := 1; i <= a.geo.slots; i++ {
		if w := a.slotState(i); w.present() {
			a.Dead(participantIn(i, w))
		}
	}
}

func (a *Arena) sameSlots(slots []slotSeen) bool {
	if slots == nil {
		return false
	}
	for i := 1; i <= a.geo.slots; i++ {
		if a.slotSeen(i) != slots[i] {
			return false
		}
	}
	return true
}

func (a *Arena) listDeadNodes(leaving bool) { // guarded by: deadNodes.mu
	l := &a.deadNodes
	if l.slots == nil {
		l.slots = make([]slotSeen, a.geo.slots+1)
	}
	// The states must be read before the nodes. If a participant dies in between, the next
	// comparison of the states fails, and the list is made again.
	for i := 1; i <= a.geo.slots; i++ {
		l.slots[i] = a.slotSeen(i)
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
