package prims

import (
	"slices"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// semaphoreShares are the shares of a Semaphore, in the order in which they came. A share lies in the
// slot record of its slot, and stays there until the Semaphore is deleted. So each handle remembers
// where the shares are, and looks at the list of records only when that has changed.
type semaphoreShares struct {
	head uint32 // the latest slot record when the list was read
	all  []slotShare
	err  error // an error in the list; all has the shares before it, and those that were known earlier
}

// slotShare is the share of a slot.
type slotShare struct {
	*semaphoreShare
	slot int
	off  arenakernel.Offset // of the slot record
}

// readSemaphoreShares reads the list of the slot records of o.
func readSemaphoreShares(a *arenakernel.Arena, o arenakernel.Object) *semaphoreShares {
	r := &semaphoreShares{head: a.SlotRecords(o).Load()}
	r.err = a.EachSlotRecord(o, semaphoreRecordBytes, func(off arenakernel.Offset, slot int) bool {
		r.all = append(r.all, slotShare{&arenakernel.SlotRecordAt[semaphoreRecord](a, off).share, slot, off})
		return true
	})
	slices.Reverse(r.all)
	return r
}

// buildSemaphore makes a handle. That of a reaper is bare: it has no share, and cannot wait.
func buildSemaphore(a *arenakernel.Arena, o arenakernel.Object, bare bool) (*Semaphore, error) {
	w, queueLock := semaphoreAt(a, o)
	size := w.size.Load()
	s := &Semaphore{
		words: w, records: a.SlotRecords(o), a: a, object: o, name: a.Self(),
		size: size &^ semaphoreTransfer, moves: size&semaphoreTransfer != 0, closed: make(chan struct{}),
	}
	if !bare {
		record, err := a.SlotRecord(o, semaphoreRecordBytes)
		if err != nil {
			return nil, err
		}
		s.own = &arenakernel.SlotRecordAt[semaphoreRecord](a, record).share
	}
	shares := readSemaphoreShares(a, o)
	if shares.err != nil {
		return nil, shares.err
	}
	s.known.Store(shares)
	base := shares.base(a)
	if len(shares.all) > 0 {
		s.baseOff = shares.all[0].off
	}
	s.mon = buildMonitorAt(a, o, o.Body, w.places(queueLock, base), s, bare)
	s.mon.logged = s.logged
	s.mon.opening.end = s.end
	if s.moves && !s.byLatch() {
		s.fast.Store(fastPool)
	}
	s.fifo = fifo{s.mon, &base.queue}
	return s, nil
}

// base returns the record with the words that belong to no share: the oldest one. An object without
// records has never been used. A tool that reads it gets an empty base that nobody else sees.
func (r *semaphoreShares) base(a *arenakernel.Arena) *semaphoreRecord {
	if len(r.all) == 0 {
		return new(semaphoreRecord)
	}
	return arenakernel.SlotRecordAt[semaphoreRecord](a, r.all[0].off)
}

// shares returns all shares of s. A share that is known stays known, whatever a peer makes of the list.
//
// A participant puts its record on the list when it opens s, before it takes the queue lock for the
// first time. So the holder of the queue lock finds each share that has, or may get, a permit.
func (s *Semaphore) shares() *semaphoreShares {
	for {
		known := s.known.Load()
		if known.head == s.records.Load() {
			return known
		}
		r := readSemaphoreShares(s.a, s.object)
		r.all = withKnown(known.all, r.all, func(h slotShare) int { return h.slot }, s.a.MaxParticipants())
		// The loop ends: if the swap fails, another goroutine has read the list.
		if s.known.CompareAndSwap(known, r) {
			return r
		}
	}
}

// shareOf is the share of a slot, or nil.
func (s *Semaphore) shareOf(slot int) *semaphoreShare {
	for _, h := range s.shares().all {
		if h.slot == slot {
			return h.semaphoreShare
		}
	}
	return nil
}

// logged returns the word of a share, or of the base, that is at off, or nil if the redo log may not
// name that word. The maker of the record may not have published its block yet, so there may be no
// [arenakernel.At] of these words.
func (s *Semaphore) logged(off arenakernel.Offset) *atomic.Uint64 {
	if off == s.baseOff+semaphoreAccountedOff {
		return s.mon.words.accounted
	}
	for _, h := range s.shares().all {
		switch off {
		case h.off + semaphoreNameOff:
			return &h.name
		case h.off + semaphorePermitsOff:
			return &h.permits
		case h.off + semaphoreFastOff:
			return &h.fast
		}
	}
	return nil
}

// corruptShares is the error of a Semaphore whose shares cannot be found.
func (s *Semaphore) corruptShares() error {
	return s.mon.fail("semaphore.acquire", shmsync.ErrCorrupt, nil, "its list of slot records")
}
