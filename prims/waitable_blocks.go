package prims

import (
	"slices"
	"strings"
	"sync/atomic"

	"github.com/shmsync/shmsync/asm"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var _ = crashpoint.Register("waitable.block.pushed")

// waitableBlocks are the additional blocks of a Waitable that a handle knows.
type waitableBlocks struct {
	head  uint32          // the head of the list of slot records when the blocks were read; see findBlocks
	holds []*waitableHold // the holds of the blocks, the oldest block first
	texts []waitableText
}

// waitableText is the text in a waitableTextBlock, and the slot to which it belongs.
type waitableText struct {
	slot int
	text *[waitableTextBytes]byte
}

// findBlocks returns all additional blocks. A block stays until the Waitable is deleted. So the list is read only if it
// has changed. If a peer has overwritten the list, findBlocks returns an error, and the blocks that the handle knew
// before.
func (x *waitableCore) findBlocks() (*waitableBlocks, error) {
	for {
		known, head := x.blocks.Load(), x.slots.head.Load()
		if known.head == head {
			return known, nil
		}
		var added []*waitableBlock // the latest first
		all := &waitableBlocks{head: head, holds: slices.Clip(known.holds), texts: slices.Clip(known.texts)}
		err := x.a.EachAddedBlock(x.object, waitableRecordBytes, head, known.head, func(off arenakernel.Offset, size uint64) {
			b := arenakernel.SlotRecordAt[waitableBlock](x.a, off)
			added = append(added, b)
			// A peer may be overwriting textOf, so the size of the block says whether the block has a text.
			if slot := atomic.LoadUint32(&b.textOf); slot != 0 && size >= waitableTextBlockBytes {
				all.texts = append(all.texts, waitableText{int(slot), &arenakernel.SlotRecordAt[waitableTextBlock](x.a, off).text})
			}
		})
		if err != nil {
			return known, err
		}
		for _, b := range slices.Backward(added) {
			for i := range b.holds {
				all.holds = append(all.holds, &b.holds[i])
			}
		}
		// A failed CAS means that another goroutine of this process has stored a list, so the loop is lock-free.
		if x.blocks.CompareAndSwap(known, all) {
			return all, nil
		}
	}
}

// addBlock adds a block with holds, if the list of slot records still begins with head. If slot is not 0, the block has
// room for the text of a panic in that slot. added is false if the list begins with another record, because another
// call has pushed one meanwhile.
func (x *waitableCore) addBlock(head uint32, slot int) (added bool, err error) {
	size := uint64(waitableRecordBytes)
	if slot != 0 {
		size = waitableTextBlockBytes
	}
	off, err := x.a.AddBlock(x.object, size, head, func(off arenakernel.Offset) {
		arenakernel.SlotRecordAt[waitableBlock](x.a, off).textOf = uint32(slot)
	})
	if off != 0 {
		crashpoint.Hit("waitable.block.pushed")
	}
	return off != 0, err
}

// textIn returns the memory for the text of a panic in a slot, or nil if there is none.
func (x *waitableCore) textIn(slot int) *[waitableTextBytes]byte {
	known, _ := x.findBlocks()
	for _, t := range known.texts {
		if t.slot == slot {
			return t.text
		}
	}
	return nil
}

// ownText returns the memory for the text of a panic in this process. The first panic in a slot adds a block for the
// text. ownText returns nil if the arena has no room for the block. The caller holds x.private.
func (x *waitableCore) ownText() *[waitableTextBytes]byte {
	for added := false; ; {
		// The loop repeats after another call has pushed a block or a slot record, and once after this call has pushed
		// its block.
		head := x.slots.head.Load()
		if at := x.textIn(x.slot); at != nil || added {
			return at
		}
		var err error
		if added, err = x.addBlock(head, x.slot); err != nil {
			return nil
		}
	}
}

// textOf returns the text of the panic by which the participant n made x not recoverable. A peer may have overwritten
// the text. If x is recovered during the call, the next panic of n may overwrite the text while textOf copies it. Then
// textOf finds that the word lostBy has changed, because n reads this word before it writes the text.
func (x *waitableCore) textOf(n arenakernel.ParticipantID) string {
	at := x.textIn(n.Slot())
	if at == nil {
		return "the text of its panic was not stored"
	}
	var text [waitableTextBytes]byte
	lost := recordedWord(x.words.lostBy.Load())
	copyText(&text, at)
	asm.LoadFence()
	if lost.participant() != n || recordedWord(x.words.lostBy.Load()) != lost {
		return "the text of its panic is gone, because a Recover has ended meanwhile"
	}
	before, _, _ := strings.Cut(string(text[:]), "\x00")
	return strings.ToValidUTF8(before, "")
}

// copyText copies the text of a panic into a waitableTextBlock, or out of it. The race detector, which checks the arenas
// of package arenatest, must not see the copy: textOf may copy a text that is being overwritten.
//
//go:norace
func copyText(to, from *[waitableTextBytes]byte) { *to = *from }
