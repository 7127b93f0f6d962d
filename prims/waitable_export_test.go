//go:build linux

package prims

import (
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// Blocks returns the offsets of the additional blocks of x, the latest one first.
func (x *Waitable[S, E]) Blocks() (blocks []arenakernel.Offset) {
	x.a.EachAddedBlock(x.object, 0, x.slots.head.Load(), 0, func(off arenakernel.Offset, _ uint64) { blocks = append(blocks, off) })
	return blocks
}

// BlockWords returns the offsets of all words of the additional blocks of x, including their headers and texts.
func (x *Waitable[S, E]) BlockWords() (words []arenakernel.Offset) {
	x.a.EachAddedBlock(x.object, 0, x.slots.head.Load(), 0, func(off arenakernel.Offset, size uint64) {
		for i := range arenakernel.Offset(size / 8) {
			words = append(words, off+8*i)
		}
	})
	return words
}

// RecordWords returns the offsets of all words of the slot records of x, except those of their headers.
func (x *Waitable[S, E]) RecordWords() (words []arenakernel.Offset) {
	x.a.EachSlotRecord(x.object, 0, func(off arenakernel.Offset, _ int) bool {
		for i := arenakernel.Offset(arenakernel.SlotRecordHeader / 8); i < arenakernel.Offset(x.shape.record()/8); i++ {
			words = append(words, off+8*i)
		}
		return true
	})
	return words
}

// WaitableHoldWords are the words of a hold.
type WaitableHoldWords struct {
	Name, ExtraLow, ExtraHigh, Count, Granted, Accepted *atomic.Uint64
}

// HoldOf returns the words of the hold of this process for e, and whether the hold is in a block. It panics if there is
// no such hold.
func (x *Waitable[S, E]) HoldOf(e E) (w WaitableHoldWords, added bool) {
	x.private.Lock()
	defer x.private.Unlock()
	h, err := x.labelOf(x.name, x.pack(e))
	if h.waitableHold == nil {
		panic(err)
	}
	return WaitableHoldWords{&h.name, &h.extraLow, &h.extraHigh, &h.count, &h.granted, &h.accepted}, h.index >= waitableAdded
}

// BlockText returns the word of a block that says to which slot its text belongs.
func (x *Waitable[S, E]) BlockText(block arenakernel.Offset) *uint32 {
	return &arenakernel.SlotRecordAt[waitableBlock](x.a, block).textOf
}

// CurrentImage returns the word that names the valid image of the state.
func (x *Waitable[S, E]) CurrentImage() *atomic.Uint64 { return &x.words.current }

// YieldUntil returns the word that holds the time until which calls of other processes do not begin a change.
func (x *Waitable[S, E]) YieldUntil() *atomic.Uint64 { return &x.words.yieldUntil }
