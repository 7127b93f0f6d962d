package prims

import (
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var _ = crashpoint.Register("waitable.wait.accepted")

// isOf reports whether the hold is labelled for the participant n and the value extra of E.
func (h *waitableHold) isOf(n arenakernel.ParticipantID, extra uint64) bool {
	return valueIn(&h.name) == uint32(n) && h.extra() == extra
}

// extra returns the value of E for which the claims of the hold were made.
func (h *waitableHold) extra() uint64 {
	return uint64(valueIn(&h.extraHigh))<<32 | uint64(valueIn(&h.extraLow))
}

func (h *waitableHold) participant() arenakernel.ParticipantID {
	return recordedWord(h.name.Load()).participant()
}

// free reports whether the hold counts no claims and can be used for others.
func (h *waitableHold) free() bool { return valueIn(&h.count) == 0 && !h.isUnaccepted() }

// isUnaccepted reports whether the participant has not accepted all claims that its waits were granted.
func (h *waitableHold) isUnaccepted() bool {
	return valueIn(&h.granted) != uint32(h.accepted.Load())
}

// unaccepted returns how many claims of the hold were granted to waits that have not accepted them.
func (h *waitableHold) unaccepted() uint32 { return h.grantedBeyond(uint32(h.accepted.Load())) }

// grantedBeyond returns how many claims were granted beyond the given number of accepted ones.
func (h *waitableHold) grantedBeyond(accepted uint32) uint32 {
	if n := int32(valueIn(&h.granted) - accepted); n > 0 {
		return min(uint32(n), waitableCount) // bounded, because a peer may have written the counts
	}
	return 0
}

// held returns the number of claims of the hold that are held, whether they are accepted or not. It returns 0 for a
// number that only a peer can have written.
func (h *waitableHold) held() uint32 {
	if n := valueIn(&h.count); n <= waitableCount {
		return n
	}
	return 0
}

// labelOf returns the index of the hold that is labelled for the claims of the participant n for one value of E, or -1
// if there is none. There are never two, because a hold gets a label by a record whose author has found no other hold
// with that label. If there is none, unused is the index of the first hold that was never used, or -1. The holds behind
// that one were not used either, because the first free hold is used first.
func (x *waitableCore) labelOf(n arenakernel.ParticipantID, extra uint64) (index, unused int) {
	if last := x.lastHold; last < len(x.holds) && x.holds[last].isOf(n, extra) {
		return last, -1
	}
	for i, h := range x.holds {
		switch name := valueIn(&h.name); {
		case name == uint32(n) && h.extra() == extra:
			x.lastHold = i
			return i, -1
		case name == 0:
			return -1, i
		}
	}
	return -1, -1
}

// find returns the index of the hold that counts the claims of the participant n for one value of E. ok is false if n
// has no such claim.
func (x *waitableCore) find(n arenakernel.ParticipantID, extra uint64) (index int, ok bool) {
	index, _ = x.labelOf(n, extra)
	return index, index >= 0 && valueIn(&x.holds[index].count) != 0
}

// place finds a hold for one more claim: the one that is labelled for it, or a free one. ok is false if there is no
// room for the claim.
func (x *waitableCore) place(n arenakernel.ParticipantID, extra uint64) (index int, ok bool) {
	index, unused := x.labelOf(n, extra)
	if index >= 0 {
		return index, valueIn(&x.holds[index].count) < waitableCount
	}
	used := x.holds
	if unused >= 0 {
		used = used[:unused]
	}
	for i, h := range used {
		if h.free() {
			return i, true
		}
	}
	return unused, unused >= 0
}

// label adds to the change c that a free hold counts the claims of the participant n for one value of E.
func (x *waitableCore) label(c *recordedChange, index int, n arenakernel.ParticipantID, extra uint64) {
	h, at := x.holds[index], uint32(index)
	c.set(waitableNameWord, at, &h.name, uint32(n))
	c.set(waitableLowWord, at, &h.extraLow, uint32(extra))
	c.set(waitableHighWord, at, &h.extraHigh, uint32(extra>>32))
}

func (x *waitableCore) setCount(c *recordedChange, index int, count uint32) {
	c.set(waitableCountWord, uint32(index), &x.holds[index].count, count)
}

func (x *waitableCore) setGranted(c *recordedChange, index int, granted uint32) {
	c.set(waitableGrantedWord, uint32(index), &x.holds[index].granted, granted)
}

// accept records that a wait of this process has accepted the claim for one value of E that it was granted. While a
// claim is not accepted, its hold is not free, so the hold keeps its label. A free hold may get that label meanwhile,
// for another claim.
func (x *waitableCore) accept(extra uint64) {
	for _, h := range x.holds {
		if valueIn(&h.name) == 0 {
			return
		}
		for {
			// The loop repeats only if another goroutine of this process accepts a claim at the same time.
			label := h.label()
			if !h.isOf(x.name, extra) {
				break
			}
			n := h.accepted.Load()
			// If the label with its tags is the same as before, it belongs to the grants that were counted meanwhile.
			if uint32(n) == valueIn(&h.granted) || h.label() != label {
				break
			}
			if h.accepted.CompareAndSwap(n, n+1) {
				crashpoint.Hit("waitable.wait.accepted")
				return
			}
		}
	}
}

// label returns the words that say whose claims the hold counts, and for which value of E.
func (h *waitableHold) label() [3]uint64 {
	return [3]uint64{h.name.Load(), h.extraLow.Load(), h.extraHigh.Load()}
}

// participant returns the ID of a participant that is the value of w.
func (w recordedWord) participant() arenakernel.ParticipantID {
	return arenakernel.ParticipantID(w.value() & arenakernel.ParticipantIDMask)
}
