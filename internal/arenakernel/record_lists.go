package arenakernel

// recordLists remembers the lists of slot records that a walk over all blocks has read. A hostile peer can forge a list
// with very many records, and very many blocks that claim to be on this list. So the walk must not read the list again
// for each of these blocks.
type recordLists struct {
	*core
	lists map[Offset]*recordList
}

// recordList is the list of slot records of an object, as it was at some moment.
type recordList struct {
	on    map[Offset]bool
	head  uint32
	walks int // how often the list was read
}

// mostRecordWalks limits how often recordLists reads a list. It reads a list again if the earlier reading did not find
// a record, because a participant may have pushed the record since.
const mostRecordWalks = 16

func (c *core) newRecordLists() *recordLists {
	return &recordLists{core: c, lists: map[Offset]*recordList{}}
}

// has reports whether the list of an object has the slot record b. It may wrongly return true if the list keeps changing.
//
// Preconditions: as for listsRecord.
func (l *recordLists) has(object Offset, b block) bool {
	list := l.lists[object]
	if list == nil {
		list = &recordList{}
		l.lists[object] = list
	}
	if list.on[b.off] {
		return true
	}
	head := l.u32(object + objRecords).Load()
	if list.walks == mostRecordWalks {
		return head != list.head
	}
	list.walks, list.head, list.on = list.walks+1, head, map[Offset]bool{}
	l.eachRecord(object, func(r block, _ int) bool {
		list.on[r.off] = true
		return true
	})
	return list.on[b.off]
}
