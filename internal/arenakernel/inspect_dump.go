package arenakernel

import (
	"bytes"
	"time"
)

// EachPart calls f for the parts of the arena that a report needs, in order: everything before the heap, then wait
// nodes and objects. It leaves out user data (blocks of Alloc, values, items) unless the parameter named data is true.
// f must not keep the bytes. If a part of the file could not be read since the last Refresh, its bytes are zero or
// missing, and the result is an error.
func (i *Inspector) EachPart(data bool, f func(off uint64, b []byte) error) error {
	a := i.a
	a.findWaitsOfCopy() // find the waits first, so that the waits in the report are not older than the holds
	if err := i.part(0, a.geo.heapOff, nil, f); err != nil {
		return err
	}
	for c := a.chunkFrom(0); c < a.geo.chunkCount; c = a.chunkFrom(c + 1) {
		w := a.loadChunk(c)
		if !w.legal(c, a.geo.chunkCount) || !w.reserved() || w.kind() == chunkFree || w.kind() == chunkTail {
			continue
		}
		off, size := uint64(a.chunkOff(c)), uint64(chunkSize)
		if w.kind() == chunkHead {
			size *= w.number()
		}
		keep := i.objectsOnly
		if data || w.slabOf(classNode) {
			keep = nil
		}
		if err := i.part(off, size, keep, f); err != nil {
			return err
		}
	}
	return i.img.Err()
}

// part passes size bytes at off to f, in pieces. It skips holes of the file, and pieces that contain only zeros. If keep
// is not nil, keep first clears the bytes that must not be in the report.
func (i *Inspector) part(off, size uint64, keep func(off uint64, b []byte), f func(off uint64, b []byte) error) error {
	for size > 0 {
		if data := i.a.data(off); data > off {
			hole := min(size, data-off)
			off, size = off+hole, size-hole
			continue
		}
		n := min(size, chunkSize-off%chunkSize)
		b := append([]byte(nil), i.a.slice(Offset(off), n)...)
		if keep != nil {
			keep(off, b)
		}
		if !zero(b) {
			if err := f(off, b); err != nil {
				return err
			}
		}
		off, size = off+n, size-n
	}
	return nil
}

// lasting reports whether the block b was a slot record of the same object all the time since the
// copy was begun. Parts of the copy are read at different times. So if the object was made or
// deleted in the meantime, the copy may contain bytes from an earlier or later use of the block.
//
// Preconditions: the second result of recordWords is true for b, and the copy contains b.
func (i *Inspector) lasting(b block) bool {
	o, _ := i.a.locate(Offset(i.a.peek64(b.off + recordObject)))
	return i.lastingObject(o) && i.stillIs(b, SlotRecordHeader)
}

// lastingObject reports, as the method lasting does, whether the block o was the same object all the
// time since the copy was begun.
//
// Preconditions: the copy contains the header of o.
func (i *Inspector) lastingObject(o block) bool {
	created := int64(i.a.peek64(o.off + objCreated))
	// A creation time in the future means that the clock was set back since. The code assumes that
	// this did not happen while the copy was made.
	return (created < i.began || created > time.Now().UnixNano()) && i.sameObject(o)
}

// sameObject reports whether the block o is the same object in the file as in the copy.
func (i *Inspector) sameObject(o block) bool {
	return i.unchanged(o.off, objState) && i.unchanged(o.off+objNameOff, objRecords-objNameOff) && i.stillIs(o, 0)
}

// IsThere reports whether the object o, which is in the copy, is still in the file. If so, all bytes that the caller
// has read from the place of o since the copy was made belong to o.
func (i *Inspector) IsThere(o Object) bool {
	b, ok := i.a.locate(o.Offset)
	return ok && i.sameObject(b)
}

// stillIs reports whether the block word of b and the first n bytes of b are the same in the file as in the copy. If
// so, the block word in the copy describes these bytes, although the copy may have the word and the bytes from
// different times.
func (i *Inspector) stillIs(b block, n uint64) bool {
	return i.unchanged(i.a.placeOfBlockWord(b.chunk, b.index), blockWordSize) && i.unchanged(b.off, n)
}

// unchanged reports whether the file has the same n bytes at off as the copy.
func (i *Inspector) unchanged(off Offset, n uint64) bool {
	now := make([]byte, n)
	_, err := i.img.File().ReadAt(now, int64(off))
	return err == nil && bytes.Equal(now, i.a.slice(off, n))
}

func zero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// objectsOnly clears all bytes of b that do not belong to an object, and the user data of objects.
// The parameter b contains the bytes of the arena from off.
func (i *Inspector) objectsOnly(off uint64, b []byte) {
	a, kept := i.a, make([]byte, len(b))
	// each calls do with the part of b that overlaps the n bytes at the offset from, and with the same part of
	// kept.
	each := func(from, n uint64, do func(dst, src []byte)) {
		lo, hi := max(from, off), min(from+n, off+uint64(len(b)))
		if lo < hi {
			do(kept[lo-off:hi-off], b[lo-off:hi-off])
		}
	}
	for at := off; at < off+uint64(len(b)); {
		blk, ok := a.holding(Offset(at))
		if !ok {
			at += blockMin
			continue
		}
		at = uint64(blk.off) + blk.size
		if i.records.isRecord(blk, blk.load()) {
			n, known := a.recordWords(blk)
			if !known || !i.lasting(blk) {
				if n = SlotRecordHeader; !i.stillIs(blk, n) {
					n = 0 // the bytes may be those of a user
				}
			}
			each(uint64(blk.off), n, func(dst, src []byte) { copy(dst, src) })
		}
		if blk.load().kind() != blockObject {
			continue
		}
		h, err := a.readHeader(blk)
		if err != nil || !i.lastingObject(blk) {
			if i.stillIs(blk, objectHeader) { // otherwise the bytes may be those of a user
				each(uint64(blk.off), objectHeader, func(dst, src []byte) { copy(dst, src) })
			}
			continue
		}
		each(uint64(blk.off), blk.size, func(dst, src []byte) { copy(dst, src) })
		hide := func(from Offset, n uint64) {
			each(uint64(h.Body)+min(uint64(from), h.Size), min(n, h.Size-min(uint64(from), h.Size)), func(dst, _ []byte) { clear(dst) })
		}
		if ops, known := opsOf(h.Object); known && ops.Inspect != nil {
			if ops.UserData != nil {
				i.fetchBody(h.Object)
				ops.UserData(a, h.Object, hide)
			}
		} else {
			hide(0, h.Size)
		}
	}
	copy(b, kept)
}
