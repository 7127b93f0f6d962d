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

// keyEntry is the record of a key that is not free. The record is either in a multiLockEntry of the key's bucket,
// or in a wait node. The zero value means that there is no record.
type keyEntry struct {
	key   *atomic.Uint64
	word  *atomic.Uint64 // the hold, a keyHold
	queue *atomic.Uint64
	off   arenakernel.Offset // offset of the node that has the record, or 0
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

// seek searches the entries of the bucket for a key. If the key is not free and has an entry, seek returns the
// entry as s. If a process could change the hold of that entry without the queue lock, seek first ends this
// possibility by claim. If seek finds no such entry, the result was is an unused entry that had the key last, or
// nil. The caller holds the queue lock.
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
		if h != 0 || was == nil { // an entry that was never used also has the key 0
			was = e
		}
	}
	return nil, was
}

// vacant returns an unused entry for a key that has no record. It returns nil if the key has an entry, if some keys
// have their record in a node and this key may be one of them, or if there is no room. The caller holds the queue
// lock.
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
		return s // the method room would return the same entry
	}
	return k.room(nil)
}

// vacantAgain does what the method vacant does, for a key that is, or was, the key of some entry. vacant calls it.
func (k *multiBucket) vacantAgain(key uint64) *multiLockEntry {
	s, was := k.seek(key)
	if s != nil || k.words.spilled.Load() != 0 {
		return nil
	}
	return k.room(was)
}

// room returns an entry for a key that has none, or nil. The caller holds the queue lock. room prefers the entry
// that had the key last, then an unused entry, then an entry that keeps another key cached for a process. But one
// time in evictEvery it prefers an entry with a cached key to an unused one, because perhaps no process wants that
// cached key any more.
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

// unused returns an unused entry, or nil. The caller holds the queue lock. The argument n chooses the first
// candidate. Since n grows with each arrival, an entry keeps its last key for some time, and is found again if that
// key is locked again.
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

// evictEvery bounds how long a key stays cached. Of the keys that arrive, one in evictEvery takes the entry of a
// cached key, even if another entry is unused.
const evictEvery = 16

// claim ends the right of a process to lock or unlock the key of e without the queue lock. After claim, only the
// holder of the queue lock changes the hold of the entry. claim returns that hold. The caller holds the queue lock.
// The claim is one atomic step, so a process that locks and unlocks the key at the same time cannot delay it.
func (k *multiBucket) claim(e keyEntry) keyHold {
	// No other process changes a fast word into one that is not fast. lin: the key is, or is not, held
	// here.
	// sync(multilock.biased): acquire
	e.word.And(^uint64(holdFast))
	crashpoint.Hit("multilock.claim.claimed")
	h := e.hold()
	k.raise(h)
	return h
}

// raise makes the counter arrivals large enough for all later stamps to be greater than the stamp of h.
func (k *multiBucket) raise(h keyHold) {
	arrivals := &k.words.mon.arrivals
	n := arrivals.Load()
	if ahead := int32(h.stamp() - uint32(n)); ahead > 0 {
		storeWord(arrivals, n+uint64(ahead))
	}
}

// find returns the record of a key, or the zero keyEntry. It calls claim, so only the holder of the queue lock
// changes the hold afterwards. The caller holds the queue lock.
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

// eachSpilled calls f for the records that are in wait nodes, until f returns false. f may take the node off the
// list. The nodes are in the order of their offsets. A node out of order ends the walk, so the walk ends even if a
// peer has overwritten the links.
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

// eachEntry calls f for every record in use. That includes holds that their process can change without the queue
// lock.
func (k *multiBucket) eachEntry(f func(e keyEntry)) {
	for i := range k.words.entries {
		if s := &k.words.entries[i]; !keyHold(s.hold.Load()).free() {
			f(inlineEntry(s))
		}
	}
	k.eachSpilled(func(e keyEntry) bool { f(e); return true })
}

// peekSpilled calls f for the records that are in wait nodes. It does not need the queue lock. So it may miss nodes
// that are added or removed at the same time.
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

// isEntry reports whether a node is the record of a key of this bucket. While the queue lock is held, such a node
// remains a record. Any other node may change while isEntry reads it, so isEntry reads the state of the node twice.
func (k *multiBucket) isEntry(n *arenakernel.Node) bool {
	w := n.Load()
	return w.State() == arenakernel.NodeIdle && k.belongs(n) && n.Load() == w
}

// isWait reports whether a node is a wait in this bucket. It reads the state of the node twice, as isEntry does.
func (k *multiBucket) isWait(n *arenakernel.Node) bool {
	w := n.Load()
	return w.State() != arenakernel.NodeIdle && k.belongs(n) && n.Load().Generation() == w.Generation()
}

func (k *multiBucket) belongs(n *arenakernel.Node) bool {
	return n.Object() == k.of.object.Offset && k.of.index(n.Wanted().Load()) == k.number && n.Stamp().Load() != 0
}

// spill makes the node n the record of a key whose bucket has no free entry. This process has taken the node from
// the pool.
func (k *multiBucket) spill(off arenakernel.Offset, n *arenakernel.Node, key uint64, h keyHold) keyEntry {
	n.SetObject(k.of.object.Offset)
	e := nodeEntry(off, n)
	e.key.Store(key)
	e.queue.Store(0)
	// From here on, the process that frees the key also frees the node. If this process dies, its reaper does not
	// free the node.
	e.set(h)
	crashpoint.Hit("multilock.lock.spilled")
	k.link(off, n)
	return e
}

// link inserts a node into the list of the wait nodes that are records.
func (k *multiBucket) link(off arenakernel.Offset, n *arenakernel.Node) {
	before := k.spilledBefore(off)
	storeWord(n.Next(), uint64(makeLinks(links(before.Load()).next(), 0)))
	storeWord(before, uint64(makeLinks(off, 0)))
}

// spilledBefore returns the link that leads to the node at off, or would lead to it if the node
// were in the list. The link may be the head of the list.
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

// free makes the record e unused. No process holds the key of e or waits for it.
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
	// The participant that took the node from the pool may be dead. Nevertheless no other process frees the node,
	// because a node with a stamp is in use, and the stamp remains until here.
	k.of.a.FreeEntryNode(e.off, e.node.Owner())
}

// clear makes the list of the nodes that are records anew, and empties the queues. Meanwhile processes may lock and
// unlock biased and cached keys by CAS. Nobody waits for such keys, so they have no queue that clear could damage.
func (k *multiBucket) clear() {
	k.words.spilled.Store(0)
	for i := range k.words.entries {
		s := &k.words.entries[i]
		storeWord(&s.queue, 0)
		// A participant may have died in the method claim, after it had changed the hold and before it called
		// raise.
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

// withQueue calls f with the queue of the waits for a key, and then stores the ends of the queue in the record e of
// that key.
func (k *multiBucket) withQueue(e keyEntry, f func(q *fifo)) {
	var ends listWords
	l := links(e.queue.Load())
	ends.first.Store(uint64(l.next()))
	ends.last.Store(uint64(l.prev()))
	f(&fifo{k.mon, &ends})
	storeWord(e.queue, uint64(makeLinks(arenakernel.Offset(ends.first.Load()), arenakernel.Offset(ends.last.Load()))))
}
