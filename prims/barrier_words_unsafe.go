package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

const (
	barrierBreaks = 32 // number of broken phases that a Barrier remembers
	barrierNames  = 8  // number of dead parties of one broken phase whose IDs it remembers
)

// barrierWords is the head of the body of a Barrier, 1088 bytes. A barrierShare for each slot of
// the arena follows, from slot 1. All words but the first change through the redo log, under the
// queue lock. Without the lock, State and tools read them.
type barrierWords struct {
	_    structs.HostLayout
	mon  monitorWords
	size atomic.Uint64 // number of parties at the creation. Immutable after init.
	// expected is how many arrivals the next phase takes.
	expected atomic.Uint64
	// pending is how many arrivals this phase still takes.
	pending atomic.Uint64
	// phase is the number of this phase.
	phase atomic.Uint64
	// completer is the participant that runs the completion of this phase, or 0. It is set only
	// when pending is 0. If it is not current, the phase is broken.
	completer atomic.Uint64
	// broken is the first phase that a death leaves incomplete, plus 1; 0 for none.
	broken atomic.Uint64
	// dead is the ID of the participant whose death that is.
	dead atomic.Uint64
	// lost is how many parties died since the last Reset.
	lost  atomic.Uint64
	queue listWords
	_     [48]byte
	// gone are the IDs of the first of those parties, one entry for each process: ID |
	// parties<<32. A death during a Reset may leave only some of the entries.
	gone [barrierNames]atomic.Uint64
	// breaks are the broken phases that a Reset has ended. The record of phase p is at p modulo
	// their number, so a later phase may replace it.
	breaks [barrierBreaks]barrierBreak
}

// barrierBreak records that a phase broke. A process that holds the queue lock writes it
// before the phase ends.
type barrierBreak struct {
	_     structs.HostLayout
	phase atomic.Uint64 // the phase, plus 1; 0 for none
	dead  atomic.Uint64 // the first party that died, as in gone, but with all parties that were lost
}

// barrierShare is how many of the parties belong to a participant.
//
//	phase           parties  left
//	this one        p        left of its p arrivals of this phase are to come
//	the one before  p        left of its p arrivals did not come, although the phase is over: it has p - left now
//	earlier         void     void: a whole phase passed without it
//
//	writers: the holder of the queue lock, through the redo log
//	readers: the same, tools, periodic checks
//	order:   the queue lock's
//	futex:   none
//	crash:   if name is not current, the arrivals in left will not come
type barrierShare struct {
	_       structs.HostLayout
	name    atomic.Uint64 // ID of the participant
	phase   atomic.Uint64
	parties atomic.Uint64
	left    atomic.Uint64
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(barrierWords{}.size)-384]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierWords{}.expected)-392]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierWords{}.pending)-400]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierWords{}.phase)-408]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierWords{}.completer)-416]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierWords{}.broken)-424]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierWords{}.dead)-432]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierWords{}.lost)-440]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierWords{}.queue)-448]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierWords{}.gone)-512]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierWords{}.breaks)-576]
	_ = [1]struct{}{}[unsafe.Sizeof(barrierWords{})-1088]
	_ = [1]struct{}{}[unsafe.Sizeof(barrierBreak{})-16]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierShare{}.name)-0]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierShare{}.phase)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierShare{}.parties)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierShare{}.left)-24]
	_ = [1]struct{}{}[unsafe.Sizeof(barrierShare{})-32]
)

// barrierBytes is the length of the body in an arena with that many slots.
func barrierBytes(slots int) uint64 {
	return uint64(unsafe.Sizeof(barrierWords{})) + uint64(slots)*uint64(unsafe.Sizeof(barrierShare{}))
}

// barrierBody views the private body of a Barrier that is being made.
func barrierBody(b []byte) *barrierWords {
	_ = b[unsafe.Sizeof(barrierWords{})-1]
	return (*barrierWords)(unsafe.Pointer(unsafe.SliceData(b)))
}

// barrierShares are the shares of the slots of an arena, from slot 1.
func barrierShares(a *arenakernel.Arena, body arenakernel.Offset) []*barrierShare {
	s := make([]*barrierShare, a.MaxParticipants())
	for i := range s {
		s[i] = arenakernel.At[barrierShare](a, body+arenakernel.Offset(unsafe.Sizeof(barrierWords{}))+arenakernel.Offset(i)*arenakernel.Offset(unsafe.Sizeof(barrierShare{})))
	}
	return s
}
