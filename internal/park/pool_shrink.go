package park

import "slices"

const (
	// freeKept is how many free wait nodes a process keeps at least.
	freeKept = 256
	// shrinkTicks is the length of a period of shrink, in periodic checks: five seconds. A free node
	// that no wait has needed in a period goes back to the arena.
	shrinkTicks = 50
	// shrinkMost is how many nodes one periodic check gives back at most. That takes less than a
	// millisecond.
	shrinkMost = 2048
)

// shrink gives wait nodes back to the arena after a crowd of waiters has gone. Other processes can then use these
// nodes, and a visit of all nodes in use becomes shorter. The periodic checker calls shrink at each check.
//
// A free wait node is idle, its stamp is 0, and it is on no list, so no process refers to it.
func (b *nodePool) shrink() {
	for _, s := range b.superfluous() {
		b.lot.a.ReturnNode(s.Off)
	}
}

// superfluous takes from the pool the nodes that shrink gives back now. They are the nodes that have been free for the
// longest time.
func (b *nodePool) superfluous() []*WaitNode {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ticks++; b.ticks >= shrinkTicks {
		b.ticks, b.surplus, b.fewest = 0, b.fewest-freeKept, len(b.free)
	}
	n := min(b.surplus, shrinkMost, len(b.free)-freeKept)
	if n <= 0 {
		return nil
	}
	b.surplus -= n
	old := slices.Clone(b.free[:n])
	b.free = slices.Delete(b.free, 0, n)
	b.fewest -= n
	for _, s := range old {
		delete(b.of, s.Off)
	}
	return old
}

// shrinks reports whether the pool has more free nodes than it keeps, so that the periodic checker
// goes on until they are given back.
func (b *nodePool) shrinks() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.free) > freeKept
}
