package prims

import (
	"iter"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var _ = crashpoint.Register("waitable.wait.accepted")

// A hold is in one of two places. Each slot record has one hold, for the participants of the slot only. All other holds
// are in additional blocks, and any participant can use them. So a search for the hold of a participant visits its slot
// record and the blocks.

// holdPlace is a hold and its index; see holdAt. In the zero holdPlace there is no hold.
type holdPlace struct {
	*waitableHold
	index uint32
}

// waitableAdded is the index of the first hold that is in a block. A smaller index is the number of a slot.
const waitableAdded = 1 << recordSlotBits

// holdAt returns the hold with an index, or nil if there is none. An index below waitableAdded is the number of the
// slot whose slot record has the hold. The indexes from waitableAdded on count the holds of the blocks, from the oldest
// block on. New blocks come last, so the index of a hold never changes.
func (x *waitableCore) holdAt(index uint32) *waitableHold {
	if index < waitableAdded {
		if r := x.slotRecord(int(index)); r != nil {
			return &r.hold
		}
		return nil
	}
	index -= waitableAdded
	known := x.blocks.Load()
	if index >= uint32(len(known.holds)) {
		if known, _ = x.findBlocks(); index >= uint32(len(known.holds)) {
			return nil
		}
	}
	return known.holds[index]
}

// ofSlot returns the hold in the slot record of the participant n, or the zero holdPlace if n has no slot
// record.
func (x *waitableCore) ofSlot(n arenakernel.ParticipantID) holdPlace {
	if r := x.slotRecord(n.Slot()); r != nil {
		return holdPlace{&r.hold, uint32(n.Slot())}
	}
	return holdPlace{}
}

// everyHold returns all holds. If the list of blocks has an error, everyHold leaves out the holds of blocks that this
// handle does not know.
func (x *waitableCore) everyHold() iter.Seq[holdPlace] {
	return func(yield func(holdPlace) bool) {
		for _, s := range x.slots.load().all {
			if !yield(holdPlace{&s.record.hold, uint32(s.slot)}) {
				return
			}
		}
		known, _ := x.findBlocks()
		for i, h := range known.holds {
			if !yield(holdPlace{h, waitableAdded + uint32(i)}) {
				return
			}
		}
	}
}

// isOf reports whether the hold is labelled for the participant n and one value of E. The parameter extra is that
// value.
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

// counted returns the number of claims of the hold that are held, or 0 if there is no hold.
func (h holdPlace) counted() uint32 {
	if h.waitableHold == nil {
		return 0
	}
	return valueIn(&h.count)
}

// labelOf returns the hold that is labelled for the claims of the participant n for one value of E. If there is none,
// it returns no hold, and an error if it could not visit all holds. There are never two: a record labels a hold only if
// its author has found no other hold with the same label.
//
// The caller has carried out the record of the commit word, and labelOf looks for new blocks after that. So it visits
// each block in which an earlier record has labelled a hold. The caller holds x.private.
func (x *waitableCore) labelOf(n arenakernel.ParticipantID, extra uint64) (holdPlace, error) {
	if h := x.ofSlot(n); h.waitableHold != nil && h.isOf(n, extra) {
		return h, nil
	}
	return x.labelInBlocks(n, extra)
}

// labelInBlocks does what labelOf does, for the holds in blocks.
func (x *waitableCore) labelInBlocks(n arenakernel.ParticipantID, extra uint64) (holdPlace, error) {
	known, err := x.findBlocks()
	if last := x.lastHold; last < len(known.holds) && known.holds[last].isOf(n, extra) {
		return holdPlace{known.holds[last], waitableAdded + uint32(last)}, nil
	}
	for i, h := range known.holds {
		switch name := valueIn(&h.name); {
		case name == uint32(n) && h.extra() == extra:
			x.lastHold = i
			return holdPlace{h, waitableAdded + uint32(i)}, nil
		case name == 0: // no later hold was ever used: the method place takes the first free one
			return holdPlace{}, err
		}
	}
	return holdPlace{}, err
}

// place finds the hold that can count one more claim: the hold that is labelled for the claim, or else a free one. If
// labelled is false, the hold is free, and the caller has to label it. If place has found a hold, r is ruleAllows. If r
// is noHold, the caller can add holds by addHolds. The caller holds x.private.
func (x *waitableCore) place(n arenakernel.ParticipantID, extra uint64) (h holdPlace, r claimResult, labelled bool) {
	x.room = x.slots.head.Load() // before the search; see addHolds
	h, err := x.labelOf(n, extra)
	switch {
	case h.waitableHold != nil && valueIn(&h.count) < waitableCount:
		return h, ruleAllows, true
	case h.waitableHold != nil:
		return h, holdFull, true
	case err != nil:
		return h, holdsDamaged, false
	}
	if h = x.ofSlot(n); h.waitableHold != nil && h.free() {
		return h, ruleAllows, false
	}
	for i, h := range x.blocks.Load().holds {
		if h.free() {
			return holdPlace{h, waitableAdded + uint32(i)}, ruleAllows, false
		}
	}
	return holdPlace{}, noHold, false
}

// addHolds adds a block, after place has found no hold for the change c. The caller then tries again. If several
// calls find no hold at the same time, only one of them adds a block. The caller holds x.private.
func (x *waitableCore) addHolds(c *recordedChange) error {
	if x.load() != c.c {
		return nil // the words that the method place has read may belong to different states
	}
	_, err := x.addBlock(x.room, 0)
	return err
}

// label labels the free hold h, as a part of the change c. Then h counts the claims of the participant n for one value
// of E.
func (x *waitableCore) label(c *recordedChange, h holdPlace, n arenakernel.ParticipantID, extra uint64) {
	c.set(waitableNameWord, h.index, &h.name, uint32(n))
	c.set(waitableLowWord, h.index, &h.extraLow, uint32(extra))
	c.set(waitableHighWord, h.index, &h.extraHigh, uint32(extra>>32))
}

func (x *waitableCore) setCount(c *recordedChange, h holdPlace, count uint32) {
	c.set(waitableCountWord, h.index, &h.count, count)
}

func (x *waitableCore) setGranted(c *recordedChange, h holdPlace, granted uint32) {
	c.set(waitableGrantedWord, h.index, &h.granted, granted)
}

// accept records that a wait of this process has accepted its claim. The parameter extra is the value of E for which
// the claim was granted. While a claim is not accepted, its hold is not free, so the hold keeps its label. A free hold
// may get a new label while accept examines it, so accept reads the label before and after the counts.
func (x *waitableCore) accept(extra uint64) {
	if x.own.hold.accept(x.name, extra) {
		return
	}
	known, _ := x.findBlocks()
	for _, h := range known.holds {
		if valueIn(&h.name) == 0 || h.accept(x.name, extra) {
			return
		}
	}
}

// accept does what waitableCore.accept does, if h is the hold of the claim. It reports whether it did.
func (h *waitableHold) accept(by arenakernel.ParticipantID, extra uint64) bool {
	for {
		// The loop repeats only if another goroutine of this process accepts a claim at the same time.
		label := h.label()
		if !h.isOf(by, extra) {
			return false
		}
		n := h.accepted.Load()
		// If the label, with its tags, is the same as before, the granted claims that were just read belong to
		// this label.
		if uint32(n) == valueIn(&h.granted) || h.label() != label {
			return false
		}
		if h.accepted.CompareAndSwap(n, n+1) {
			crashpoint.Hit("waitable.wait.accepted")
			return true
		}
	}
}

// label returns the words that say whose claims the hold counts, and for which value of E.
func (h *waitableHold) label() [3]uint64 {
	return [3]uint64{h.name.Load(), h.extraLow.Load(), h.extraHigh.Load()}
}

// participant returns the value of w, which is the ID of a participant.
func (w recordedWord) participant() arenakernel.ParticipantID {
	return arenakernel.ParticipantID(w.value() & arenakernel.ParticipantIDMask)
}
