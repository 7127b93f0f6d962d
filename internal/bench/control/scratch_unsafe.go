//go:build linux

package control

import (
	"structs"
	"sync/atomic"
	"unsafe"
)

// What the plan names keys and producers with, and what the scratch has room for.
const (
	scratchBytes = 128 << 10
	ScratchDraws = 4096
	ScratchKeys  = 4096
	ScratchParts = 256 // parties of a barrier cell
	ScratchLanes = 64  // producers of a queue cell
	scratchRing  = 2048
	ScratchTrips = 64 // timed items of a producer that may be on their way
)

// Shape is what only some scenarios have, as the plan tells it to the workers.
// peer.h declares the same bytes.
type Shape struct {
	Read     uint64 // of a hundred holds of a rw cell, those that are shared
	Permits  uint64 // of a sem cell
	Keys     uint64 // of a multi cell
	Locks    uint64 // keys that one hold of a multi cell takes
	Wake     uint64 // waiters that each step of a seq cell wakes
	Batch    uint64 // items that a queue cell moves at a time
	Capacity uint64 // of a queue cell
	Rate     uint64 // operations a second that an open cell starts
	Spin     uint64 // 0: as the subject likes; else ns that waiters spin, and 1
	Lines    uint64 // that the critical section of a lock cell writes; 0 for one
	Role     uint64 // of the victims of a crash cell
	Slow     uint64 // ns that the consumers of a seq cell work after each wake
}

// Scratch is what the workers of a cell share beside the subject, to check it:
// words that the subject guards are plain, all others atomic. A peer in C sees
// the same bytes.
type Scratch struct {
	_       structs.HostLayout
	Holders atomic.Int64 // sem: who holds a permit
	_       [120]byte
	First   uint64 // rw: written before the work of a writer
	_       [120]byte
	Second  uint64 // rw: written after it
	_       [120]byte
	Round   atomic.Uint64 // event, seq: rounds that began; barrier: the last one
	_       [120]byte
	Came    atomic.Uint64 // event, seq: waiters that came through, in all rounds
	_       [120]byte
	Armed   atomic.Uint64 // event, seq: waiters that were about to wait
	_       [120]byte
	Putting atomic.Int64 // queue: producers that have not ended
	_       [120]byte
	most    atomic.Int64 // sem: the most holders at a time
	_       [120]byte

	Draws  [ScratchDraws]uint32 // multi: keys in the order in which they are taken
	Counts [ScratchKeys]uint64  // multi: holds of each key, guarded by it; lock: further lines, see lines.go
	Phases [ScratchParts]struct {
		At atomic.Uint64 // barrier: the phase that a party has come to
		_  [56]byte
	}
	Trips   [ScratchLanes][ScratchTrips]atomic.Int64 // queue: when an item left
	Monitor MonitorWords
}

// MonitorWords are what a lock and its condition variables guard, where those are
// the subject.
type MonitorWords struct {
	Head, Tail, Shut uint64 // of a bounded buffer: items taken and put, in all
	Value            uint64 // of a gate or a sequence
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

// Scratch gives what lies between the control page and its slots.
func (p *Page) Scratch() *Scratch {
	b := p.mem[controlBytes:][:scratchBytes]
	// SAFETY: mappings are page-aligned, controlBytes is a multiple of a page,
	// and the slice above is long enough.
	return (*Scratch)(unsafe.Pointer(&b[0]))
}
