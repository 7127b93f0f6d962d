package arena

// restoreReservations makes sure that all that the arena believes to have memory
// behind it has. In a copy of the file, pages of zeros may be holes, and touching
// one when memory is full ends the process.
func (a *Arena) restoreReservations() error {
	if err := a.reserve(0, a.geo.fixedEnd()); err != nil {
		return err
	}
	believed := a.geo.fixedEnd()
	for i := range a.geo.chunkCount {
		if a.loadChunk(i).reserved() {
			believed += chunkSize + blockWords*blockWordSize
		}
	}
	if backedBytes(a.seg.File()) >= believed {
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
