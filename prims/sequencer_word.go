package prims

import "fmt"

// sequencerCells is how many cells a Sequencer has. A cell is a word in shared memory on which waiters sleep. A
// wait for a token belongs to cell token % sequencerCells. So an Increment checks one cell, and does not wake the
// waits for other tokens nearby.
const sequencerCells = 16

// tokenCellState is the word of a cell of a Sequencer; every 16th token belongs to the same cell. It is an
// eventcountState that uses bits 33..63, which an eventcountState leaves free, for the field next.
//
//	bits 0..31   sequence   counts the changes that make waiters check the counter; they sleep on this half
//	bit  32      announced  a waiter may sleep, or be about to
//	bits 33..63  next       the low 31 bits of the smallest token that was announced since the last change
//
// A waiter announces its token. If the token is more than tokenFar ahead of the counter, the waiter announces a
// nearer token of the same cell instead. Then the waiter checks the counter once more. If the counter has neither
// reached the token nor passed the value in the field next, the waiter sleeps until the sequence changes. A process
// that increments the counter checks the cell afterwards. If a token is announced and the counter has reached the
// field next, that process changes the sequence, which ends the announcement, and wakes all waiters of the cell.
// Waiters whose tokens are not reached announce themselves again.
//
// The field next may be smaller than every token that is waited for, which costs one needless wake. It is never
// greater than the smallest of these tokens. The field has only 31 bits. They are enough, because no announced token is
// more than tokenFar ahead of the counter: if the field is not 1 to tokenFar ahead, the counter has reached it.
//
//	writers: waiters, processes that count, cancel, stop or reset, and periodic checks, each by CAS
//	readers: the same, tools
//	order:   seq-cst, against the words value and turns
//	futex:   WAIT on the low half by waiters; WAKE all by the process that changed the sequence, by reaping and
//	         periodic checks
//	crash:   each value is a whole state. A process that dies or stops when it has counted, or changed the sequence,
//	         may owe a change or a wake, which reaping and periodic checks make
type tokenCellState eventcountState

const (
	tokenNextShift = 33
	tokenNextMask  = 1<<31 - 1
	tokenFar       = 1 << 29
)

func (s tokenCellState) sequence() uint32 { return uint32(s) }
func (s tokenCellState) announced() bool  { return eventcountState(s).announced() }

// ahead returns how far the announced token in s is ahead of the counter, whose value is v. If the result is 0 or
// greater than tokenFar, the counter has reached that token.
func (s tokenCellState) ahead(v uint64) uint32 {
	return (uint32(s>>tokenNextShift) - uint32(v)) & tokenNextMask
}

// due reports whether the waiters of the cell have to check the counter, whose value is v.
func (s tokenCellState) due(v uint64) bool { return s.announced() && s.ahead(v)-1 >= tokenFar }

// announce returns the word of the cell after a waiter has announced the given token, while the counter is at v.
// The caller knows that the counter has not reached the token, and that s is not due.
func (s tokenCellState) announce(token, v uint64) tokenCellState {
	ahead := token - v
	if ahead > tokenFar {
		ahead = tokenFar - (v+tokenFar-token)%sequencerCells // a nearer token of the same cell
	}
	if s.announced() && uint64(s.ahead(v)) <= ahead {
		return s
	}
	return s&(1<<tokenNextShift-1) | tokenCellState(eventcountAnnounced) | tokenCellState((v+ahead)&tokenNextMask)<<tokenNextShift
}

// String describes the state for messages.
func (s tokenCellState) String() string {
	if !s.announced() {
		return fmt.Sprintf("nobody announced, sequence %d", s.sequence())
	}
	return fmt.Sprintf("a token with the low bits %#x announced, sequence %d", uint64(s>>tokenNextShift), s.sequence())
}

// sequencerTurns is the word that CancelWaiters, Stop and ResetTo change to end waits whose tokens are not reached.
//
//	bit  0      stopped  Stop was called; never cleared
//	bits 1..63  count    of the calls of CancelWaiters, Stop and ResetTo
//
// Each wait remembers the value that the word had when the wait began. The wait ends when the word has changed.
//
//	writers: CancelWaiters and ResetTo (addition), Stop (CAS)
//	readers: waits, tools
//	order:   seq-cst, against the cells
//	futex:   none
//	crash:   a process that has changed the word may die or be stopped before it wakes the waiters: periodic checks
//	         and reaping wake them
type sequencerTurns uint64

const (
	turnsStopped sequencerTurns = 1
	turnsOne     sequencerTurns = 2
)

func (t sequencerTurns) stopped() bool { return t&turnsStopped != 0 }
