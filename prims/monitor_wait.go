package prims

import (
	"sync"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
)

// wait is a wait in a queue of a monitor, as seen through its wait node.
type wait struct {
	off arenakernel.Offset
	*arenakernel.Node
}

// outcome is the extra word of a node in a queue. It has the class of the wait and, at the end, the
// result.
//
//	bits 0..15   how the wait ended; defined by the primitive
//	bits 16..31  class: what kind of wait it is; defined by the primitive
//	bits 32..63  more about the end, such as the participant that died; before the end, used by the queue:
//	             in the first wait of a queue in strict order a date, see firstDate
//
//	writers: the owner before it joins; then the holder of the queue lock, before it resolves
//	readers: the owner once it is resolved, the holder of the queue lock
//	order:   the node word's
//	futex:   none
//	crash:   as the word says
type outcome uint64

func makeOutcome(class uint16, result, aux uint32) uint64 {
	return uint64(aux)<<32 | uint64(class)<<16 | uint64(result&0xffff)
}

func (f outcome) result() uint32 { return uint32(f & 0xffff) }
func (f outcome) class() uint16  { return uint16(f >> 16) }
func (f outcome) aux() uint32    { return uint32(f >> 32) }

// class is the kind of the wait.
func (w wait) class() uint16 { return outcome(w.Extra().Load()).class() }

// abandoned identifies a wait that its owner has given up. The fields word and stamp are copies of the node's
// words. When another wait uses the node, the node's words differ from these copies.
type abandoned struct {
	wait
	word  arenakernel.NodeWord
	stamp uint64
}

// waitOf returns the present wait of s in the form that cleanUp needs if the owner gives the wait up.
func waitOf(s *park.WaitNode) abandoned {
	return abandoned{wait{s.Off, s.Node}, s.Node.Load().With(arenakernel.NodeLeft), s.Node.Stamp().Load()}
}

// wakes is a list of waits that have ended and whose owners have to be woken. The wakes take place after the queue
// lock is released. A node goes back to the pool of free nodes only after its owner was woken.
type wakes struct {
	n    int
	few  [4]wakeUp
	more []wakeUp
	// counted is the queue whose count includes the waking call, so that Close waits for the call. It is nil if the
	// call is not counted.
	counted *park.Queue
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

// owe makes Close wait until the method wake has woken the owners, because the wakes use the shared words. The
// caller holds the queue lock. Close also waits until this process has released the queue lock, and by then this
// call is counted.
func (m *monitor) owe(b *wakes) {
	if q := m.queueLock.queue; b != nil && b.n > 0 && q != nil {
		q.EnterEnding()
		b.counted = q
	}
}

// wake wakes the owners of the waits in b.
func (m *monitor) wake(b *wakes) {
	if b == nil {
		return
	}
	if b.n > 0 {
		crashpoint.Hit("monitor.leave.before_wake")
		m.tuning().NoteCPU()
		for _, u := range b.few[:b.n] {
			m.wakeOne(u)
		}
		for _, u := range b.more {
			m.wakeOne(u)
		}
		b.n, b.more = 0, b.more[:0]
	}
	if b.counted != nil {
		b.counted.Exit()
		b.counted = nil
	}
	wakesPool.Put(b)
}

func (m *monitor) wakeOne(u wakeUp) {
	m.counts.add(countWake)
	if u.state == arenakernel.NodeParked {
		if q := m.queueLock.queue; q != nil && u.owner == m.a.Self() {
			q.TellOwn(u.off)
		} else {
			m.a.Tell(u.off, u.Node, u.owner)
		}
		m.a.EndTell()
		return
	}
	shmsync.Wake(wordPtr(u.Word()), 1)
}
