package arenakernel

// Usage says how much memory of the heap is used for what, in bytes of blocks and spans. The sum of
// all fields is [AllocStats].BytesUsed.
type Usage struct {
	Objects map[Offset]uint64 // by object: its header, body and slot records, each rounded up to its block
	Nodes   uint64            // wait nodes
	Blocks  uint64            // blocks of Alloc
	Other   uint64            // blocks being made or freed, except slot records on the list of an object
}

// Usage adds up the blocks of the heap by their use.
func (i *Inspector) Usage() Usage {
	a := i.a
	u := Usage{Objects: map[Offset]uint64{}}
	records := map[Offset]uint64{}
	a.eachBlock(func(off Offset, size uint64, w blockWord) bool {
		switch kind := w.kind(); {
		case kind == blockObject:
			u.Objects[off] += size
		case kind == blockNode:
			u.Nodes += size
		case kind == blockRaw && w.recordSlot() == 0:
			u.Blocks += size
		default:
			if b, ok := a.locate(off); ok && i.records.isRecord(b, w) {
				records[Offset(a.peek64(off+recordObject))] += size
			} else {
				u.Other += size
			}
		}
		return true
	})
	for object, size := range records {
		if _, ok := u.Objects[object]; ok {
			u.Objects[object] += size
		} else {
			u.Other += size
		}
	}
	return u
}
