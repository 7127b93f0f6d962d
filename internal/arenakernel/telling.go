package arenakernel

// slotTelling is a field of a slot. It counts the threads of the participant that are in a telling
// section. In such a section a thread ends waits of other participants. The section begins before
// the thread decides a wait. It ends after the thread has told the owner of the wait, that is, has
// pushed the node on the owner's ready stack. A thread is also in such a section while it empties
// the participant's own ready stack. While the count is 0, the participant pushes no node that is
// already resolved or ready.
//
//	writers: the owner
//	readers: a participant that frees nodes that a death has left behind
//	order:   seq_cst: incremented before a wait is decided, and decremented after its node
//	         is on the stack
//	futex:   none
//	crash:   the count of a dead participant is ignored; the joiner that takes the slot sets it to 0
//
// After its wait was decided, a node may be pushed on its owner's stack at any later time, and must not
// be on two stacks. A node that is on no stack can be used again when the count of each participant was
// 0 at some moment after the decision.
//
//	granter                               participant that takes the node back
//	increments its count                  finds that the node is resolved or ready
//	makes the node resolved or ready      finds that the count of each living participant is 0
//	pushes the node on its owner's stack  finds that the node is on no stack
//	decrements its count
//
// After the second step on the right, no granter will push the node any more.

// BeginTell begins a section in which the caller ends waits of other participants. The caller also
// tells the owners of these waits in the section. EndTell ends the section.
func (a *Arena) BeginTell() { a.beginTell() }

// EndTell ends the section that BeginTell began. The caller has told the owners of all waits that it
// decided in the section.
func (a *Arena) EndTell() { a.endTell() }

// AllTold is about nodes that were made ready, or whose waits were decided, before this call. It
// reports whether no participant will push such a node on a ready stack any more. Dead participants
// do not count.
func (a *Arena) AllTold() bool { return a.allTold() }

// The methods below do the work of the methods above. They are not exported, because they are
// methods of core, which is embedded in Arena. Package arena defines its type Arena from the Arena
// of this package, so the exported methods of core would be part of the API of package arena.

func (c *core) beginTell() { c.u32(c.slot(c.self.Slot()) + slotTelling).Add(1) }

func (c *core) endTell() {
	// sync(arena.telling): release
	c.u32(c.slot(c.self.Slot()) + slotTelling).Add(^uint32(0))
}

func (c *core) allTold() bool {
	for i := 1; i <= c.geo.slots; i++ {
		// sync(arena.telling): acquire
		if c.u32(c.slot(i)+slotTelling).Load() != 0 && c.current(participantIn(i, c.slotState(i))) {
			return false
		}
	}
	return true
}
