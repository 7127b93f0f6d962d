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

// keyEntry is the place of a key that is not free: an entry of its bucket, or a wait node. The
// zero value is no entry.
type keyEntry struct {
	key   *atomic.Uint64
	word  *atomic.Uint64 // the hold
	queue *atomic.Uint64
	off   arenakernel.Offset // offset of the node, or 0
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

// seek searches the entries of the bucket for a key. If the key has an entry, seek claims it and returns it as
// s. Otherwise was is an unused entry that had the key last, or nil. The queue lock is held.
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
		if h != 0 || was == nil { // the 0 of an entry that was never used is no key
			was = e
		}
	}
	return nil, was
}

// vacant returns an entry for a key that has none. It returns nil if the key has an entry or may have a spilled
// one, or if there is no room. The queue lock is held.
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
		return s // the entry that room would return
	}
	return k.room(nil)
}

// vacantAgain is vacant for a key that some entry has or had.
func (k *multiBucket) vacantAgain(key uint64) *multiLockEntry {
	s, was := k.seek(key)
	if s != nil || k.words.spilled.Load() != 0 {
		return nil
	}
	return k.room(was)
}

// room returns an entry for a key that has none, or nil. The queue lock is held. It prefers the entry that had
// the key last, then an unused one, then one that caches another key. But one time in evictEvery it prefers an
// entry that caches a key to an unused one, because nobody may want that key any more.
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

// unused returns an unused entry, or nil. The queue lock is held. It takes the entries in turn,
// so that the keys that they had last have time to come back.
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

// evictEvery says that one in this many keys that arrive takes the entry of a cached key, even if another entry
// is unused.
const evictEvery = 16

// claim changes the hold of an entry into one that only the holder of the queue lock changes, and
// returns it. The queue lock is held. The claim is one atomic step, so a process that locks and
// unlocks the key at the same time cannot delay it.
func (k *multiBucket) claim(e keyEntry) keyHold {
	// No other process takes the word out of the two fast kinds. lin: the key is, or is not, held
	// here.
	// sync(multilock.biased): acquire
	e.word.And(^uint64(holdFast))
	crashpoint.Hit("multilock.claim.claimed")
	h := e.hold()
	k.raise(h)
	return h
}

// raise makes all later stamps greater than that of a hold.
func (k *multiBucket) raise(h keyHold) {
	arrivals := &k.words.mon.arrivals
	n := arrivals.Load()
	if ahead := int32(h.stamp() - uint32(n)); ahead > 0 {
		storeWord(arrivals, n+uint64(ahead))
	}
}

// find returns the entry of a key, or the zero keyEntry. It claims the key. The queue lock is
// held.
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

// eachSpilled calls f for the entries that are nodes, until f returns false. f may take the entry
// off the list. The nodes are in the order of their offsets, so the walk ends whatever the links
// are.
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

// eachEntry calls f for the entries in use, including those with biased holds.
func (k *multiBucket) eachEntry(f func(e keyEntry)) {
	for i := range k.words.entries {
		if s := &k.words.entries[i]; !keyHold(s.hold.Load()).free() {
			f(inlineEntry(s))
		}
	}
	k.eachSpilled(func(e keyEntry) bool { f(e); return true })
}

// peekSpilled calls f for the spilled entries. It works without the queue lock, so it may miss
// some that change at the same time.
func (k *multiBucket) peekSpilled(f func(e keyEntry)) {
	for off, before := links(k.words.spilled.Load()).next(), arenakernel.Offset(0); off > before; {
		n, err := k.of.a.NodeAt(off)
		if err != nil || !k.isEntry(n) {
			return
		}
		f(nodeEntry(off, n))
		before, off = off, links(n.Next().Load()).next()
	}
}

// isEntry reports whether a node stands for a key of this bucket. While the queue lock is held,
// such a node remains an entry. Other nodes may change during the test, so it is made twice.
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
	// From here on the node is freed with the key, and not with this process.
	e.set(h)
	crashpoint.Hit("multilock.lock.spilled")
	k.link(off, n)
	return e
}

// link inserts a node that is an entry into the list of spilled ones.
func (k *multiBucket) link(off arenakernel.Offset, n *arenakernel.Node) {
	before := k.spilledBefore(off)
	storeWord(n.Next(), uint64(makeLinks(links(before.Load()).next(), 0)))
	storeWord(before, uint64(makeLinks(off, 0)))
}

// spilledBefore is the link that leads, or would lead, to the node at off. It may be the head.
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

// free makes an entry unused. Nobody has its key or waits for it.
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
	// The participant that claimed the node may be dead. The node keeps its stamp until it is
	// free, so no other process frees it.
	k.of.a.FreeEntryNode(e.off, e.node.Owner())
}

// clear makes the list of spilled entries anew, and empties the queues. Locks and unlocks by CAS
// go on at the same time: nobody waits for their keys.
func (k *multiBucket) clear() {
	k.words.spilled.Store(0)
	for i := range k.words.entries {
		s := &k.words.entries[i]
		storeWord(&s.queue, 0)
		// The participant that claimed the hold may have died before it raised arrivals.
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

// withQueue lets f work on the queue of an entry.
func (k *multiBucket) withQueue(e keyEntry, f func(q *fifo)) {
	var ends listWords
	l := links(e.queue.Load())
	ends.first.Store(uint64(l.next()))
	ends.last.Store(uint64(l.prev()))
	f(&fifo{k.mon, &ends})
	storeWord(e.queue, uint64(makeLinks(arenakernel.Offset(ends.first.Load()), arenakernel.Offset(ends.last.Load()))))
}
