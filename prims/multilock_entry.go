package prims

import (
	"slices"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/race"
)

// The kinds of the words of an entry that a record can change, except the words of the queue.
const (
	multiKeyLow = recordOwnKinds + iota
	multiKeyHigh
	multiHold
)

// multiBucket is a bucket of keys as this process uses it. Its recordQueue changes the words of all entries of the
// bucket. Its recordLock is the lock of the key whose entry the method focus has chosen.
type multiBucket struct {
	recordLock
	of     *MultiLock
	number int
	words  *multiLockBucket
	entry  *multiLockEntry                   // guarded by: private; the entry that the present change concerns
	blocks atomic.Pointer[[]*multiLockBlock] // the additional blocks of the bucket, the oldest first; written under MultiLock.mu
	hints  atomic.Pointer[multiHints]        // nil while the handle knows no additional block; written under MultiLock.mu
	waits  atomic.Int32                      // waits of this process in the bucket

	// queuedKeys has the indices of the entries that had a queue when the commit word had the value in queuedAt. Both
	// fields are void if queuedSeen is false. The three fields are guarded by: private.
	queuedKeys []uint32
	queuedAt   recordCommit
	queuedSeen bool
}

func newMultiBucket(x *MultiLock, i int) *multiBucket {
	k := &multiBucket{of: x, number: i, words: arenakernel.At[multiLockBucket](x.a, multiBucketAt(x.object, i))}
	w := x.words
	e := &k.words.entry0
	k.init(x.a, x.object, recordQueueWords{&k.words.commit, &e.first, &e.last, &w.spin, &w.pays, &w.lastCPU, x.counts}, k)
	k.lockWords, k.hooks, k.name, k.policy = e.lock(), k, x.name, x.policy
	k.entry, k.several, k.part, k.queue = e, true, uint64(i)<<recordPartShift, x.queue
	k.hasChosen = func() bool { return k.entry.has(k.chosen) }
	return k
}

// recordAt returns the record of the participant in a slot. The recordQueue calls it.
func (k *multiBucket) recordAt(slot int) (recordPlaces, bool) { return k.of.recordAt(slot) }

// wordAt returns the word of the given kind in the entry with the index where. The recordQueue calls it.
func (k *multiBucket) wordAt(kind uint8, where uint32) *atomic.Uint64 {
	e := k.at(where)
	if e == nil {
		if k.of.findBlocks() != nil {
			return nil
		}
		if e = k.at(where); e == nil {
			return nil
		}
	}
	switch kind {
	case recordFirst:
		return &e.first
	case recordLast:
		return &e.last
	case multiKeyLow:
		return &e.keyLow
	case multiKeyHigh:
		return &e.keyHigh
	case multiHold:
		return &e.hold
	}
	return nil
}

func (k *multiBucket) corrupt(detail string) error { return k.of.corrupt(detail) }

func (x *MultiLock) corrupt(detail string) error {
	return x.fail("multilock.change", shmsync.ErrCorrupt, nil, detail)
}

// added returns the additional blocks of the bucket that this handle knows.
func (k *multiBucket) added() []*multiLockBlock {
	if all := k.blocks.Load(); all != nil {
		return *all
	}
	return nil
}

// at returns the entry with the index i. It returns nil if there is no such entry, or if this handle does not know
// its block yet. Since new blocks come last, the index of an entry never changes.
func (k *multiBucket) at(i uint32) *multiLockEntry {
	if i < multiInline {
		return k.words.inline(i)
	}
	i -= multiInline
	if all := k.added(); i/multiBlockEntries < uint32(len(all)) {
		return &all[i/multiBlockEntries].entries[i%multiBlockEntries]
	}
	return nil
}

// size returns how many entries of the bucket this handle knows.
func (k *multiBucket) size() uint32 {
	return multiInline + multiBlockEntries*uint32(len(k.added()))
}

// focus chooses the entry with the index i as the one that the present change concerns.
func (k *multiBucket) focus(i uint32) { // guarded by: private
	k.entry = k.at(i)
	k.lockWords = k.entry.lock()
	k.first, k.last, k.recordQueue.at, k.chosen = &k.entry.first, &k.entry.last, i, k.entry.key()
}

// has reports whether the entry e has the key now.
func (e *multiLockEntry) has(key uint64) bool {
	return valueIn(&e.keyLow) == uint32(key) && valueIn(&e.keyHigh) == uint32(key>>32)
}

func (e *multiLockEntry) key() uint64 {
	return uint64(valueIn(&e.keyHigh))<<32 | uint64(valueIn(&e.keyLow))
}

func (e *multiLockEntry) lock() lockWords { return lockWords{&e.hold, &e.accepted} }

func (e *multiLockEntry) state() keyState { return keyState(e.lock().state()) }

// read returns the hold word, the state and the key of the entry, all as they were at one moment. If a hostile peer
// changes the entry all the time, read gives up after recordReads tries. Then the results may be of different moments.
func (e *multiLockEntry) read() (v keyHold, s keyState, key uint64) {
	for range recordReads {
		// The loop repeats only after another call has changed the entry.
		v = keyHold(e.hold.Load())
		s, key = keyState(e.lock().stateOf(v)), e.key()
		if keyHold(e.hold.Load()) == v {
			break
		}
	}
	return v, s, key
}

// search returns the index of the first entry that has the key. In memory that was never used, several entries have
// the key 0. All calls take the first of them, so that no key is in two entries.
func (k *multiBucket) search(key uint64) (i uint32, ok bool) {
	for i := range uint32(multiInline) {
		if k.words.inline(i).has(key) {
			return i, true
		}
	}
	if i, e := k.hinted(key); e != nil && e.has(key) {
		return i, true
	}
	for n, b := range k.added() {
		for i := range b.entries {
			if b.entries[i].has(key) {
				return multiInline + multiBlockEntries*uint32(n) + uint32(i), true
			}
		}
	}
	return 0, false
}

// find searches for the entry of a key, for a change that has begun. The caller has loaded the commit word before, and
// find first looks for new blocks.
//
// A key gets into a new block only by a record that another call makes after it has added the block. If find misses
// such an entry, the commit word has changed since the caller loaded it. So the change of the caller fails.
func (k *multiBucket) find(key uint64) (i uint32, ok bool, err error) {
	if err := k.of.findBlocks(); err != nil {
		return 0, false, err
	}
	i, ok = k.search(key)
	return i, ok, nil
}

// vacant returns the index of an entry whose key is free and for which nobody waits. Another key may get this entry.
// vacant closes the hold word of the entry. Each change begins its search at another entry. If all searches began at
// the first entry, each new key would take that entry, and no free key would keep it.
func (k *multiBucket) vacant(c recordCommit) (i uint32, ok bool) {
	n := k.size()
	i = uint32(c.version()) % n
	for range n {
		e := k.at(i)
		if keyStateOf(keyHold(e.hold.Load())).free() && valueIn(&e.first) == 0 && keyStateOf(closeKey(&e.hold)).free() {
			return i, true
		}
		if i++; i == n {
			i = 0
		}
	}
	return 0, false
}

// mayOpen reports whether the hold word may be open, that is, whether Lock and Unlock may change it without a record;
// see FairMutex.mayOpen.
func (k *multiBucket) mayOpen() bool { return !race.Enabled && k.counts == nil }

// raceKey returns what stands for a key in the race detector.
func (k *multiBucket) raceKey(key uint64) race.Key { return k.key + race.Key(key*multiHash) }

// lockFast locks the key if the key is free and has an entry whose hold word is open. Otherwise it returns the zero
// Hold.
//
// lockFast reads the hold word of an entry, then the key of the entry, and then changes the hold word by a CAS. A
// record that gives the entry another key also changes the tag of the hold word. So if the CAS succeeds, the entry
// still had the key.
func (k *multiBucket) lockFast(key uint64) Hold {
	for i := range uint32(multiInline) {
		e := k.words.inline(i)
		// sync(multilock.hold): acquire
		v := keyHold(e.hold.Load())
		if e.has(key) {
			return k.lockOpen(e, v, key, i)
		}
	}
	if k.blocks.Load() == nil {
		return Hold{}
	}
	return k.lockFastAdded(key)
}

// lockFastAdded is the part of lockFast for the additional blocks. It first tries the entry that had the key last, so
// that its cost does not grow with the number of blocks.
func (k *multiBucket) lockFastAdded(key uint64) Hold {
	if i, e := k.hinted(key); e != nil {
		v := keyHold(e.hold.Load())
		if e.has(key) {
			return k.lockOpen(e, v, key, i)
		}
	}
	for n, b := range k.added() {
		for j := range b.entries {
			e := &b.entries[j]
			v := keyHold(e.hold.Load())
			if e.has(key) {
				i := multiInline + multiBlockEntries*uint32(n) + uint32(j)
				k.hint(key, i)
				return k.lockOpen(e, v, key, i)
			}
		}
	}
	return Hold{}
}

// multiHints remembers which entries keys had. Bits of the hash of a key select an element, which has the index of the
// entry. These bits are not those that select the bucket. Any index is harmless, because a call checks whether the
// entry has the key.
type multiHints [256]atomic.Uint32

func (h *multiHints) of(key uint64) *atomic.Uint32 { return &h[key*multiHash>>40&0xff] }

// hint remembers that a key has the entry with the index i.
func (k *multiBucket) hint(key uint64, i uint32) {
	if h := k.hints.Load(); h != nil {
		h.of(key).Store(i)
	}
}

// hinted returns an entry that may have the key, or nil. For the key 0 it returns nil: several entries may have this
// key, and all calls take the first of them.
func (k *multiBucket) hinted(key uint64) (uint32, *multiLockEntry) {
	h := k.hints.Load()
	if h == nil || key == 0 {
		return 0, nil
	}
	i := h.of(key).Load()
	return i, k.at(i)
}

func (k *multiBucket) lockOpen(e *multiLockEntry, v keyHold, key uint64, i uint32) Hold {
	// lin: the key is taken here.
	if v.value() != keyFree.opened() || !k.mayOpen() || !e.hold.CompareAndSwap(uint64(v), uint64(v.with(k.of.open))) {
		return Hold{}
	}
	crashpoint.Hit("multilock.lock.taken")
	return makeHold(k, e, key, i, v.tag()+1)
}

// unlockFast unlocks the key of h if its hold word is open and h is not unlocked yet. It reports whether it did.
func (k *multiBucket) unlockFast(h Hold) bool {
	// sync(multilock.hold): release
	// lin: the key is released here.
	if !k.mayOpen() || !h.at.hold.CompareAndSwap(uint64(makeRecorded(k.of.open, h.tag())), uint64(makeRecorded(keyFree.opened(), h.tag()))) {
		return false
	}
	crashpoint.Hit("multilock.unlock.freed")
	return true
}

// findBlocks looks for blocks that were added to the MultiLock, unless this handle knows all of them.
func (x *MultiLock) findBlocks() error {
	if x.known.Load() == x.slots.head.Load() {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	head := x.slots.head.Load()
	found, bad := map[int][]*multiLockBlock{}, false // the new blocks of each bucket, the latest first
	err := x.a.EachAddedBlock(x.object, multiBlockBytes, head, x.known.Load(), func(off arenakernel.Offset, _ uint64) {
		b := arenakernel.SlotRecordAt[multiLockBlock](x.a, off)
		bucket := int(atomic.LoadUint32(&b.bucket)) // a peer may be overwriting it
		bad = bad || bucket >= len(x.all)
		found[bucket] = append(found[bucket], b)
	})
	switch {
	case err != nil:
		return err
	case bad:
		return x.corrupt("a block for a bucket that there is not")
	}
	for i, blocks := range found {
		k := x.makeBucket(i)
		if k == nil {
			return x.closed("multilock.lock")
		}
		slices.Reverse(blocks)
		all := slices.Concat(k.added(), blocks)
		if k.hints.Load() == nil {
			k.hints.Store(new(multiHints))
		}
		k.blocks.Store(&all)
	}
	x.known.Store(head)
	return nil
}

// addBlock adds a block with entries to the bucket, if the list of slot records still begins with head. The caller
// has read head before it found that the bucket has no room. So if several callers find no room at the same time,
// only one of them adds a block.
func (k *multiBucket) addBlock(head uint32) error {
	off, err := k.a.AddBlock(k.object, multiBlockBytes, head, func(off arenakernel.Offset) {
		arenakernel.SlotRecordAt[multiLockBlock](k.a, off).bucket = uint32(k.number)
	})
	if off != 0 {
		crashpoint.Hit("multilock.block.pushed")
	}
	return err
}
