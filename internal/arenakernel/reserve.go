package arenakernel

import "encoding/binary"

// restoreReservations makes sure that all that the arena believes to have memory
// behind it has. In a copy of the file, pages of zeros may be holes, and touching
// one when memory is full ends the process.
//
// A file that has as much memory as the arena believes is no such copy: what the arena does not
// believe in holds only zeros, so a copy with holes has no more pages than the arena believes in,
// less the holes. That count is exact where every page and nothing else is counted.
func (a *Arena) restoreReservations() error {
	reserved, err := a.reservedInFile()
	if err != nil {
		return err
	}
	believed := a.geo.fixedEnd() + reserved*(chunkSize+blockWords*blockWordSize)
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
		words := a.geo.blocksOff + i*blockWords*blockWordSize
		if err := a.reserve(words, blockWords*blockWordSize); err != nil {
			return err
		}
	}
	return nil
}

// reservedInFile counts the chunks that are marked reserved. It reads them from the file: through
// the mapping, a look at a hole takes memory.
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
