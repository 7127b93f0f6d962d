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

// recordLog is one handle's side of an object that changes several words at once, without a lock. It
// belongs to WaitGroup, Latch and Barrier. A change is a record in the slot of its author, and takes
// effect when the commit word names the record:
//
//	its author                          the next process
//	completes the record of the word    finds the record of the author
//	writes a record of its own          changes each of its words whose tag is not the version
//	CAS: the commit word names it       CAS of the commit word
//	completes it
//
// A process that stops or dies before the CAS of the commit word has changed nothing. After the
// CAS, the next process completes the record. The author writes its next record only when this
// one is complete. So a process that finds another version in the record has nothing left to do.
//
// A process that was stopped while it completed a record may resume at any time. It changes a
// word only if the word still has the value and the tag from before the record. No word has both
// again before 2^32 further tickets.
//
// While the commit word is what it was, the tagged words do not change once its record is complete.
// So a commit over that word also proves that what was read in between belongs together.
type recordLog struct {
	word    *atomic.Uint64 // the commit word; see counterWord
	tickets *atomic.Uint64
	slot    int // of this participant
	// private is held by the goroutine that writes the record of this process.
	private *sync.Mutex
	of      recordObject
	// completed is the last commit word whose record this handle knows to be complete. No later one is
	// the same.
	completed atomic.Uint64
}

// recordObject is an object whose words records change.
type recordObject interface {
	// recordOf is the record of a slot: its version, and its entries. entries is nil if the slot has
	// none.
	recordOf(slot int) (head *atomic.Uint64, entries []atomic.Uint64)
	// tagged finds a tagged word by its index; nil if there is none.
	tagged(index uint32) *atomic.Uint64
	corrupt(detail string) error
}

// recordPrivate are the private locks of all record logs of this process, chosen by the offset of
// the object: all handles on an object share one. A goroutine holds such a lock for a few stores,
// and waits for nothing meanwhile.
var recordPrivate [64]sync.Mutex

// recordChange is a change that will go into a record.
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
	t.word, t.tickets, t.private, t.of = word, tickets, &recordPrivate[o.Offset/64%64], of
}

func (t *recordLog) load() counterWord { return counterWord(t.word.Load()) }

// swap makes a change take effect.
func (t *recordLog) swap(from, to counterWord) bool {
	// sync(counter.commit): release
	// lin: a change of a counter or of a Barrier takes effect here.
	return t.word.CompareAndSwap(uint64(from), uint64(to))
}

// commit makes a change over c. The caller has the private lock, and has completed
// the record of c. ok is false if the commit word has changed from c.
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

// version returns a ticket that none of the words of a change has as its tag.
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

// complete carries out the record that c names, unless that was done.
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
		// An author changes the head before the entries.
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
			// The loop ends: another process that changes the word between the load and the CAS
			// completes the same record.
			was := taggedWord(w.Load())
			if was.tag() == uint32(version) {
				break
			}
			// Nobody commits over c before the word has the tag. So if c is still there, was is
			// the value from before the record.
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

// valueOf is the value of a tagged word.
func valueOf(w *atomic.Uint64) uint64 { return uint64(taggedWord(w.Load()).value()) }
