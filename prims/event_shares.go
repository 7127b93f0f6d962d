package prims

import (
	"slices"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// eventShares has the shares of an auto-reset Event, in the order in which participants added them. A share is in the
// slot record of a slot, and stays there until the Event is deleted. So a handle remembers where the shares are. It
// reads the list of slot records again only after a change of the list.
type eventShares struct {
	head uint32 // the latest slot record when the list was read
	all  []eventShare
	err  error // an error in the list; shares behind the error may be missing in all
}

// eventShare is the slot record that has the share of a slot.
type eventShare struct {
	*eventRecord
	slot int
}

// readEventShares reads the list of the slot records of o.
func readEventShares(a *arenakernel.Arena, o arenakernel.Object) *eventShares {
	r := &eventShares{head: a.SlotRecords(o).Load()}
	r.err = a.EachSlotRecord(o, eventRecordBytes, func(off arenakernel.Offset, slot int) bool {
		r.all = append(r.all, eventShare{arenakernel.SlotRecordAt[eventRecord](a, off), slot})
		return true
	})
	slices.Reverse(r.all)
	return r
}

// The method shares returns all shares of x. Once this handle has found a share, it keeps the share, even if a
// peer overwrites the list.
//
// A participant puts its slot record on the list when it opens x, before its first wait. A wait that begins also
// changes the word of x. So a call that has missed the share of that wait cannot change the word afterwards: its CAS
// fails.
func (x *autoEvent) shares() *eventShares {
	for {
		known := x.known.Load()
		if known.head == x.records.Load() {
			return known
		}
		r := readEventShares(x.a, x.object)
		r.all = withKnown(known.all, r.all, func(h eventShare) int { return h.slot }, x.a.MaxParticipants())
		// If the CAS fails, another goroutine has read the list. So the loop is lock-free.
		if x.known.CompareAndSwap(known, r) {
			return r
		}
	}
}

// shareOf returns the share of a slot, or nil if the slot has none.
func (x *autoEvent) shareOf(slot int) *eventRecord {
	if x.own != nil && slot == x.slot {
		return x.own
	}
	for _, h := range x.shares().all {
		if h.slot == slot {
			return h.eventRecord
		}
	}
	return nil
}

// inherit gives the share in this participant's slot to this participant. The waits of the slot's previous
// participant no longer count.
func (x *autoEvent) inherit() {
	// All handles of this process on x use the same share, so only one of them may change its
	// owner at a time.
	private := privateOf(x.object)
	private.Lock()
	defer private.Unlock()
	if x.own.name.Load() == uint64(x.a.Self()) {
		return
	}
	x.countOff(x.load()) // subtracts the last wait of the slot's previous participant
	for {
		// If the CAS fails, another process has counted off the last wait.
		h := waitShare(x.own.waits.Load())
		if x.own.waits.CompareAndSwap(uint64(h), uint64(h&^waitShare(1<<32-1))) {
			break
		}
	}
	x.own.name.Store(uint64(x.a.Self()))
}

// waits returns how many waits the shares count while the word is s. The parameter most is a limit: when the number
// exceeds it, waits returns at once.
func (x *autoEvent) waits(s tokenState, most uint64) (n uint64) {
	// sync(event.announce): acquire
	if !s.announced() {
		return 0
	}
	for _, h := range x.shares().all {
		if waitShare(h.waits.Load()).waits() == 0 || !x.a.Current(arenakernel.ParticipantID(h.name.Load()&arenakernel.ParticipantIDMask)) {
			continue
		}
		// A participant that takes over a share clears the number of waits before it stores its ID in the field name. This
		// call has loaded name before the number. So the number counts no wait of an earlier participant.
		if n += waitShare(h.waits.Load()).waits(); n > most {
			break
		}
	}
	return n
}

// countOff subtracts the wait that ended when the word became s from the share of its participant, unless another call
// has done so. Every call calls countOff before it changes the word. So after a successful change, no share counts a
// wait that ended before the change.
func (x *autoEvent) countOff(s tokenState) {
	if s.slot() != 0 {
		x.countOffOf(s)
	}
}

// countOffOf does what countOff does, for a word that names a slot.
func (x *autoEvent) countOffOf(s tokenState) {
	h := x.shareOf(s.slot())
	if h == nil {
		return // a peer overwrote the word or the list of records
	}
	for {
		// If the CAS fails, a wait has begun, or another process has subtracted the wait. So the loop is
		// lock-free.
		was := waitShare(h.waits.Load())
		// If the share already has the version of s, another call has subtracted the wait. The same is true if the
		// word is no longer s, because every call that changes the word first calls countOff.
		if was.ended() == s.version() || x.load() != s || h.waits.CompareAndSwap(uint64(was), uint64(was.less(s.version()))) {
			return
		}
	}
}

// corruptShares returns the error of an Event whose shares cannot be found.
func (x *autoEvent) corruptShares() error {
	return x.fail(shmsync.ErrCorrupt, nil, "its list of slot records")
}
