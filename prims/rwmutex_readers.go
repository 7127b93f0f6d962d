package prims

import (
	"slices"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// readerWords are the reader words of an RWMutex, in the order in which they came. A reader word
// lies in the slot record of its slot, and stays there until the object is deleted. So each handle
// remembers where the words are, and looks at the list of records only when that has changed.
type readerWords struct {
	head  uint32 // the latest slot record when the list was read
	words []slotReaderWord
	err   error // an error in the list; words has the slots before it, and those that were known earlier
}

// slotReaderWord is the reader word of a slot.
type slotReaderWord struct {
	state *atomic.Uint64
	slot  int
}

func (r slotReaderWord) load() readerWord { return readerWord(r.state.Load()) }

// name is the participant whose word w is.
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

// readerWords returns all reader words of m. Once this handle has found a word, it keeps it at its place, even
// if a peer overwrites the list.
//
// A writer closes the gate before it calls readerWords. A reader has its record on the list before it adds to
// its word, and then checks the gate. So if a writer misses the record of a reader, that reader sees the closed
// gate of the writer.
func (m *RWMutex) readerWords() *readerWords {
	for {
		known := m.known.Load()
		if known.head == m.records.Load() {
			return known
		}
		r := readReaderWords(m.a, m.object)
		r.words = withKnown(known.words, r.words, func(w slotReaderWord) int { return w.slot }, m.a.MaxParticipants())
		// The loop ends: if the swap fails, another goroutine has read the list.
		if m.known.CompareAndSwap(known, r) {
			return r
		}
	}
}

// firstReader is the first place in readerWords, from place at on, whose participant reads, or 0.
// Places begin at 1. If the list is corrupt, some participant may always be reading.
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

// readerAt is the reader word at a place that firstReader gave. It reports false if the list has
// become corrupt.
func (m *RWMutex) readerAt(at int) (slotReaderWord, bool) {
	r := m.readerWords()
	if at > len(r.words) {
		return slotReaderWord{}, false
	}
	return r.words[at-1], true
}

// corruptReaders is the error of a lock whose readers cannot be found.
func (m *RWMutex) corruptReaders(op string) error {
	return m.fail(op, shmsync.ErrCorrupt, nil, "its list of slot records")
}
