//go:build linux

package main

import (
	"structs"
	"sync/atomic"
	"unsafe"
)

// What the plan names keys and producers with, and what the scratch has room for.
const (
	scratchBytes = 128 << 10
	scratchDraws = 4096
	scratchKeys  = 4096
	scratchParts = 256 // parties of a barrier cell
	scratchLanes = 64  // producers of a queue cell
	scratchRing  = 2048
	scratchTrips = 64 // timed items of a producer that may be on their way
)

// shape is what only some scenarios have, as the plan tells it to the workers.
// peer.h declares the same bytes.
type shape struct {
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

// scratch is what the workers of a cell share beside the subject, to check it:
// words that the subject guards are plain, all others atomic. A peer in C sees
// the same bytes.
type scratch struct {
	_       structs.HostLayout
	holders atomic.Int64 // sem: who holds a permit
	_       [120]byte
	first   uint64 // rw: written before the work of a writer
	_       [120]byte
	second  uint64 // rw: written after it
	_       [120]byte
	round   atomic.Uint64 // event, seq: rounds that began; barrier: the last one
	_       [120]byte
	came    atomic.Uint64 // event, seq: waiters that came through, in all rounds
	_       [120]byte
	armed   atomic.Uint64 // event, seq: waiters that were about to wait
	_       [120]byte
	putting atomic.Int64 // queue: producers that have not ended
	_       [120]byte
	most    atomic.Int64 // sem: the most holders at a time
	_       [120]byte

	draws  [scratchDraws]uint32 // multi: keys in the order in which they are taken
	counts [scratchKeys]uint64  // multi: holds of each key, guarded by it; lock: further lines, see lines.go
	phases [scratchParts]struct {
		at atomic.Uint64 // barrier: the phase that a party has come to
		_  [56]byte
	}
	trips   [scratchLanes][scratchTrips]atomic.Int64 // queue: when an item left
	monitor monitorWords
}

// monitorWords are what a lock and its condition variables guard, where those are
// the subject.
type monitorWords struct {
	head, tail, shut uint64 // of a bounded buffer: items taken and put, in all
	value            uint64 // of a gate or a sequence
	arrived, phase   uint64 // of a barrier
	ring             [scratchRing]uint64
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(control{}.shape)-1600]
	_ = [1]struct{}{}[unsafe.Offsetof(scratch{}.round)-384]
	_ = [1]struct{}{}[unsafe.Offsetof(scratch{}.draws)-1024]
	_ = [1]struct{}{}[unsafe.Offsetof(scratch{}.counts)-17408]
	_ = [1]struct{}{}[unsafe.Offsetof(scratch{}.phases)-50176]
	_ = [1]struct{}{}[unsafe.Offsetof(scratch{}.trips)-66560]
	_ = [1]struct{}{}[unsafe.Offsetof(scratch{}.monitor)-99328]
	_ = [scratchBytes - unsafe.Sizeof(scratch{})]byte{}
)

// scratch gives what lies between the control page and its slots.
func (p *page) scratch() *scratch {
	b := p.mem[controlBytes:][:scratchBytes]
	// SAFETY: mappings are page-aligned, controlBytes is a multiple of a page,
	// and the slice above is long enough.
	return (*scratch)(unsafe.Pointer(&b[0]))
}
