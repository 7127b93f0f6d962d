//go:build linux

package prims

import (
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// HoldWord describes the state in the hold word of a key, and does not change the word. If the word is open, the text
// says so.
func (x *MultiLock) HoldWord(key uint64) string {
	x.findBlocks()
	k := x.bucket(key)
	i, ok := k.search(key)
	if !ok {
		return "no entry"
	}
	e := k.at(i)
	if v := keyHold(e.hold.Load()); keyOpen(v) {
		return keyStateOf(v).String() + ", open"
	}
	return e.state().String()
}

// Opens does what the beginning of a call for the key does: it finds that x is open, and then opens the bucket of the
// key. Between these two steps, it runs the given function. Opens reports whether it could open the bucket.
func (x *MultiLock) Opens(key uint64, between func()) bool {
	if x.opening.error("multilock.lock") != nil {
		return false
	}
	between()
	return x.bucket(key) != nil
}

// Hinted reports whether the hint for a key leads to the entry of the key.
func (x *MultiLock) Hinted(key uint64) bool {
	_, e := x.bucket(key).hinted(key)
	return e != nil && e.has(key)
}

// Queued returns how many waits are in the queue for a key, of all processes.
func (x *MultiLock) Queued(key uint64) (n int) {
	k := x.bucket(key)
	k.private.Lock()
	defer k.private.Unlock()
	c, b := &k.scratch, takeWakes()
	defer k.wake(b)
	for {
		if k.begin(c, b) != nil {
			return 0
		}
		i, ok, err := k.find(key)
		if err != nil || !ok {
			return 0
		}
		n = 0
		for v := valueIn(&k.at(i).first); v >= arenakernel.RecordedFirst; {
			node, err := k.a.NodeAt(arenakernel.Offset(v) * linkUnit)
			if err != nil {
				break
			}
			if k.waiting(wait{arenakernel.Offset(v) * linkUnit, node}) {
				n++
			}
			v = valueIn(node.Next())
		}
		if k.load() == c.c {
			return n
		}
	}
}

// Body returns the offset and the length of the words of x.
func (x *MultiLock) Body() (off, size uint64) { return uint64(x.object.Body), x.object.Size }

// SameBucket reports whether two keys have the same bucket.
func (x *MultiLock) SameBucket(a, b uint64) bool { return x.index(a) == x.index(b) }

// Entries returns how many entries the bucket of a key has.
func (x *MultiLock) Entries(key uint64) int {
	x.findBlocks()
	return int(x.bucket(key).size())
}

// MultiWords are the words of the entry of a key.
type MultiWords struct {
	KeyLow, KeyHigh, Hold, Accepted, First, Last *atomic.Uint64
}

// Words returns the words of the entry of a key, which must have one.
func (x *MultiLock) Words(key uint64) MultiWords {
	x.findBlocks()
	k := x.bucket(key)
	i, ok := k.search(key)
	if !ok {
		panic("the key has no entry")
	}
	e := k.at(i)
	return MultiWords{&e.keyLow, &e.keyHigh, &e.hold, &e.accepted, &e.first, &e.last}
}

// OverwriteHold stores a state into the hold word of a key, as a peer may do.
func (x *MultiLock) OverwriteHold(key uint64, state uint32) {
	x.Words(key).Hold.Store(uint64(makeRecorded(state, 7)))
}

// QueuedNodes returns the nodes of the waits for a key, the first one first.
func (x *MultiLock) QueuedNodes(key uint64) (nodes []*arenakernel.Node) {
	for v := valueIn(x.Words(key).First); v >= arenakernel.RecordedFirst; v = valueIn(nodes[len(nodes)-1].Next()) {
		n, err := x.a.NodeAt(arenakernel.Offset(v) * linkUnit)
		if err != nil {
			panic(err)
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// MultiBlocks returns the offsets of the additional blocks of the MultiLock, the latest one first.
func (x *MultiLock) MultiBlocks() (blocks []arenakernel.Offset) {
	x.a.EachAddedBlock(x.object, 0, x.slots.head.Load(), 0, func(off arenakernel.Offset, _ uint64) { blocks = append(blocks, off) })
	return blocks
}

// BlockBucket returns the number of the bucket that is stored in a block.
func (x *MultiLock) BlockBucket(block arenakernel.Offset) *uint32 {
	return &arenakernel.SlotRecordAt[multiLockBlock](x.a, block).bucket
}

// BlockWords returns the offsets of all words of the additional blocks, including their headers.
func (x *MultiLock) BlockWords() (words []arenakernel.Offset) {
	for _, block := range x.MultiBlocks() {
		for i := range arenakernel.Offset(multiBlockBytes / 8) {
			words = append(words, block+8*i)
		}
	}
	return words
}

// RecordWords returns the offsets of all words of the slot records, except their headers.
func (x *MultiLock) RecordWords() (words []arenakernel.Offset) {
	x.a.EachSlotRecord(x.object, 0, func(off arenakernel.Offset, _ int) bool {
		for i := arenakernel.Offset(arenakernel.SlotRecordHeader / 8); i < arenakernel.Offset(plainRecordBytes/8); i++ {
			words = append(words, off+8*i)
		}
		return true
	})
	return words
}

// SetRecordBucket stores the number of a bucket in the head of the record of this participant, as a
// peer may do.
func (x *MultiLock) SetRecordBucket(i uint64) {
	x.record.head.Store(x.record.head.Load()&(1<<recordPartShift-1) | i<<recordPartShift)
}

// WriteRecord writes a record that gives a key the entry with the given index and locks the key. If
// the parameter commit is true, it also makes the commit word name the record. It does not carry the
// record out, as if the process had died before that.
func (x *MultiLock) WriteRecord(key uint64, index uint32, commit bool) {
	k := x.bucket(key)
	k.private.Lock()
	defer k.private.Unlock()
	c, b := &k.scratch, takeWakes()
	defer k.wake(b)
	if err := k.begin(c, b); err != nil {
		panic(err)
	}
	k.focus(index)
	closeKey(&k.entry.hold)
	k.setKey(c, key)
	k.setOwner(c, makeOwner(kindHeld, x.name))
	r, _ := x.recordAt(x.self)
	to := c.c.next(x.self)
	r.head.Store(k.headOf(to))
	kinds := uint64(0)
	for i := range c.n {
		kinds |= uint64(c.kind[i]) << (8 * i)
		r.entries[i].was.Store(uint64(c.was[i]))
		r.entries[i].to.Store(uint64(c.where[i])<<32 | uint64(c.to[i]))
	}
	r.kinds.Store(kinds)
	if commit && !k.commit.CompareAndSwap(uint64(c.c), uint64(to)) {
		panic("another process has made a change")
	}
}

// Complete carries out the record that the commit word of the bucket of a key names, as the
// beginning of a change does.
func (x *MultiLock) Complete(key uint64) error {
	k := x.bucket(key)
	b := takeWakes()
	defer k.wake(b)
	k.private.Lock()
	defer k.private.Unlock()
	return k.begin(&k.scratch, b)
}

// DefaultBucket returns the bucket of a key in a MultiLock that has the default number of buckets.
func DefaultBucket(key uint64) int { return bucketOf(key, multiLogDefault) }

// RemoveDead removes the waits of one participant for a key from its queue, as a reap does with those of
// the dead. It returns the error of the reap.
func (x *MultiLock) RemoveDead(key uint64, id arenakernel.ParticipantID) error {
	k, b := x.bucket(key), takeWakes()
	defer k.wake(b)
	k.private.Lock()
	defer k.private.Unlock()
	k.without = id
	defer func() { k.without = 0 }()
	i, _, err := k.find(key)
	if err != nil {
		return err
	}
	k.focus(i)
	return k.removeDead(&k.scratch, b)
}

// HoldFor makes n the holder of a key, whose hold word is then open.
func (x *MultiLock) HoldFor(key uint64, n arenakernel.ParticipantID) {
	x.OverwriteHold(key, keyState(makeOwner(kindHeld, n)).opened())
}

// Held returns how many keys in the bucket of the given key are held, by living or dead participants.
func (x *MultiLock) Held(key uint64) (n int) {
	x.findBlocks()
	k := x.bucket(key)
	for i := range k.size() {
		if k.at(i).state().holder() != 0 {
			n++
		}
	}
	return n
}

// Repair repairs x as a reaper does. The parameter dead is the participant that died.
func (x *MultiLock) Repair(dead arenakernel.ParticipantID) { repairMultiLock(x.a, x.object, dead) }

// NextChange makes the commit word of the bucket of a key say that another process has made a change.
func (x *MultiLock) NextChange(key uint64) { x.bucket(key).nextChange() }

// ReapAndServe reaps and serves the queues in the bucket of a key, and returns whether the next call reaps again.
func (x *MultiLock) ReapAndServe(key uint64) (again bool) {
	k := x.bucket(key)
	return k.reapBeside(k.reapAll)
}

// ReapAgain makes the next periodic check reap in the bucket of a key.
func (x *MultiLock) ReapAgain(key uint64) { x.bucket(key).unreaped.Store(true) }

// Check makes a periodic check of all buckets in which goroutines of this process wait.
func (x *MultiLock) Check() { x.check() }
