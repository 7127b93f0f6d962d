package prims

import (
	"slices"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// eventShares are the shares of an auto-reset Event, in the order in which they came. A share lies in
// the slot record of its slot, and stays there until the Event is deleted. So each handle remembers
// where the shares are, and looks at the list of records only when that has changed.
type eventShares struct {
	head uint32 // the latest slot record when the list was read
	all  []eventShare
	err  error // an error in the list; all has the shares before it, and those that were known earlier
}

// eventShare is the share of a slot.
type eventShare struct {
	*eventRecord
	slot int
	off  arenakernel.Offset
}

// readEventShares reads the list of the slot records of o.
func readEventShares(a *arenakernel.Arena, o arenakernel.Object) *eventShares {
	r := &eventShares{head: a.SlotRecords(o).Load()}
	r.err = a.EachSlotRecord(o, eventRecordBytes, func(off arenakernel.Offset, slot int) bool {
		r.all = append(r.all, eventShare{arenakernel.SlotRecordAt[eventRecord](a, off), slot, off})
		return true
	})
	slices.Reverse(r.all)
	return r
}

// buildAutoEvent makes a handle. That of a reaper is bare: it has no share, and cannot wait.
func buildAutoEvent(a *arenakernel.Arena, o arenakernel.Object, bare bool) (*autoEvent, error) {
	w, queueLock := autoEventAt(a, o)
	x := &autoEvent{
		words: w, state: &w.value, next: &w.next, records: a.SlotRecords(o), name: a.Self(), a: a, object: o,
	}
	if !bare {
		record, err := a.SlotRecord(o, eventRecordBytes)
		if err != nil {
			return nil, err
		}
		x.own = arenakernel.SlotRecordAt[eventRecord](a, record)
	}
	shares := readEventShares(a, o)
	if shares.err != nil {
		return nil, shares.err
	}
	x.known.Store(shares)
	// An object without records has never been used. A tool that reads it gets an empty base that nobody
	// else sees.
	base := new(eventRecord)
	if len(shares.all) > 0 {
		base, x.baseOff = shares.all[0].eventRecord, shares.all[0].off // the oldest record
	}
	x.mon = buildMonitorAt(a, o, o.Body, w.places(queueLock, base), x, bare)
	x.mon.logged = x.logged
	x.mon.queueLock.alsoCheck = x.check
	x.fifo = fifo{x.mon, &base.queue}
	return x, nil
}

// shares returns all shares of x. A share that is known stays known, whatever a peer makes of the list.
//
// A participant puts its record on the list when it opens x, before it takes the queue lock for the
// first time. So the holder of the queue lock finds each share that has, or may get, a token.
func (x *autoEvent) shares() *eventShares {
	for {
		known := x.known.Load()
		if known.head == x.records.Load() {
			return known
		}
		r := readEventShares(x.a, x.object)
		r.all = withKnown(known.all, r.all, func(h eventShare) int { return h.slot }, x.a.MaxParticipants())
		// The loop ends: if the swap fails, another goroutine has read the list.
		if x.known.CompareAndSwap(known, r) {
			return r
		}
	}
}

// shareOf is the share of a slot, or nil.
func (x *autoEvent) shareOf(slot int) *eventRecord {
	for _, h := range x.shares().all {
		if h.slot == slot {
			return h.eventRecord
		}
	}
	return nil
}

// lacksShareOf reports whether a peer has damaged the list of records, so that this handle cannot find the share of a
// wait. It could not record that the wait was handed a token. The handle with which the wait was begun knows it.
func (x *autoEvent) lacksShareOf(w wait) bool {
	return x.shares().err != nil && x.shareOf(w.Owner().Slot()) == nil
}

// logged returns the word of a share, or of the base, that is at off, or nil if the redo log may not
// name that word. The maker of the record may not have published its block yet, so there may be no
// [arenakernel.At] of these words.
func (x *autoEvent) logged(off arenakernel.Offset) *atomic.Uint64 {
	if off == x.baseOff+eventAccountedOff {
		return x.mon.words.accounted
	}
	for _, h := range x.shares().all {
		switch off {
		case h.off + eventNameOff:
			return &h.name
		case h.off + eventHandedOff:
			return &h.handed
		}
	}
	return nil
}

// corruptShares is the error of an Event whose shares cannot be found.
func (x *autoEvent) corruptShares() error {
	return x.mon.fail("event.wait", shmsync.ErrCorrupt, nil, "its list of slot records")
}
