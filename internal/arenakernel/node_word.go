package arenakernel

import "fmt"

// NodeWord is the futex word of a wait node. It consists of a state and a generation. One CAS of
// the word decides one wait. The generation changes before the node is used for another wait, so
// this CAS cannot decide a later wait.
//
//	bits 0..3   state
//	bits 4..31  generation: how many uses of the node are over
//
//	state    meaning                                          left by
//	free     unused                                           freeNode, ReleasePollerNode
//	idle     its owner has it and does not wait               claimNode, PollerNode, the owner's poller
//	waiting  its owner waits                                  the owner
//	ready    woken, and the owner has not seen it yet         a releaser, by CAS from waiting
//	queued   on a queue of an object; its owner is awake, or  the owner; its granter
//	         waits for its turn in its process
//	asleep   on a queue; a thread sleeps on the word          the owner; its granter, which wakes
//	parked   on a queue; a goroutine waits for its poller     the owner; its granter, which tells the poller
//	resolved the wait is over                                 the owner
//	left     its owner has discarded it, and a queue that a   the participant that deletes the object, or the reaper
//	         peer has overwritten may still name it           of the owner: to free
//	9        reserved
//
// The states waiting and ready are for poller nodes. The states after them are for waits in a queue. A
// wait ends by a record. If the record grants or refuses the wait, the participant that carries it out
// moves the word to resolved. If the owner gives up, its record takes the node off the queue, and then the
// owner moves the word to idle.
//
// The generation changes whenever the node becomes free, and whenever the owner of a resolved node keeps the
// node for another wait. So a releaser that has read the word during one wait cannot resolve the next wait. The
// generation wraps around.
//
//	crash: freeNodesOf frees the nodes of a dead participant. Before that, the code of the
//	object's kind takes a node off its queue. If a releaser may still be about to push a
//	poller node on the owner's stack, the node stays in its state, without an owner, until
//	a later death.
type NodeWord uint32

// NodeState is the state of a wait node.
type NodeState uint32

// The states of a wait node.
const (
	NodeFree NodeState = iota
	NodeIdle
	NodeWaiting
	NodeReady
	NodeQueued
	NodeAsleep
	NodeParked
	NodeResolved
	NodeLeft
)

const (
	nodeStateMask  = 15
	generationUnit = 16
)

// State returns the state in the word.
func (w NodeWord) State() NodeState { return NodeState(w & nodeStateMask) }

// Generation returns how many uses of the node are over, modulo 2^28.
func (w NodeWord) Generation() uint32 { return uint32(w) / generationUnit }

// With returns the word with the state s and the same generation.
func (w NodeWord) With(s NodeState) NodeWord {
	return w&^nodeStateMask | NodeWord(s)&nodeStateMask
}

// Freed returns the word after the node has been freed.
func (w NodeWord) Freed() NodeWord { return (w + generationUnit).With(NodeFree) }

// Kept returns the word for the next wait, if the owner keeps the node after a wait is over.
func (w NodeWord) Kept() NodeWord { return (w + generationUnit).With(NodeIdle) }

// String renders the word for messages.
func (w NodeWord) String() string {
	s := fmt.Sprintf("state %d", w.State())
	if w.State() <= NodeLeft {
		s = [...]string{"free", "idle", "waiting", "ready", "queued", "asleep", "parked", "resolved", "left"}[w.State()]
	}
	return fmt.Sprintf("%s.%d", s, w.Generation())
}
