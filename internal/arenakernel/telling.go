package arenakernel

// slotTelling is the field of a slot that counts what its participant is in the
// middle of: the end of waits of others, from before it is decided until their owners
// have been told, and the emptying of its own ready stack. While it is 0 the
// participant puts no node on a stack that is resolved, or ready, already.
//
//	writers: the owner
//	readers: a participant that takes back nodes that a death has left behind
//	order:   seq_cst: up before a wait is decided, and down after its node is on
//	         the stack
//	futex:   none
//	crash:   that of the dead does not count; set to 0 by the joiner that takes the slot
//
// A node that was decided about may be put on its owner's stack at any time after that, and
// must not be on two. So a node that is not on a stack can be used again when each
// participant's count has been seen to be 0 since it was decided about.
//
//	granter                         participant that takes the node back
//	telling + 1                     the node is resolved, or ready
//	node: resolved, or ready        telling is 0 of each that is not dead: no granter
//	node on its owner's stack       will put it on a stack any more
//	telling - 1                     it is on no stack

// BeginTell begins what ends a wait of another participant, and EndTell ends it.
func (a *Arena) BeginTell() { a.beginTell() }

// EndTell ends what BeginTell began: all that has been decided has been told.
func (a *Arena) EndTell() { a.endTell() }

// AllTold reports whether every participant that had decided about a node before this call
// has told its owner, or is dead.
func (a *Arena) AllTold() bool { return a.allTold() }

// The methods of core are not exported: a defined type keeps the methods of embedded fields,
// so they would be methods of the type of package arena, too.

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
