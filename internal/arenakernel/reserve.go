package arenakernel

import (
	"encoding/binary"

	"github.com/shmsync/shmsync/shm"
)

// discardOf returns the function discard of this participant, which gives memory back to the file system and sets its
// bytes to 0. If this participant has no byte lock, discard does nothing. Without the byte lock, a reaper could free
// the chunks of a dying process while its call of discard is in progress. This call could then set bytes to 0
// that another participant already uses.
func (a *Arena) discardOf(seg *shm.Segment) func(off, n uint64) {
	return func(off, n uint64) {
		if a.lock != nil {
			seg.Discard(int64(off), int64(n)) // if this fails, the memory stays, and helps the next allocation here
		}
	}
}

// restoreReservations makes sure that memory backs every part that is marked as backed in the words of
// the arena. In a copy of the file, pages of zeros may be holes. If memory is full, an access to a hole
// kills the process.
//
// The check compares numbers of pages. Outside the parts that should be backed, the file contains
// only zeros. So a copy with holes has fewer pages than the words require. If a file has at least
// as many pages as the words require, there is nothing to restore. The number of pages is exact if
// the file system counts every page of the file, and nothing else.
func (a *Arena) restoreReservations() error {
	reserved, err := a.reservedInFile()
	if err != nil {
		return err
	}
	believed := a.geo.fixedEnd() + reserved*(chunkSize+chunkWordsSize)
	backed, exact := backedBytes(a.seg.File())
	if backed >= believed && exact {
		return nil
	}
	if err := a.reserve(0, a.geo.fixedEnd()); err != nil {
		return err
	}
	if backed, _ = backedBytes(a.seg.File()); backed >= believed {
		return nil
	}
	for i := range a.geo.chunkCount {
		if !a.loadChunk(i).reserved() {
			continue
		}
		if err := a.reserve(uint64(a.chunkOff(i)), chunkSize); err != nil {
			return err
		}
		if err := a.reserve(uint64(a.placeOfBlockWord(i, 0)), chunkWordsSize); err != nil {
			return err
		}
	}
	return nil
}

// reservedInFile counts the chunks that are marked as reserved. It reads the words from the file, and
// not through the mapping, where the read of a hole would allocate memory.
func (a *Arena) reservedInFile() (count uint64, err error) {
	words := make([]byte, min(a.geo.chunkCount*8, 64<<10))
	for i := uint64(0); i < a.geo.chunkCount; {
		part := words[:min(uint64(len(words)), (a.geo.chunkCount-i)*8)]
		if _, err := a.seg.File().ReadAt(part, int64(a.geo.chunksOff+i*8)); err != nil {
			return 0, a.fail("arena.open", err, "cannot read which chunks have memory")
		}
		for k := 0; k < len(part); k += 8 {
			if chunkWord(binary.LittleEndian.Uint64(part[k:])).reserved() {
				count++
			}
		}
		i += uint64(len(part)) / 8
	}
	return count, nil
}
