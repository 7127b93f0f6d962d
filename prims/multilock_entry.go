package prims

import (
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("multilock.unlock.unlinked")
	_ = crashpoint.Register("multilock.claim.claimed")
)

// keyEntry is where a key that is not free is kept: an entry of its bucket, or a
// node. The zero value is no entry.
type keyEntry struct {
	key   *atomic.Uint64
	word  *atomic.Uint64 // the hold
	queue *atomic.Uint64
	off   arenakernel.Offset // of the node, or 0
	node  *arenakernel.Node
}

func (e keyEntry) hold() keyHold     { return keyHold(e.word.Load()) }
func (e keyEntry) set(h keyHold)     { storeWord(e.word, uint64(h)) }
func (e keyEntry) waitedFor() bool   { return e.queue.Load() != 0 }
func (e keyEntry) there() bool       { return e.word != nil }
func (e keyEntry) is(h keyHold) bool { return e.there() && e.hold() == h }

func inlineEntry(s *multiLockEntry) keyEntry {
	return keyEntry{key: &s.key, word: &s.hold, queue: &s.queue}
}

func nodeEntry(off arenakernel.Offset, n *arenakernel.Node) keyEntry {
	return keyEntry{key: n.Wanted(), word: n.Stamp(), queue: n.Extra(), off: off, node: n}
}

// seek gives the entry of a key among those in the bucket itself, or the one in no
// use where the key was last, with the queue lock held. It claims the key.
func (k *multiBucket) seek(key uint64) (s, was *multiLockEntry) {
	for i := range k.words.entries {
		e := &k.words.entries[i]
		if e.key.Load() != key {
			continue
		}
		h := keyHold(e.hold.Load())
		if h.fast() {
			h = k.claim(inlineEntry(e))
		}
		if !h.free() {
			return e, nil
		}
		if h != 0 || was == nil { // 0 of an entry that was never used is no key
			was = e
		}
	}
	return nil, was
}

// vacant gives an entry for a key that has none, with the queue lock held, or nil. It is
// for callers that want nothing else.
func (k *multiBucket) vacant(key uint64) *multiLockEntry {
	w := k.words
	for i := range w.entries {
		if w.entries[i].key.Load() == key {
			return k.vacantAgain(key)
		}
	}
	if w.spilled.Load() != 0 {
		return nil
	}
	n := w.mon.arrivals.Load()
	if s := &w.entries[n%multiInline]; n%evictEvery != 0 && keyHold(s.hold.Load()).idle() {
		return s // what room gives
	}
	return k.room(nil)
}

// vacantAgain is vacant for a key that an entry has or had.
func (k *multiBucket) vacantAgain(key uint64) *multiLockEntry {
	s, was := k.seek(key)
	if s != nil || k.words.spilled.Load() != 0 {
		return nil
	}
	return k.room(was)
}

// room gives an entry for a key that has none, with the queue lock held, or nil: the one
// where the key was last if there is that, one in no use, or one that was kept for
// another key. Now and then one that was kept goes although another is in no use: it
// may be of a key that nobody wants any more.
func (k *multiBucket) room(was *multiLockEntry) *multiLockEntry {
	if was != nil {
		return was
	}
	n := k.words.mon.arrivals.Load()
	if n%evictEvery != 0 {
		if s := k.unused(n); s != nil {
			return s
		}
	}
	for i := range uint64(multiInline) {
		s := &k.words.entries[(n/evictEvery+i)%multiInline]
		if keyHold(s.hold.Load()).kind() == keyCached && k.claim(inlineEntry(s)).free() {
			return s
		}
	}
	return k.unused(n)
}

// unused gives an entry in no use, with the queue lock held, or nil. They go in turn, so
// that the keys that they were for have time to come back.
func (k *multiBucket) unused(n uint64) *multiLockEntry {
	i := n % multiInline
	for range multiInline {
		if s := &k.words.entries[i]; keyHold(s.hold.Load()).idle() {
			return s
		}
		if i++; i == multiInline {
			i = 0
		}
	}
	return nil
}

// evictEvery is at every how manieth arrival a key that comes takes the entry of one
// that is kept, although another is in no use.
const evictEvery = 16

// claim makes the hold of an entry one that only the holder of the queue lock changes, and
// returns it. The queue lock is held. It is one step, so that a process that locks and
// unlocks the key meanwhile cannot delay it.
func (k *multiBucket) claim(e keyEntry) keyHold {
	// Nobody else takes the word out of the two fast kinds.
	// lin: the key is, or is not, held here.
	// sync(multilock.biased): acquire
	e.word.And(^uint64(holdFast))
	crashpoint.Hit("multilock.claim.claimed")
	h := e.hold()
	k.raise(h)
	return h
}

// raise sees to it that the stamps that follow are behind that of a hold.
func (k *multiBucket) raise(h keyHold) {
	arrivals := &k.words.mon.arrivals
	n := arrivals.Load()
	if ahead := int32(h.stamp() - uint32(n)); ahead > 0 {
		storeWord(arrivals, n+uint64(ahead))
	}
}

// find gives the entry of a key, with the queue lock held, or the zero keyEntry. It claims
// the key.
func (k *multiBucket) find(key uint64) keyEntry {
	if s, _ := k.seek(key); s != nil {
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
	for off, before := links(k.words.spilled.Load()).next(), arenakernel.Offset(0); off != 0; {
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

// eachEntry calls f for the entries in use, those with biased holds among them.
func (k *multiBucket) eachEntry(f func(e keyEntry)) {
	for i := range k.words.entries {
		if s := &k.words.entries[i]; !keyHold(s.hold.Load()).free() {
			f(inlineEntry(s))
		}
	}
	k.eachSpilled(func(e keyEntry) bool { f(e); return true })
}

// isEntry reports whether a node stands for a key of this bucket. While the queue lock
// is held, such a node stays one; others may change under the look, which is why it
// is taken twice.
func (k *multiBucket) isEntry(n *arenakernel.Node) bool {
	w := n.Load()
	return w.State() == arenakernel.NodeIdle && k.belongs(n) && n.Load() == w
}

// isWait reports whether a node is a wait in this bucket; see isEntry.
func (k *multiBucket) isWait(n *arenakernel.Node) bool {
	w := n.Load()
	return w.State() != arenakernel.NodeIdle && k.belongs(n) && n.Load().Generation() == w.Generation()
}

func (k *multiBucket) belongs(n *arenakernel.Node) bool {
	return n.Object() == k.of.object.Offset && k.of.index(n.Wanted().Load()) == k.number && n.Stamp().Load() != 0
}

// spill makes an entry of a node that this process has claimed.
func (k *multiBucket) spill(off arenakernel.Offset, n *arenakernel.Node, key uint64, h keyHold) keyEntry {
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
func (k *multiBucket) link(off arenakernel.Offset, n *arenakernel.Node) {
	before := k.spilledBefore(off)
	storeWord(n.Next(), uint64(makeLinks(links(before.Load()).next(), 0)))
	storeWord(before, uint64(makeLinks(off, 0)))
}

// spilledBefore is the link that leads, or would lead, to the node at off. The head
// is a link, too.
func (k *multiBucket) spilledBefore(off arenakernel.Offset) *atomic.Uint64 {
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
	h := e.hold()
	if e.node == nil {
		e.set(makeKeyHold(keyFree, h.owner().participant(), h.stamp()))
		return
	}
	if h.kind() != kindReserved {
		e.set(h.passing())
	}
	before := k.spilledBefore(e.off)
	if links(before.Load()).next() == e.off {
		storeWord(before, uint64(makeLinks(links(e.node.Next().Load()).next(), 0)))
	}
	crashpoint.Hit("multilock.unlock.unlinked")
	// The participant that claimed the node may be dead. The node keeps its stamp until it
	// is free, so that no other process gives it back.
	k.of.a.FreeEntryNode(e.off, e.node.Owner())
}

// clear makes the list of spilled entries anew, and empties the queues. Locks and
// unlocks by CAS go on meanwhile: nobody waits for their keys.
func (k *multiBucket) clear() {
	k.words.spilled.Store(0)
	for i := range k.words.entries {
		s := &k.words.entries[i]
		storeWord(&s.queue, 0)
		// The participant that claimed it may have died before it raised arrivals.
		if h := keyHold(s.hold.Load()); h.owner() != ownerNotRecoverable {
			k.raise(h)
		}
	}
	k.of.a.EachNode(k.of.object.Offset, func(off arenakernel.Offset, n *arenakernel.Node) {
		if k.isEntry(n) {
			storeWord(n.Extra(), 0)
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
	storeWord(e.queue, uint64(makeLinks(arenakernel.Offset(ends.first.Load()), arenakernel.Offset(ends.last.Load()))))
}
