package arenakernel

import (
	"cmp"
	"slices"
)

// mostWaits limits how many waits are returned. The bytes of a hostile peer may claim more waits
// than possible.
const mostWaits = 1 << 17

// findWaitsOfCopy finds the waits in the copy of an Inspector. It reads the waits from the file after the bodies of
// all objects. So each hold in the copy has begun before any wait in the copy ends. Tools rely on this, because they
// infer the age of a hold from the waits for it.
func (a *Arena) findWaitsOfCopy() {
	if !a.copied || a.waits != nil {
		return
	}
	if a.beforeWaits != nil {
		a.beforeWaits()
	}
	a.waits = a.findWaits()
}

// readWaitsLast reads the bodies of all objects from the file, unless the copy already contains them. Then it reads
// once more everything that findWaits examines.
func (i *Inspector) readWaitsLast() {
	a := i.a
	a.eachBlock(func(off Offset, size uint64, w blockWord) bool {
		if b, ok := a.locate(off); ok && i.records.isRecord(b, w) {
			i.img.Fetch(uint64(off), size)
		} else if w.kind() == blockObject {
			if h, err := a.headerAt(off); err == nil {
				i.fetchBody(h.Object)
			}
		}
		return true
	})
	for slot := 1; slot <= a.geo.slots; slot++ {
		if a.slotState(slot).taken() {
			i.readAgain(uint64(a.announceRecord(slot, 0)), announceCount*announceStride)
		}
	}
	for c := a.chunkFrom(0); c < a.geo.chunkCount; c = a.chunkFrom(c + 1) {
		if w := a.loadChunk(c); w.legal(c, a.geo.chunkCount) && w.reserved() && w.slabOf(classNode) {
			i.readAgain(uint64(a.chunkOff(c)), chunkSize)
		}
	}
}

// readAgain reads n bytes from the file into the copy, even if the copy already contains them. If
// it fails, it clears the bytes, so that they contain no wait.
func (i *Inspector) readAgain(off, n uint64) {
	i.img.Fetch(off, n) // marks the bytes as read, so that they are not read a third time
	b := i.img.Bytes()
	if off >= uint64(len(b)) {
		return
	}
	b = b[off:min(off+n, uint64(len(b)))]
	if got, err := i.img.File().ReadAt(b, int64(off)); err != nil {
		clear(b[got:])
	}
}

// findWaits returns all waits that the arena records, for each object. Waits on a queue come first,
// in the order of the queue. Other waits follow, the oldest first.
func (a *Arena) findWaits() map[Offset][]Wait {
	found, left := map[Offset][]Wait{}, mostWaits
	asleep := a.sleepers()
	type sleepOn struct { // the key of a map; a search in a list would be too slow for very many waits
		owner ParticipantID
		word  Offset
	}
	since := make(map[sleepOn]int64, len(asleep))
	for _, s := range asleep {
		since[sleepOn{s.owner, s.word}] = s.since
	}
	a.eachNode(func(off Offset, n *Node) {
		if left--; left < 0 {
			return
		}
		object := n.Object()
		w, ok := a.waitIn(off, n)
		if !ok {
			return
		}
		if t, ok := since[sleepOn{w.Owner, off}]; ok {
			w.Since = t
		}
		found[object] = append(found[object], w)
	})
	for _, s := range asleep {
		if b, ok := a.locate(s.word); ok && b.class == classNode {
			continue // the wait node has more details about this wait
		}
		found[s.object] = append(found[s.object], Wait{
			Owner: s.owner, Since: s.since, How: WaitAsleep, Count: 1, At: s.word - s.object - objectHeader,
		})
	}
	for _, waits := range found {
		slices.SortStableFunc(waits, func(a, b Wait) int {
			return cmp.Or(cmp.Compare(a.Stamp-1, b.Stamp-1), // sorts the stamp 0 last
				cmp.Compare(uint64(a.Since)-1, uint64(b.Since)-1), cmp.Compare(a.Owner.Slot(), b.Owner.Slot()))
		})
	}
	return found
}

// waitIn returns the wait that a node records. The result named ok is false if no goroutine or
// thread waits in the node.
func (a *Arena) waitIn(off Offset, n *Node) (w Wait, ok bool) {
	list, stamp, object := Offset(n.list.Load()), n.stamp.Load(), n.Object()
	w = Wait{Owner: n.Owner(), Node: off}
	switch s := n.State(); {
	case object == 0 || w.Owner == 0:
		return w, false
	case list != 0 && (s == NodeWaiting || s == NodeReady):
		w.At = list - object - objectHeader
		w.How = WaitParked
		w.Since, w.Count = int64(n.wanted.Load()), n.extra.Load()
		return w, true
	case list != 0 || stamp&RecordedStamp == 0:
		return w, false
	case s == NodeQueued:
		if w.How, w.Since = WaitAwake, int64(n.readyNext.Load()); w.Since != 0 {
			w.How = WaitParked // parked while another goroutine of its process waits for the same object
		}
	case s == NodeAsleep:
		w.How = WaitAsleep
	case s == NodeParked:
		w.How = WaitParked
		w.Since = int64(n.readyNext.Load())
	default:
		return w, false
	}
	wanted := n.wanted.Load()
	w.Want, w.Stamp, w.Count = &wanted, RecordedNumber(stamp), 1
	return w, true
}

// A sleeper is a thread that has recorded in its participant's slot that it sleeps on a word of the
// arena.
type sleeper struct {
	owner        ParticipantID
	object, word Offset
	since        int64
}

func (a *Arena) sleepers() (all []sleeper) {
	for i := 1; i <= a.geo.slots; i++ {
		w := a.slotState(i)
		if !w.taken() {
			continue
		}
		for k := range announceCount {
			// The owner stores the word last, and clears it first. So if the word has the same value before and after
			// the other loads, the object and the time belong to the wait on this word.
			r := a.announceRecord(i, k)
			word := a.u64(r + announceWord)
			s := sleeper{owner: participantIn(i, w), word: Offset(word.Load())}
			s.object, s.since = Offset(a.u64(r+announceObject).Load()), int64(a.u64(r+announceSince).Load())
			if s.word != 0 && s.object != 0 && Offset(word.Load()) == s.word {
				all = append(all, s)
			}
		}
	}
	return all
}
