package prims

import (
	"slices"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// semaphoreShares are the shares of a Semaphore, in the order in which they came. A share lies in the
// slot record of its slot, and stays there until the Semaphore is deleted. So each handle remembers
// where the shares are, and looks at the list of records only when that has changed.
type semaphoreShares struct {
	head uint32 // the latest slot record when the list was read
	all  []slotShare
	err  error // what is wrong with the list; all has those in front of the mistake
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
	s.mon.logs = s.logs
	s.mon.opening.end = s.end
	if s.moves && !s.byLatch() {
		s.fast.Store(fastPool)
	}
	s.fifo = fifo{s.mon, &base.queue}
	return s, nil
}

// base returns the record with the words that belong to no share: the oldest one. An object without
// records has never been used, and gets an empty base that nobody else sees.
func (r *semaphoreShares) base(a *arenakernel.Arena) *semaphoreRecord {
	if len(r.all) == 0 {
		return new(semaphoreRecord)
	}
	return arenakernel.SlotRecordAt[semaphoreRecord](a, r.all[0].off)
}

// shares returns all shares of s.
//
// A participant puts its record on the list when it opens s, before it takes the queue lock for the
// first time. So the holder of the queue lock finds each share that has, or may get, a permit.
func (s *Semaphore) shares() *semaphoreShares {
	if r := s.known.Load(); r.head == s.records.Load() {
		return r
	}
	r := readSemaphoreShares(s.a, s.object)
	s.known.Store(r)
	return r
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

// logs reports whether the redo log may name the word at off, which is not in the body: a share.
func (s *Semaphore) logs(off arenakernel.Offset) bool {
	return slices.ContainsFunc(s.shares().all, func(h slotShare) bool {
		return off >= h.off+semaphoreShareOff && off < h.off+2*semaphoreShareOff
	}) || s.baseOff != 0 && off == s.baseOff+semaphoreAccountedOff
}

// corruptShares is the error of a Semaphore whose shares cannot be found.
func (s *Semaphore) corruptShares() error {
	return s.mon.fail("semaphore.acquire", shmsync.ErrCorrupt, nil, "its list of slot records")
}
