package prims

import (
	"sync"
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("record.commit.written")
	_ = crashpoint.Register("record.commit.named")
	_ = crashpoint.Register("record.complete.begun")
	_ = crashpoint.Register("record.commit.completed")
)

// recordCommit is the commit word of an object with a recorded queue. Every change of the object takes effect by a
// compare-and-swap of this word, which makes the word name the record of the change.
//
//	bits 0..10   slot     of the author of the record; 0: there was no change yet
//	bits 11..63  version  how many changes there were
//
//	writers: every change, by CAS
//	readers: every call that makes a change
//	order:   seq-cst
//	futex:   none
//	crash:   the next process carries out the record that the word names
type recordCommit uint64

const recordSlotBits = 11

// recordPartShift is the first bit of the part in the head of a record; see recordQueue.part. The bits below it are
// the version.
const recordPartShift = 48

func (c recordCommit) slot() int       { return int(c & (1<<recordSlotBits - 1)) }
func (c recordCommit) version() uint64 { return uint64(c >> recordSlotBits) }

// next returns the word that the participant in the given slot stores over c.
func (c recordCommit) next(slot int) recordCommit {
	return recordCommit(c.version()+1)<<recordSlotBits | recordCommit(slot)
}

// recordedWord is a word of shared memory that is changed only by carrying out records.
//
//	bits 0..31   tag    how often the word has changed, modulo 2^32
//	bits 32..63  value
//
// A process that carries out a record compares the whole word, with its tag, so each change happens only once. Before
// each CAS the process also checks that the commit word still names the record. A process that was stopped between this
// check and the CAS changes nothing when it resumes, unless the word has changed exactly 2^32 times meanwhile. When a
// process uses a wait node again, the tags of its words go on from their last values; see [park.WaitNode]. When a node
// gets a new owner, its tags begin at a random number.
//
//	writers: every process that carries out the record that the commit word names, by CAS
//	readers: calls, after they have carried out the record of the commit word
//	order:   seq-cst
//	futex:   none
//	crash:   the next process carries the record out
type recordedWord uint64

func makeRecorded(value, tag uint32) recordedWord {
	return recordedWord(value)<<32 | recordedWord(tag)
}

func (w recordedWord) value() uint32 { return uint32(w >> 32) }
func (w recordedWord) tag() uint32   { return uint32(w) }

// with returns w after a change to the given value.
func (w recordedWord) with(value uint32) recordedWord { return makeRecorded(value, w.tag()+1) }

func valueIn(w *atomic.Uint64) uint32 { return recordedWord(w.Load()).value() }

// recordMost is the maximum number of words that one record can change.
const recordMost = 8

// recordPlaces points to the words of a record. head has the version of the record. kinds has a number for each entry,
// the kind of the word that the entry changes. An entry says which word of this kind changes, and has the old and the
// new value of that word.
type recordPlaces struct {
	head, kinds *atomic.Uint64
	entries     *[recordMost]recordEntry
}

// recordQueue lets an object have a queue of waits without a lock. Each handle on such an object contains a
// recordQueue. A record lists changed words, both of the object and of the queue. It is in the slot record of its
// author. The commit word of the object names one record. A process makes a change in five steps:
//
//  1. It completes the record that the commit word names.
//  2. It reads the words that it needs.
//  3. It writes a record of its own.
//  4. It makes the commit word name its own record, by a CAS. The change takes effect here.
//  5. It completes its own record.
//
// To complete a record, a process changes each listed word from the old to the new value, by a CAS. Then it resolves
// the waits that the record ends.
//
// When the record of the commit word is complete, the words do not change until the commit word changes. So the CAS of
// the commit word proves that all words that the author has read belong to one state. If a process stops or dies at any
// step, the next process completes what it left. See docs/design/0056.
type recordQueue struct {
	a      *arenakernel.Arena
	object arenakernel.Object
	commit *atomic.Uint64 // see recordCommit
	first  *atomic.Uint64 // the ends of the queue: recordedWords with the offset of a node / 64, or 0
	last   *atomic.Uint64
	// several is set if the object has several queues. Then each change concerns one of them, the chosen queue. The fields
	// first and last are the ends of the chosen queue, and a record names this queue by the number in the field at. Each
	// wait in it has the value of the field chosen in the word wanted of its wait node. hasChosen reports whether first
	// and last are still the ends of the chosen queue. The lock private guards these fields.
	several   bool
	at        uint32
	chosen    uint64
	hasChosen func() bool
	// part tells apart the recordQueues of one object, such as the buckets of a MultiLock, because a participant
	// writes its records for all of them into the same memory. The head of a record includes part. If the object has
	// only one recordQueue, part is 0.
	part uint64
	// boundary divides the queue into two parts. It is a recordedWord of the object that names the first node of the
	// second part, or is 0 if that part is empty. When that node leaves the queue, boundary changes to the next node. The
	// field is nil if the object does not divide its queue. A record names the word boundary by the kind recordOwnKinds.
	boundary *atomic.Uint64
	of       recordedObject
	slot     int // of this participant
	// private is held by the goroutine that makes a change for this process.
	private *sync.Mutex
	// completed is the last value of the commit word whose record this handle knows to be complete.
	completed atomic.Uint64
	queue     *park.Queue // nil in the handle of a reaper or a tool
	counts    *countWords
	tuning    park.Tuning
	key       race.Key
	// without is the ID of this participant while it leaves the arena, and 0 before that.
	without arenakernel.ParticipantID
	scratch recordedChange // guarded by: private
	deaths  atomic.Uint32  // the number of deaths at the last reap
	// unreaped is set if the last reap has left something to the next one. For example, the process of a dead
	// participant had not ended, so the reap did not take back what the participant has.
	unreaped  atomic.Bool
	overtaken uint64 // guarded by: private; how many changes of this handle other processes have overtaken
}

// recordedObject is an object with a recordQueue.
type recordedObject interface {
	// recordAt returns the record of the participant in a slot. ok is false if the slot has no record.
	recordAt(slot int) (r recordPlaces, ok bool)
	// wordAt returns the word that a record names by the parameters kind and where, or nil if there is no such word. It
	// finds words of the object, and, if the object has several queues, also the ends of the queues. The recordQueue
	// itself finds all other words.
	wordAt(kind uint8, where uint32) *atomic.Uint64
	// removed is called for a change x that may leave the queue empty, before x takes effect. If x leaves the queue
	// empty, removed may add other words of the object to x.
	removed(x *recordedChange)
	corrupt(detail string) error
}

// The kinds of words that a record names. Each object defines its own kinds, from recordOwnKinds on.
const (
	recordFirst uint8 = 1 + iota
	recordLast
	recordNext // the word next of a wait node
	recordPrev // the word extra of a wait node, which names the node before it
	recordOwnKinds
)

// recordedChange is a change of several words, before it is written into a record.
type recordedChange struct {
	c       recordCommit
	n       int
	tooMany bool // the change has more words than fit into a record
	torn    bool // the words that were read are not of one state, or a peer has overwritten a word
	kind    [recordMost]uint8
	where   [recordMost]uint32
	to      [recordMost]uint32
	was     [recordMost]recordedWord
	word    [recordMost]*atomic.Uint64
}

// get returns the value that the word w will have after the change.
func (x *recordedChange) get(w *atomic.Uint64) uint32 {
	for i := range x.n {
		if x.word[i] == w {
			return x.to[i]
		}
	}
	return valueIn(w)
}

// set adds to x that the word w gets the value v. kind and where name w in the record.
func (x *recordedChange) set(kind uint8, where uint32, w *atomic.Uint64, v uint32) {
	for i := range x.n {
		if x.word[i] == w {
			x.to[i] = v
			return
		}
	}
	if was := recordedWord(w.Load()); was.value() != v {
		x.add(kind, where, w, was, v)
	}
}

// renew does what set does, but the word gets a new tag even if it has the value v already.
func (x *recordedChange) renew(kind uint8, where uint32, w *atomic.Uint64, v uint32) {
	x.set(kind, where, w, v)
	for i := range x.n {
		if x.word[i] == w {
			return
		}
	}
	x.add(kind, where, w, recordedWord(w.Load()), v)
}

func (x *recordedChange) add(kind uint8, where uint32, w *atomic.Uint64, was recordedWord, v uint32) {
	if x.n == recordMost {
		x.tooMany = true
		return
	}
	x.kind[x.n], x.where[x.n], x.to[x.n], x.was[x.n], x.word[x.n] = kind, where, v, was, w
	x.n++
}

func (q *recordQueue) load() recordCommit { return recordCommit(q.commit.Load()) }

// begin begins a change. Afterwards x is empty, and the record of the commit word is complete.
func (q *recordQueue) begin(x *recordedChange, b *wakes) error {
	// sync(record.commit): acquire
	c := q.load()
	x.c, x.n, x.tooMany, x.torn = c, 0, false, false
	return q.complete(c, b)
}

// end makes the change x take effect. ok is false if the commit word has changed since begin, or if there is an
// error. The caller holds q.private.
func (q *recordQueue) end(x *recordedChange, b *wakes) (ok bool, err error) {
	switch {
	case q.load() != x.c:
		q.overtaken++
		return false, nil
	case x.torn:
		return false, q.of.corrupt(tornQueue)
	case x.n == 0:
		return true, nil
	case x.tooMany:
		return false, q.of.corrupt("a change of too many words")
	}
	r, ok := q.of.recordAt(q.slot)
	if !ok {
		return false, q.of.corrupt("this participant has no record")
	}
	to := x.c.next(q.slot)
	putBetween(r.head, q.headOf(to))
	kinds := uint64(0)
	for i := range x.n {
		kinds |= uint64(x.kind[i]) << (8 * i)
		putBetween(&r.entries[i].was, uint64(x.was[i]))
		putBetween(&r.entries[i].to, uint64(x.where[i])<<32|uint64(x.to[i]))
	}
	putBetween(r.kinds, kinds)
	crashpoint.Hit("record.commit.written")
	// sync(record.commit): release
	// lin: a change by a record takes effect here.
	if !q.commit.CompareAndSwap(uint64(x.c), uint64(to)) {
		q.overtaken++
		return false, nil
	}
	crashpoint.Hit("record.commit.named")
	q.carryOut(x, to, b)
	crashpoint.Hit("record.commit.completed")
	return true, nil
}

// carryOut does what complete does, for the change x of this process. The parameter to is the commit word that
// names the record of x.
func (q *recordQueue) carryOut(x *recordedChange, to recordCommit, b *wakes) {
	for i := range x.n {
		if q.load() != to {
			break // another process has completed the record; see complete
		}
		if x.word[i].CompareAndSwap(uint64(x.was[i]), uint64(x.was[i].with(x.to[i]))) {
			crashpoint.Hit("record.complete.begun")
		}
	}
	for i := range x.n {
		if x.kind[i] == recordNext {
			q.tell(b, arenakernel.Offset(x.where[i])*linkUnit, x.was[i].with(x.to[i]))
		}
	}
	putBetween(&q.completed, uint64(to))
}

// complete carries out the record that the commit word c names, unless the record is known to be complete. It
// resolves the waits that the record has granted, and adds them to b. The caller then wakes all owners in b.
func (q *recordQueue) complete(c recordCommit, b *wakes) error {
	if c.slot() == 0 || q.completed.Load() == uint64(c) {
		return nil
	}
	r, ok := q.of.recordAt(c.slot())
	if !ok {
		return q.of.corrupt("its record is that of a slot that has none")
	}
	kinds := r.kinds.Load()
	var was, to [recordMost]uint64
	for i := range recordMost {
		was[i], to[i] = r.entries[i].was.Load(), r.entries[i].to.Load()
	}
	// The author writes its next record only when this record is complete, and changes the head first. So if the head
	// has another version now, this record is complete.
	if r.head.Load() != q.headOf(c) {
		putBetween(&q.completed, uint64(c))
		return nil
	}
	for i := range recordMost {
		kind := uint8(kinds >> (8 * i))
		if kind == 0 {
			break
		}
		w := q.wordAt(kind, uint32(to[i]>>32))
		if w == nil {
			return q.of.corrupt("a record changes a word that there is not")
		}
		// No process replaces the commit word c before the record is complete. So if c was replaced, the record is
		// complete. Without this check, a process that was stopped for long might change a word that has the old
		// tag again, after 2^32 changes.
		if q.load() != c {
			break
		}
		if w.Load() == was[i] && w.CompareAndSwap(was[i], uint64(recordedWord(was[i]).with(uint32(to[i])))) {
			crashpoint.Hit("record.complete.begun")
		}
	}
	for i := range recordMost {
		if uint8(kinds>>(8*i)) == recordNext {
			q.tell(b, arenakernel.Offset(to[i]>>32)*linkUnit, recordedWord(was[i]).with(uint32(to[i])))
		}
	}
	putBetween(&q.completed, uint64(c))
	return nil
}

// headOf returns the head of the record that the commit word c names.
func (q *recordQueue) headOf(c recordCommit) uint64 {
	if q.several {
		return c.version()&(1<<recordPartShift-1) | q.part
	}
	return c.version()
}

func (q *recordQueue) wordAt(kind uint8, where uint32) *atomic.Uint64 {
	switch kind {
	case recordFirst, recordLast:
		if q.several {
			break
		}
		if kind == recordFirst {
			return q.first
		}
		return q.last
	case recordNext, recordPrev:
		n, err := q.a.NodeAt(arenakernel.Offset(where) * linkUnit)
		if err != nil {
			return nil
		}
		if kind == recordNext {
			return n.Next()
		}
		return n.Extra()
	}
	return q.of.wordAt(kind, where)
}

// current reports whether a participant is alive. This participant counts as dead while it leaves the arena.
func (q *recordQueue) current(n arenakernel.ParticipantID) bool {
	return n != q.without && q.a.Current(n)
}
