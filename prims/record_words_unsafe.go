package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"
)

// plainRecord is a slot record that has only the record of the last change that a participant of the slot made. A
// FairMutex, a MultiLock and a Cond have such slot records. The slot record of a Waitable begins with a plainRecord;
// see waitableRecord. The tags of the words of a semaphoreRecord (writers, readers, order, crash)
// apply to these words, too.
type plainRecord struct {
	_       structs.HostLayout
	_       [32]byte // the header of a slot record
	head    atomic.Uint64
	kinds   atomic.Uint64
	_       [16]byte
	entries [recordMost]recordEntry
}

// The offsets are part of the binary interface. If one of them changes, the package does not compile.
var (
	_ = [1]struct{}{}[unsafe.Offsetof(plainRecord{}.head)-32]
	_ = [1]struct{}{}[unsafe.Offsetof(plainRecord{}.kinds)-40]
	_ = [1]struct{}{}[unsafe.Offsetof(plainRecord{}.entries)-64]
	_ = [1]struct{}{}[unsafe.Sizeof(plainRecord{})-plainRecordBytes]
)

const plainRecordBytes = 192
