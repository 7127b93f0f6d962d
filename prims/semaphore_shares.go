package prims

import (
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/park"
)

// slotShare is the share of a slot, that is, the permits of the participant in that slot. It is stored in the slot
// record.
type slotShare struct {
	*semaphoreShare
	slot   int
	record *semaphoreRecord
}

// buildSemaphore makes a handle. bare is true for the handle of a reaper or a tool, which has no share
// and cannot wait.
func buildSemaphore(a *arenakernel.Arena, o arenakernel.Object, bare bool) (*Semaphore, error) {
	w, counts := semaphoreAt(a, o)
	size := w.size.Load()
	s := &Semaphore{
		words: w, name: a.Self(),
		size: size &^ semaphoreTransfer, moves: size&semaphoreTransfer != 0, closed: make(chan struct{}),
	}
	s.init(a, o, recordQueueWords{&w.commit, &w.first, &w.last, &w.spin, &w.pays, &w.lastCPU, counts}, s)
	s.slots = recordSlots[slotShare]{
		a: a, object: o, size: semaphoreRecordBytes, slotOf: func(h slotShare) int { return h.slot },
		view: func(off arenakernel.Offset, slot int) slotShare {
			record := arenakernel.SlotRecordAt[semaphoreRecord](a, off)
			return slotShare{&record.share, slot, record}
		},
	}
	if err := s.slots.open(!bare); err != nil {
		return nil, err
	}
	if bare {
		return s, nil
	}
	own, ok := s.shareOf(s.slot)
	if !ok {
		return nil, s.corruptShares()
	}
	s.own = own
	s.opening = newOpening(a, o)
	s.queue = park.NewQueue(park.Config{
		WaitList: park.WaitList{Arena: a, Word: &w.wake, Raw: wordPtr(&w.wake), Poller: &w.poller},
		Object:   o, Word: o.Body + semaphoreWakeOff, All: true, Check: s.check, Torn: s.torn,
	})
	s.opening.waitsIn(s.queue)
	s.opening.end = s.ends
	if s.moves && s.mayOpen() {
		s.fast.Store(fastPool)
	}
	return s, nil
}

// shares returns the shares of all slots whose participants have opened s.
func (s *Semaphore) shares() *recordSlotList[slotShare] { return s.slots.load() }

// shareOf returns the share of a slot.
func (s *Semaphore) shareOf(slot int) (h slotShare, ok bool) {
	if s.own.semaphoreShare != nil && slot == s.own.slot {
		return s.own, true
	}
	return s.slots.of(slot)
}

// recordAt returns the record of the participant in a slot. The recordQueue calls it.
func (s *Semaphore) recordAt(slot int) (r recordPlaces, ok bool) {
	h, ok := s.shareOf(slot)
	if !ok {
		return r, false
	}
	return recordPlaces{&h.record.head, &h.record.kinds, &h.record.entries}, true
}

// The kinds of the words of a Semaphore that records change, beside the words of the queue. A record names a word
// of a share by its kind and its slot.
const (
	semFree = recordOwnKinds + iota
	semFreeHigh
	semOpened
	semName
	semPermits
	semPermitsHigh
	semFast
)

// wordAt returns the word of s that a record names by the parameters kind and where. The recordQueue calls it.
func (s *Semaphore) wordAt(kind uint8, where uint32) *atomic.Uint64 {
	switch kind {
	case semFree:
		return &s.words.free
	case semFreeHigh:
		return &s.words.freeHigh
	case semOpened:
		return &s.words.opened
	}
	h, ok := s.shareOf(int(where))
	if !ok {
		return nil
	}
	switch kind {
	case semName:
		return &h.name
	case semPermits:
		return &h.permits
	case semPermitsHigh:
		return &h.permitsHigh
	case semFast:
		return &h.fast
	}
	return nil
}

func (s *Semaphore) corrupt(detail string) error {
	return failed(s.a, s.object, "semaphore.change", shmsync.ErrCorrupt, nil, detail)
}

// corruptShares returns the error of a call that cannot find the shares of the Semaphore.
func (s *Semaphore) corruptShares() error {
	return failed(s.a, s.object, "semaphore.acquire", shmsync.ErrCorrupt, nil, "its list of slot records")
}

// owner returns the participant to which the share h belongs after the change x.
func (h *semaphoreShare) owner(x *recordedChange) arenakernel.ParticipantID {
	return arenakernel.ParticipantID(x.get(&h.name)) & arenakernel.ParticipantIDMask
}

// permitsIn returns how many permits the share h has after the change x.
func (h *semaphoreShare) permitsIn(x *recordedChange) uint64 {
	return uint64(x.get(&h.permits)) | uint64(x.get(&h.permitsHigh))<<32
}

func (h slotShare) setPermits(x *recordedChange, n uint64) {
	x.set(semPermits, uint32(h.slot), &h.permits, uint32(n))
	x.set(semPermitsHigh, uint32(h.slot), &h.permitsHigh, uint32(n>>32))
}

// fold extends the change x, so that x makes the unused permits of the share h free. It closes the word of the share at
// once. That is correct even if x does not take effect: the unused permits stay free, but from then on only a record
// can take them.
func (s *Semaphore) fold(x *recordedChange, h slotShare) {
	spare := min(shut(&h.fast).spare(), h.permitsIn(x))
	if valueIn(&h.fast) == 0 {
		return
	}
	x.set(semFast, uint32(h.slot), &h.fast, 0)
	h.setPermits(x, h.permitsIn(x)-spare)
	s.setFree(x, s.freeIn(x)+spare)
}

// shut clears the bit named open of a word, so that only records change the word from then on. It returns the new
// value.
func shut(w *atomic.Uint64) fastWord {
	for {
		q := fastWord(w.Load())
		// sync(semaphore.fast): acquire
		if !q.open() {
			return q
		}
		if w.CompareAndSwap(uint64(q), uint64(q.closed())) {
			return q.closed()
		}
	}
}

// freeIn returns how many permits are in the pool, where any participant may take them, after the change x. It
// closes the pool first, so that the number cannot change until x takes effect or fails.
func (s *Semaphore) freeIn(x *recordedChange) uint64 {
	if s.moves {
		shut(&s.words.free)
	}
	return uint64(x.get(&s.words.free))&fastMost | uint64(x.get(&s.words.freeHigh))<<31
}

// setFree extends the change x, so that n permits are in the pool after x. In a transferable Semaphore, x also opens
// the pool if no wait is queued after x. So the changes of the queue have to be in x before the call.
func (s *Semaphore) setFree(x *recordedChange, n uint64) {
	low := uint32(n & fastMost)
	if s.moves && s.mayOpen() && s.empty(x) {
		low |= fastOpenValue
	}
	x.set(semFree, 0, &s.words.free, low)
	x.set(semFreeHigh, 0, &s.words.freeHigh, uint32(n>>31))
}
