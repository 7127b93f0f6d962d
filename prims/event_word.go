package prims

import (
	"fmt"
	"strings"
)

// eventMode says what kind of Event it is.
//
//	bit 0  auto    a set lets one wait go and is over with that
//	bit 1  two-way one can wait for a reset, too
//
// Both at once are impossible.
type eventMode uint32

const (
	eventAuto eventMode = 1 << iota
	eventBidirectional
)

func (m eventMode) valid() bool { return m <= eventBidirectional }

// String names the mode.
func (m eventMode) String() string {
	var s []string
	if m&eventAuto != 0 {
		s = append(s, "auto-reset")
	}
	if m&eventBidirectional != 0 {
		s = append(s, "two-way")
	}
	if m == 0 {
		return "manual-reset"
	}
	return strings.Join(s, ", ")
}

// The counter of an Event that is reset by hand is odd while it is set: a wait for a
// set, or a reset, is one for the next count, which does not go away again.
func eventIsSet(counter uint64) bool { return counter&1 != 0 }

// eventState is the word of an Event with automatic reset: where its token is. There is
// one at most, besides spare ones.
//
//	bits 0..1   place
//	bits 2..63  changes, so that no value comes back
//
//	place  meaning                                          left by
//	unset  there is none (also all-zero memory)             who waits, or who handed it out; Reset
//	set    it is there for whoever comes                    Set
//	hand   who holds the queue lock is about to hand it out  who holds the queue lock
//	taken  set, and the spare ones are to be forgotten      who holds the queue lock
//
// unset and set change without the queue lock: to set by Set; back by whoever comes to wait, or
// Reset, and those look first that nobody is queued, so that nobody is passed by. What
// the queue lock has taken in hand changes only with the queue lock: so the replaying after a death
// knows that the token was not given to anybody yet.
//
//	writers: Set, Reset, Wait by CAS; who holds the queue lock
//	readers: the same, IsSet
//	order:   seq-cst, against next
//	futex:   none
//	crash:   set while somebody is queued: who set it owes the handing out, as reaps
//	         and periodic checks do; hand, taken: the next holder of the queue lock goes on
type eventState uint64

const (
	eventUnset eventState = iota
	eventSet
	eventHand
	eventTaken

	eventPlaceMask eventState = 3
	eventChange    eventState = 4
)

func (s eventState) place() eventState { return s & eventPlaceMask }

// to is the word with the token in another place.
func (s eventState) to(place eventState) eventState {
	return (s+eventChange)&^eventPlaceMask | place
}

// String renders the state for people.
func (s eventState) String() string {
	return fmt.Sprintf("%s, %d changes", [...]string{"unset", "set", "in hand", "taken"}[s.place()], uint64(s)/uint64(eventChange))
}
