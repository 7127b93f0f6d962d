package prims

import (
	"sync"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// linkUnit is the size of a wait node. Words that name a node contain its offset divided by linkUnit.
const linkUnit = 64

// wait is a wait in a queue, as seen through its wait node.
type wait struct {
	off arenakernel.Offset
	*arenakernel.Node
}

// queued reports whether the owner of a node on a queue still waits.
func queued(n arenakernel.NodeWord) bool {
	switch n.State() {
	case arenakernel.NodeQueued, arenakernel.NodeAsleep, arenakernel.NodeParked:
		return true
	}
	return false
}

// wakes is a list of waits that have ended and whose owners have to be woken. The wakes take place after the private
// lock is released. Unless its node was parked, an owner may go on before it is woken, and use the node for another
// wait. Then the wake reaches the thread of that other wait, which reads the node and sleeps again.
type wakes struct {
	n    int
	few  [4]wakeUp
	more []wakeUp
}

type wakeUp struct {
	wait
	state arenakernel.NodeState     // the state of the node before it was resolved
	owner arenakernel.ParticipantID // the owner of the node before it was resolved
}

var wakesPool = sync.Pool{New: func() any { return new(wakes) }}

func takeWakes() *wakes { return wakesPool.Get().(*wakes) }

func (b *wakes) add(w wait, s arenakernel.NodeState, owner arenakernel.ParticipantID) {
	if s == arenakernel.NodeQueued {
		return // its owner is awake
	}
	if b.n < len(b.few) {
		b.few[b.n] = wakeUp{w, s, owner}
		b.n++
		return
	}
	b.more = append(b.more, wakeUp{w, s, owner})
}
