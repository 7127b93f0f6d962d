package prims

import (
	"slices"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// readerWords has the reader words of all slots of an RWMutex. Each word is in a block of the arena, called the
// slot record, and stays there until the object is deleted. The slot records form a list, and the words here are in
// the order in which the records were added. Each handle remembers the addresses of the words, and reads the list
// again only when the list has changed.
type readerWords struct {
	head  uint32 // the newest slot record at the time when the list was read
	words []slotReaderWord
	err   error // an error in the list; the words are those before the error, and those that were known earlier
}

// slotReaderWord is the reader word of one slot, together with the number of that slot.
type slotReaderWord struct {
	state *atomic.Uint64
	slot  int
}

func (r slotReaderWord) load() readerWord { return readerWord(r.state.Load()) }

// name returns the participant to which the reader word with the value w belongs.
func (r slotReaderWord) name(w readerWord) arenakernel.ParticipantID { return w.name(r.slot) }

// readReaderWords reads the list of the slot records of o.
func readReaderWords(a *arenakernel.Arena, o arenakernel.Object) *readerWords {
	r := &readerWords{head: a.SlotRecords(o).Load()}
	r.err = a.EachSlotRecord(o, rwmutexRecordBytes, func(off arenakernel.Offset, slot int) bool {
		r.words = append(r.words, slotReaderWord{&arenakernel.SlotRecordAt[rwmutexRecord](a, off).state, slot})
		return true
	})
	slices.Reverse(r.words)
	return r
}

// readerWords returns all reader words of m. Once this handle has found a word, the word keeps its index in the
// result, even if a peer overwrites the list.
//
// No reader is missed. A reader has its record on the list before it adds to its word, and then it checks the gate.
// A writer closes the gate before it calls readerWords. So if the record of a reader is not on the list yet, that
// reader sees the closed gate of the writer.
func (m *RWMutex) readerWords() *readerWords {
	for {
		known := m.known.Load()
		if known.head == m.records.Load() {
			return known
		}
		r := readReaderWords(m.a, m.object)
		r.words = withKnown(known.words, r.words, func(w slotReaderWord) int { return w.slot }, m.a.MaxParticipants())
		// If the CAS fails, another goroutine of this process has stored a newer list. So the loop is lock-free.
		if m.known.CompareAndSwap(known, r) {
			return r
		}
	}
}

// firstReader searches the reader words for a participant that reads. It begins at the place given by the parameter
// named at; places are counted from 1. It returns the place of the participant, or 0 if there is none. If the list
// is corrupt, it never returns 0, because a reader may be missing from the list.
func (m *RWMutex) firstReader(at int) int {
	r := m.readerWords()
	for i := at; i <= len(r.words); i++ {
		word := r.words[i-1]
		if w := word.load(); w.reading() != 0 && !m.a.Dead(word.name(w)) {
			return i
		}
	}
	if r.err != nil {
		return max(at, len(r.words)+1)
	}
	return 0
}

// unread reports whether no participant has the lock for reading. It reads only the reader words that this handle
// knows, and so is quicker than firstReader. If the list of records has changed or is corrupt, unread reports false,
// although perhaps nobody reads. It also reports false if a word has readers, although perhaps all of them are dead.
func (m *RWMutex) unread() bool {
	r := m.known.Load()
	if r.head != m.records.Load() || r.err != nil {
		return false
	}
	for i := range r.words {
		if r.words[i].load().reading() != 0 {
			return false
		}
	}
	return true
}

// readerAt returns the reader word at a place that firstReader has returned. If the list is corrupt and has no such
// place, the result is false.
func (m *RWMutex) readerAt(at int) (slotReaderWord, bool) {
	r := m.readerWords()
	if at > len(r.words) {
		return slotReaderWord{}, false
	}
	return r.words[at-1], true
}

// corruptReaders returns the error for a lock whose list of readers is corrupt.
func (m *RWMutex) corruptReaders(op string) error {
	return m.fail(op, shmsync.ErrCorrupt, nil, "its list of slot records")
}
