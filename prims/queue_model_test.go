//go:build linux

package prims

import (
	"errors"
	"fmt"

	"github.com/shmsync/shmsync/internal/model"
)

// ringModel models the ring of a Queue and its participants. Some threads put, some get, and some lease; each thread
// is a process of its own. A thread may be killed, or stopped for ever, at any step. The reaper is never killed. Each
// step makes one access to shared memory. Positions, laps and tags are those of the code, with fewer bits.
type ringModel struct {
	capacity, slots uint8
	shift           uint8 // logarithm of the number of cells
	putters         uint8
	getters         uint8
	leases          uint8 // how many of the getters lease
	puts, gets      uint8 // calls
	kills, stops    uint8
	lapBits         uint8 // the bits of a lap; 0: so many that laps never wrap

	bug bug
}

const (
	ringThreads = 4 // and the reaper
	ringCells   = 4
	ringSlots   = 4
	ringItems   = 6
)

type ringState struct {
	cell       [ringCells]ringCell
	slot       [ringSlots]ringSlot
	tail, head uint8
	returned   uint8
	irregular  bool
	thread     [ringThreads + 1]ringThread
	puts, gets uint8 // calls that may begin
	dead       uint8 // one bit for each thread
	reaped     uint8
	stopped    uint8
	kills      uint8

	// The contents that a correct queue would have. The check compares the calls with them.
	queue   [ringItems]uint8 // the positions of the items, in order; they are unique
	n       uint8
	backing [ringItems]uint8 // items that came back before the bit in returned is set; a Get need not find them
	wrong   ringWrong
}

type ringCell struct{ lap, slot uint8 }

type ringSlot struct {
	kind  queueSlotKind
	owner uint8 // thread + 1; in a returned slot, the count of returns
	tag   uint8
	item  uint8 // the number of the call whose item was copied into the slot
}

type ringThread struct {
	pc    uint8
	p, q  uint8 // positions
	was   ringCell
	at    uint8 // the slot, plus 1
	state ringSlot
	k     uint8 // how many slots the thread has tried or read
	n     uint8 // how many slots the thread has counted
	back  uint8 // the value of ringState.returned that the thread has read
	best  uint8 // a slot, plus 1: in a Get the first returned slot so far, in a Put a slot that a cell names
	item  uint8
	first uint8 // the first position when the call read the queue; 0: the queue was empty
}

type ringWrong uint8

const (
	ringNotFirst ringWrong = iota + 1
	ringNotEmpty
	ringNotFull
	ringTooMany
	ringTorn
	ringTwice
)

var errsRing = [...]error{
	ringNotFirst: errors.New("a call got an item that was not the first"),
	ringNotEmpty: errors.New("a call found nothing, and there was an item all the time"),
	ringNotFull:  errors.New("a call found no room, and there was room all the time"),
	ringTooMany:  errors.New("there are more items than there is room for"),
	ringTorn:     errors.New("a call got an item that was not copied yet, or not any more"),
	ringTwice:    errors.New("a slot was made free that was free"),
}

var errRingLost = errors.New("an item or a slot is lost")

const (
	ringJumpsFar      bug = "a lagging Get jumps one lap too far"
	ringTagsFirst     bug = "a Put tags its slot with a position that it found before it had the slot"
	ringNoTag         bug = "a Get does not compare the tag"
	ringStores        bug = "a Get takes a slot by a store"
	ringLooksOnce     bug = "a Get does not read the cell once more before it reports that there is no item"
	ringReadsBack     bug = "a Get does not read again whether items have come back"
	ringClearsBlind   bug = "a Get clears the word that tells of returned items by a store"
	ringReapsPut      bug = "the reap frees a slot that a cell names"
	ringReapsNothing  bug = "the reap leaves taken items alone"
	ringReapTrusts    bug = "the reap does not announce returned items if their bit is set already"
	ringTellsNobody   bug = "a Nack does not announce that an item came back"
	ringCountsNothing bug = "a Put does not count leases"
	ringDeviatesLate  bug = "a Lease says only after its claim that positions no longer give the number of items"
	ringTailAhead     bug = "the hint of the tail is after the cell that is about to be filled"
	ringNoCount       bug = "a returned slot does not say which return it was"
	ringNarrowLaps    bug = "laps have two bits"
	ringKeepsSlot     bug = "a Put that finds no room keeps its slot"
)

const (
	ringIdle uint8 = iota
	ringTail
	ringNext
	ringFullHead
	ringFullCell
	ringFullSlot
	ringIrregular
	ringCount
	ringCountCell
	ringClaim
	ringSame
	ringLook
	ringWrite
	ringSetTail
	ringPublish
	ringTag
	ringRelease
	ringDeviate
	ringBack
	ringScan
	ringScanned
	ringClear
	ringHead
	ringAtCell
	ringAtSlot
	ringAgain
	ringEmpty
	ringTake
	ringTakeBack
	ringSetHead
	ringCopy
	ringFree
	ringLeased
	ringNackDeviate
	ringCountBack
	ringNack
	ringTell
	ringReap
	ringReapCell
)

func (m ringModel) explore(b bug) model.Result {
	m.bug = b
	if b == ringNarrowLaps {
		m.lapBits = 2
	}
	first := ringState{tail: m.cells(), head: m.cells(), puts: m.puts, gets: m.gets}
	spec := model.Spec[ringState]{Init: []ringState{first}, Next: m.next, Check: m.check, Done: m.done, Show: m.show}
	return spec.Explore()
}

func (m *ringModel) cells() uint8 { return 1 << m.shift }

func (m *ringModel) next(s *ringState, emit func(model.Step[ringState])) {
	for i := range ringThreads + 1 {
		if s.dead>>i&1 != 0 || s.stopped>>i&1 != 0 || i < ringThreads && i >= int(m.putters+m.getters) {
			continue
		}
		for choice := range 2 {
			x := ringExec{ringModel: m, s: *s, me: i, choice: choice}
			x.t = &x.s.thread[i]
			said, optional := x.step()
			if said != "" {
				emit(model.Step[ringState]{To: x.s, By: m.name(i), Label: said, Optional: optional})
			}
			if !x.more {
				break
			}
		}
		if i == ringThreads || s.thread[i].pc == ringIdle {
			continue
		}
		if s.kills < m.kills {
			to := *s
			to.kills++
			to.dead |= 1 << i
			to.thread[i] = ringThread{}
			emit(model.Step[ringState]{To: to, By: m.name(i), Label: "is killed", Optional: true})
		}
		if onesIn(s.stopped) < m.stops {
			to := *s
			to.stopped |= 1 << i
			emit(model.Step[ringState]{To: to, By: m.name(i), Label: "is stopped for ever", Optional: true})
		}
	}
}

func onesIn(bits uint8) (n uint8) {
	for ; bits != 0; bits &= bits - 1 {
		n++
	}
	return n
}

func (m *ringModel) name(i int) string {
	switch {
	case i == ringThreads:
		return "reaper"
	case i < int(m.putters):
		return fmt.Sprintf("P%d", i+1)
	}
	return fmt.Sprintf("G%d", i-int(m.putters)+1)
}

func (m *ringModel) show(s *ringState) string {
	return fmt.Sprintf("cells %v, slots %v, tail %d, head %d, returned %d; queue %v", s.cell, s.slot[:m.slots], s.tail, s.head, s.returned, s.queue[:s.n])
}

func (m *ringModel) check(s *ringState) error {
	if s.wrong != 0 {
		return errsRing[s.wrong]
	}
	if !m.done(s) || s.stopped != 0 {
		return nil
	}
	// All calls have ended, so the slots must contain exactly the items that are in the queue.
	there := uint8(0)
	for k := range m.slots {
		switch sl := s.slot[k]; sl.kind {
		case queueFree:
		case queueFull:
			if s.cell[sl.tag&(m.cells()-1)].slot != k+1 {
				return errRingLost
			}
			there++
		case queueReturned:
			if s.returned&1 == 0 {
				return errRingLost
			}
			there++
		default:
			return errRingLost
		}
	}
	if there != s.n {
		return errRingLost
	}
	return nil
}

func (m *ringModel) done(s *ringState) bool {
	for i := range ringThreads + 1 {
		if s.thread[i].pc != ringIdle && s.stopped>>i&1 == 0 {
			return false
		}
	}
	return s.reaped == s.dead
}

// ringExec executes one step of a thread.
type ringExec struct {
	*ringModel
	s      ringState
	t      *ringThread
	me     int
	choice int
	more   bool
}

func (x *ringExec) to(pc uint8, said string) (string, bool) { x.t.pc = pc; return said, false }

// end ends the call.
func (x *ringExec) end(said string) (string, bool) {
	*x.t = ringThread{}
	return said, false
}

func (x *ringExec) cellOf(p uint8) *ringCell { return &x.s.cell[p&(x.cells()-1)] }

func (x *ringExec) lap(p uint8) uint8 {
	l := p >> x.shift
	if x.lapBits != 0 {
		l &= 1<<x.lapBits - 1
	}
	return l
}

// ahead returns how many laps cell c is ahead of position p.
func (x *ringExec) ahead(c ringCell, p uint8) int8 {
	d := int8(c.lap - x.lap(p))
	if x.lapBits != 0 {
		d = int8(uint8(d)<<(8-x.lapBits)) >> (8 - x.lapBits)
	}
	return d
}

// at models queueState.at.
func (x *ringExec) at(s ringSlot, p uint8) bool {
	return s.kind == queueFull && (s.tag == p || x.bug == ringNoTag)
}

// named reports whether cell c names slot k+1, whose state is s.
func (x *ringExec) named(c ringCell, k uint8, s ringSlot) bool {
	return c.slot == k+1 && c.lap == x.lap(s.tag)
}

// first returns the position of the first item, or 0 if there is none.
func (x *ringExec) first() uint8 {
	if x.s.n == 0 {
		return 0
	}
	return x.s.queue[0]
}

// insert puts an item that came back into the contents that a correct queue would have, in the order of the positions.
func (x *ringExec) insert(p uint8) {
	s := &x.s
	if s.n == ringItems {
		s.wrong = ringTooMany
		return
	}
	i := s.n
	for ; i > 0 && s.queue[i-1] > p; i-- {
		s.queue[i] = s.queue[i-1]
	}
	s.queue[i] = p
	s.n++
}

// remove takes an item out of the contents that a correct queue would have. That item must have been the first when
// the call read the queue.
func (x *ringExec) remove(p uint8) {
	s := &x.s
	for i, b := range s.backing {
		if b == p {
			// The item came back, and the bit in returned is not set yet.
			copy(s.backing[i:], s.backing[i+1:])
			s.backing[ringItems-1] = 0
			if x.t.first != 0 && x.t.first < p {
				s.wrong = ringNotFirst
			}
			return
		}
	}
	for i := range s.n {
		if s.queue[i] == p {
			if x.t.first != p {
				s.wrong = ringNotFirst
			}
			copy(s.queue[i:], s.queue[i+1:])
			s.queue[ringItems-1] = 0
			s.n--
			return
		}
	}
	s.wrong = ringNotFirst
}

// comesBack records that an item came back and may be taken again.
func (x *ringExec) comesBack(p uint8) {
	for i := range x.s.backing {
		if x.s.backing[i] == 0 {
			x.s.backing[i] = p
			return
		}
	}
}

// tell sets the bit in returned. From then on a Get finds all items that came back, from whichever process.
func (x *ringExec) tell() {
	s := &x.s
	s.returned = s.returned&^1 + 3
	for _, p := range s.backing {
		if p != 0 {
			x.insert(p)
		}
	}
	clear(s.backing[:])
}

func (x *ringExec) leases() bool {
	return x.me >= int(x.putters+x.getters-x.ringModel.leases)
}

func (x *ringExec) step() (said string, optional bool) {
	if x.me == ringThreads {
		return x.reap()
	}
	if x.me < int(x.putters) {
		return x.put()
	}
	return x.get()
}
