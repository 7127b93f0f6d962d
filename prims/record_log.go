package prims

import (
	"sync"
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("counter.commit.recorded")
	_ = crashpoint.Register("counter.commit.named")
	_ = crashpoint.Register("counter.commit.begun")
	_ = crashpoint.Register("counter.commit.completed")
)

// recordLog lets an object change several words at once without a lock. Each handle on a WaitGroup, a Latch or a
// Barrier contains a recordLog. A record is a list of new values, in the slot of its author. The commit word of the
// object names at most one record. A process makes a change in four steps:
//
//  1. It completes the record that the commit word names.
//  2. It writes a record of its own.
//  3. It makes the commit word name its own record, by a CAS. The change takes effect here.
//  4. It completes its own record.
//
// To complete a record, a process gives each listed word its new value, and the version of the record as its tag. It
// skips the words that have this tag already.
//
// A process that stops or dies before the CAS of the commit word has changed nothing. If it stops or dies after the
// CAS, the next process completes the record. An author writes its next record only when its previous record is
// complete. So if a process finds another version in the memory of a record, the record that it wants to complete is
// complete already.
//
// A process that was stopped while it completed a record may resume at any time. It changes a word only if the word
// still has the value and the tag from before the record. A word can have both again only after 2^32 more tickets were
// drawn, because each tag is a ticket.
//
// When the record of the commit word is complete, the tagged words do not change until the commit word changes. So a
// successful CAS of the commit word also proves that all values that were read before it belong to one state.
type recordLog struct {
	word    *atomic.Uint64 // the commit word; see counterWord
	tickets *atomic.Uint64
	slot    int // of this participant
	// private is held by the goroutine that writes the record of this process.
	private *sync.Mutex
	of      recordObject
	// completed is the last value of the commit word whose record this handle knows to be complete. The commit word
	// never gets the same value again.
	completed atomic.Uint64
}

// recordObject is an object whose words are changed by records.
type recordObject interface {
	// recordOf returns the record of the participant in a slot: head is the word with the version, and entries are
	// the words with the changes. entries is nil if the slot has no record.
	recordOf(slot int) (head *atomic.Uint64, entries []atomic.Uint64)
	// tagged returns the word of the object that has this index, or nil if there is none. Such a word has a tag
	// beside its value.
	tagged(index uint32) *atomic.Uint64
	corrupt(detail string) error
}

// recordPrivate has the process-local locks of all record logs of this process. A goroutine holds such a lock only for
// a few stores, and never waits while it holds the lock.
var recordPrivate [64]sync.Mutex

// privateOf returns the process-local lock of an object. All handles on the object share it. The multiplication
// spreads objects of the same size over all locks.
func privateOf(o arenakernel.Object) *sync.Mutex {
	return &recordPrivate[uint64(o.Offset/64)*0x9e3779b97f4a7c15>>58]
}

// recordChange is a change of several words, before it is written into a record.
type recordChange struct {
	n     int
	index [recordEntries]uint32
	value [recordEntries]uint32
}

// recordEntries is the greatest number of words that one record changes.
const recordEntries = 17

func (ch *recordChange) set(index uint32, value uint64) {
	ch.index[ch.n], ch.value[ch.n] = index, uint32(value)
	ch.n++
}

func (t *recordLog) init(word, tickets *atomic.Uint64, o arenakernel.Object, of recordObject) {
	t.word, t.tickets, t.private, t.of = word, tickets, privateOf(o), of
}

func (t *recordLog) load() counterWord { return counterWord(t.word.Load()) }

// swap makes a change take effect: it changes the commit word so that the word names the record of the change.
func (t *recordLog) swap(from, to counterWord) bool {
	// sync(counter.commit): release
	// lin: a change of a counter or of a Barrier takes effect here.
	return t.word.CompareAndSwap(uint64(from), uint64(to))
}

// commit makes a change take effect if the commit word still has the value c. The caller holds the lock t.private,
// and has completed the record that c names. ok is false if the commit word has another value.
func (t *recordLog) commit(c counterWord, ch *recordChange) (ok bool, err error) {
	version, err := t.version(ch)
	if err != nil {
		return false, err
	}
	head, entries := t.of.recordOf(t.slot)
	if ch.n > len(entries) {
		return false, t.of.corrupt("this participant has no room for a record")
	}
	putBetween(head, version)
	for i := range ch.n {
		putBetween(&entries[i], uint64(ch.index[i])<<32|uint64(ch.value[i]))
	}
	if ch.n < len(entries) {
		putBetween(&entries[ch.n], 0)
	}
	crashpoint.Hit("counter.commit.recorded")
	to := counterNames(version, t.slot, c&counterWatched)
	if !t.swap(c, to) {
		return false, nil
	}
	crashpoint.Hit("counter.commit.named")
	err = t.complete(to)
	crashpoint.Hit("counter.commit.completed")
	return err == nil, err
}

// version returns a ticket, that is, the next number of a counter that is only ever incremented. The ticket is
// not the tag of any word that the change lists.
func (t *recordLog) version(ch *recordChange) (uint64, error) {
	for range 2 * recordEntries {
		v := t.tickets.Add(1) & counterVersions
		used := v == 0
		for _, index := range ch.index[:ch.n] {
			w := t.of.tagged(index)
			if w == nil {
				return 0, t.of.corrupt("a share is that of a slot that there is not")
			}
			used = used || taggedWord(w.Load()).tag() == uint32(v)
		}
		if !used {
			return v, nil
		}
	}
	return 0, t.of.corrupt("its tickets do not advance")
}

// complete carries out the record that the commit word c names, unless the record is known to be complete.
func (t *recordLog) complete(c counterWord) error {
	if !c.logged() || t.completed.Load() == uint64(c.bare()) {
		return nil
	}
	head, entries := t.of.recordOf(c.slot())
	if entries == nil {
		return t.of.corrupt("its record is that of a slot that there is not")
	}
	version := c.version()
	for i := range entries {
		entry := entries[i].Load()
		// The author of the record changes the head before the entries when it writes its next record. So if the
		// head still has this version, the entry belongs to this record. If not, this record is complete already.
		if head.Load() != version {
			return nil
		}
		if entry>>32 == 0 {
			break
		}
		w := t.of.tagged(uint32(entry >> 32))
		if w == nil {
			return t.of.corrupt("a record changes a word that there is not")
		}
		for {
			// If the CAS fails, another process that completes the same record has changed the word. The next iteration
			// then finds the tag of the record, and ends the loop.
			was := taggedWord(w.Load())
			if was.tag() == uint32(version) {
				break
			}
			// No process replaces the commit word c before this word has the tag of the record. So if the commit word
			// is still c, the loaded word has the value from before the record.
			if t.load().bare() != c.bare() {
				return nil
			}
			if w.CompareAndSwap(uint64(was), uint64(makeTagged(uint32(entry), uint32(version)))) {
				crashpoint.Hit("counter.commit.begun")
				break
			}
		}
	}
	t.completed.Store(uint64(c.bare()))
	return nil
}

// valueOf returns the value of a tagged word.
func valueOf(w *atomic.Uint64) uint64 { return uint64(taggedWord(w.Load()).value()) }
