package arena

import "fmt"

// NodeWord is the futex word of a wait node: a state and a generation, so that
// one CAS decides what becomes of one wait and cannot be mistaken for another's.
//
//	bits 0..2   state
//	bits 3..31  generation: how often the node has been given back
//
//	state    meaning                                          left by
//	free     in no use; nobody waits                          freeNode, ReleaseHubNode
//	idle     its owner has it and does not wait               claimNode, HubNode, the owner's hub
//	waiting  its owner waits                                  the owner
//	ready    woken, and the owner has not seen it yet         a releaser, by CAS from waiting
//	4..7     for the primitives that keep their own nodes
//
// Generation changes with every step to free, so that a releaser that read the
// word before cannot wake the next wait of somebody else. It wraps.
//
//	crash: nodes of the dead are given back by freeNodesOf; a ready one that is
//	not on its owner's stack stays ready without an owner, since a releaser may
//	still be about to push it, and goes with its object
type NodeWord uint32

// NodeState is the state of a wait node.
type NodeState uint32

// The states of a wait node. Those from NodeOther on are for the primitives that
// keep lists of their own.
const (
	NodeFree NodeState = iota
	NodeIdle
	NodeWaiting
	NodeReady
	NodeOther
)

const (
	nodeStateMask  = 7
	generationUnit = 8
)

// State is the node's state.
func (w NodeWord) State() NodeState { return NodeState(w & nodeStateMask) }

// Generation is how often the node had been given back, modulo 2^29.
func (w NodeWord) Generation() uint32 { return uint32(w) / generationUnit }

// With is the word in another state.
func (w NodeWord) With(s NodeState) NodeWord {
	return w&^nodeStateMask | NodeWord(s)&nodeStateMask
}

// Freed is the word after the node has been given back.
func (w NodeWord) Freed() NodeWord { return (w + generationUnit).With(NodeFree) }

// String renders the word for messages.
func (w NodeWord) String() string {
	s := fmt.Sprintf("state %d", w.State())
	if w.State() < NodeOther {
		s = [...]string{"free", "idle", "waiting", "ready"}[w.State()]
	}
	return fmt.Sprintf("%s.%d", s, w.Generation())
}
