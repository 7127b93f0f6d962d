package prims

import (
	"sync/atomic"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var _ = crashpoint.Register("multilock.unlock.unlinked")

// keyEntry is where a key that is not free is kept: an entry of its bucket, or a
// node. The zero value is no entry.
type keyEntry struct {
	key   *atomic.Uint64
	word  *atomic.Uint64 // the hold
	queue *atomic.Uint64
	off   arena.Offset // of the node, or 0
	node  *arena.Node
}

func (e keyEntry) hold() keyHold     { return keyHold(e.word.Load()) }
func (e keyEntry) set(h keyHold)     { put(e.word, uint64(h)) }
func (e keyEntry) waitedFor() bool   { return e.queue.Load() != 0 }
func (e keyEntry) there() bool       { return e.word != nil }
func (e keyEntry) is(h keyHold) bool { return e.there() && e.hold() == h }

func inlineEntry(s *multiLockEntry) keyEntry {
	return keyEntry{key: &s.key, word: &s.hold, queue: &s.queue}
}

func nodeEntry(off arena.Offset, n *arena.Node) keyEntry {
	return keyEntry{key: n.Wanted(), word: n.Stamp(), queue: n.Extra(), off: off, node: n}
}

// seek gives the entry of a key among those in the bucket itself, and one that is
// in no use, with the latch held; nil for none.
func (b *multiLockBucket) seek(key uint64) (s, free *multiLockEntry) {
	for i := range b.entries {
		e := &b.entries[i]
		if e.hold.Load() == 0 {
			if free == nil {
				free = e
			}
		} else if e.key.Load() == key {
			return e, nil
		}
	}
	return nil, free
}

// vacant gives an entry that is in no use for a key that has none, with the latch
// held, or nil. It is seek for those who want nothing else.
func (b *multiLockBucket) vacant(key uint64) (free *multiLockEntry) {
	for i := range b.entries {
		e := &b.entries[i]
		if e.hold.Load() == 0 {
			if free == nil {
				free = e
			}
		} else if e.key.Load() == key {
			return nil
		}
	}
	if b.spilled.Load() != 0 {
		return nil
	}
	return free
}

// find gives the entry of a key, with the latch held, or the zero keyEntry.
func (k *multiBucket) find(key uint64) keyEntry {
	if s, _ := k.words.seek(key); s != nil {
		return inlineEntry(s)
	}
	if k.words.spilled.Load() != 0 {
		return k.findSpilled(key)
	}
	return keyEntry{}
}

func (k *multiBucket) findSpilled(key uint64) (found keyEntry) {
	k.eachSpilled(func(e keyEntry) bool {
		if e.key.Load() == key {
			found = e
		}
		return !found.there()
	})
	return found
}

// eachSpilled calls f for the entries that are nodes, until it returns false. f may
// take the entry off. The nodes are in the order of their offsets, so that the walk
// ends whatever the links are.
func (k *multiBucket) eachSpilled(f func(e keyEntry) bool) {
	for off, before := links(k.words.spilled.Load()).next(), arena.Offset(0); off != 0; {
		n, err := k.of.a.NodeAt(off)
		if err != nil || off <= before || !k.isEntry(n) {
			k.mon.broken.Store(true)
			return
		}
		before = off
		next := links(n.Next().Load()).next()
		if !f(nodeEntry(off, n)) {
			return
		}
		off = next
	}
}

// eachEntry calls f for the entries in use.
func (k *multiBucket) eachEntry(f func(e keyEntry)) {
	for i := range k.words.entries {
		if s := &k.words.entries[i]; s.hold.Load() != 0 {
			f(inlineEntry(s))
		}
	}
	k.eachSpilled(func(e keyEntry) bool { f(e); return true })
}

// isEntry reports whether a node stands for a key of this bucket. While the latch
// is held, such a node stays one; others may change under the look, which is why it
// is taken twice.
func (k *multiBucket) isEntry(n *arena.Node) bool {
	w := n.Load()
	return w.State() == arena.NodeIdle && k.belongs(n) && n.Load() == w
}

// isWait reports whether a node is a wait in this bucket; see isEntry.
func (k *multiBucket) isWait(n *arena.Node) bool {
	w := n.Load()
	return w.State() != arena.NodeIdle && k.belongs(n) && n.Load().Generation() == w.Generation()
}

func (k *multiBucket) belongs(n *arena.Node) bool {
	return n.Object() == k.of.object.Offset && k.of.index(n.Wanted().Load()) == k.number && n.Stamp().Load() != 0
}

// spill makes an entry of a node that this process has claimed.
func (k *multiBucket) spill(off arena.Offset, n *arena.Node, key uint64, h keyHold) keyEntry {
	n.SetObject(k.of.object.Offset)
	e := nodeEntry(off, n)
	e.key.Store(key)
	e.queue.Store(0)
	// From here on the node goes back with the key, not with this process.
	e.set(h)
	crashpoint.Hit("multilock.lock.spilled")
	k.link(off, n)
	return e
}

// link puts a node that is an entry among the spilled.
func (k *multiBucket) link(off arena.Offset, n *arena.Node) {
	before := k.spilledBefore(off)
	put(n.Next(), uint64(makeLinks(links(before.Load()).next(), 0)))
	put(before, uint64(makeLinks(off, 0)))
}

// spilledBefore is the link that leads, or would lead, to the node at off. The head
// is a link, too.
func (k *multiBucket) spilledBefore(off arena.Offset) *atomic.Uint64 {
	before := &k.words.spilled
	k.eachSpilled(func(e keyEntry) bool {
		if e.off >= off {
			return false
		}
		before = e.node.Next()
		return true
	})
	return before
}

// free makes an entry one in no use, for a key that nobody has or waits for.
func (k *multiBucket) free(e keyEntry) {
	if e.node == nil {
		e.set(0)
		return
	}
	if h := e.hold(); h.owner().kind() != kindReserved {
		e.set(h.passing())
	}
	before := k.spilledBefore(e.off)
	if links(before.Load()).next() == e.off {
		put(before, uint64(makeLinks(links(e.node.Next().Load()).next(), 0)))
	}
	crashpoint.Hit("multilock.unlock.unlinked")
	// Whoever claimed the node may be dead. It keeps its stamp until it is free, so
	// that nobody else gives it back.
	k.of.a.BuryNode(e.off, e.node.Owner())
}

// clear makes the list of spilled entries anew, and empties the queues.
func (k *multiBucket) clear() {
	k.words.spilled.Store(0)
	for i := range k.words.entries {
		put(&k.words.entries[i].queue, 0)
	}
	k.of.a.EachNode(k.of.object.Offset, func(off arena.Offset, n *arena.Node) {
		if k.isEntry(n) {
			put(n.Extra(), 0)
			k.link(off, n)
		}
	})
}

// withQueue has f work on the queue of an entry.
func (k *multiBucket) withQueue(e keyEntry, f func(q *fifo)) {
	var ends listWords
	l := links(e.queue.Load())
	ends.first.Store(uint64(l.next()))
	ends.last.Store(uint64(l.prev()))
	f(&fifo{k.mon, &ends})
	put(e.queue, uint64(makeLinks(arena.Offset(ends.first.Load()), arena.Offset(ends.last.Load()))))
}
