//go:build linux

package control

import (
	"structs"
	"sync/atomic"
	"unsafe"
)

// Scratch is memory in which the workers check the subject, the primitive that is measured. It is not part of the
// subject. Words that the subject guards are plain, and all other words are atomic. The helper in C maps the same
// bytes.
type Scratch struct {
	_       structs.HostLayout
	Holders atomic.Int64 // sem: number of holders of a permit
	_       [120]byte
	First   uint64 // rw: a writer adds 1 to it before its work
	_       [120]byte
	Second  uint64 // rw: a writer sets it to First after its work
	_       [120]byte
	Round   atomic.Uint64 // event, seq: number of rounds that began; barrier: the phase after which all threads stop
	_       [120]byte
	Came    atomic.Uint64 // event, seq: number of waiters that returned, in all rounds
	_       [120]byte
	Armed   atomic.Uint64 // event, seq: number of waiters that were about to wait
	_       [120]byte
	Putting atomic.Int64 // queue: number of producers that have not ended
	_       [120]byte
	most    atomic.Int64 // sem: the highest number of holders at a time
	_       [120]byte

	Draws  [ScratchDraws]uint32 // multi: the order in which workers take keys
	Counts [ScratchKeys]uint64  // multi: holds of each key, guarded by the key; lock: extra cache lines, see lines.go
	Phases [ScratchParts]struct {
		At atomic.Uint64 // barrier: the last phase for which a thread has arrived
		_  [56]byte
	}
	Trips   [ScratchLanes][ScratchTrips]atomic.Int64 // queue: when an item was put
	Monitor MonitorWords
}

// MonitorWords are the data of a monitor, a subject that consists of a lock and condition variables. The lock guards
// these words, and threads wait on the condition variables until a word has the value that they need.
type MonitorWords struct {
	Head, Tail, Shut uint64 // of a bounded buffer: items taken, items put, and 1 once it is shut
	Value            uint64 // of a gate or a sequence; all waits for it end when Shut is 1
	Arrived, Phase   uint64 // of a barrier
	Ring             [scratchRing]uint64
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(Control{}.Shape)-1600]
	_ = [1]struct{}{}[unsafe.Offsetof(Scratch{}.Round)-384]
	_ = [1]struct{}{}[unsafe.Offsetof(Scratch{}.Draws)-1024]
	_ = [1]struct{}{}[unsafe.Offsetof(Scratch{}.Counts)-17408]
	_ = [1]struct{}{}[unsafe.Offsetof(Scratch{}.Phases)-50176]
	_ = [1]struct{}{}[unsafe.Offsetof(Scratch{}.Trips)-66560]
	_ = [1]struct{}{}[unsafe.Offsetof(Scratch{}.Monitor)-99328]
	_ = [scratchBytes - unsafe.Sizeof(Scratch{})]byte{}
)

// Scratch returns the memory in which workers check the subject. It lies between the control page and the slots.
func (p *Page) Scratch() *Scratch {
	b := p.mem[controlBytes:][:scratchBytes]
	// SAFETY: mappings are page-aligned, controlBytes is a multiple of a page,
	// and the slice above is long enough.
	return (*Scratch)(unsafe.Pointer(&b[0]))
}
