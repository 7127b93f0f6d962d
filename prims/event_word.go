package prims

import "fmt"

// EventMode says which waiters a Set of an Event releases, and whether goroutines can wait for a
// Reset. It is stored in the object when it is created.
type EventMode uint32

const (
	// EventManualReset: a Set releases all waiters, and the Event stays set until Reset. It is
	// the default mode.
	EventManualReset EventMode = iota + 1
	// EventAutoReset: each Set releases one waiter.
	EventAutoReset
	// EventBidirectional is EventManualReset, and goroutines can wait for a Reset, too.
	EventBidirectional
)

// stored is the mode in the form that the bytes of an object have.
func (m EventMode) stored() eventMode {
	if m == 0 {
		return eventManual
	}
	return eventMode(m - 1)
}

// String returns the name of the mode.
func (m EventMode) String() string {
	switch m {
	case 0:
		return "default"
	case EventManualReset:
		return "manual-reset"
	case EventAutoReset:
		return "auto-reset"
	case EventBidirectional:
		return "bidirectional"
	}
	return "invalid"
}

// eventMode is the stored mode of an Event. All-zero bytes mean the default mode.
type eventMode uint32

const (
	eventManual eventMode = iota
	eventAuto
	eventBidirectional
)

func (m eventMode) valid() bool       { return m <= eventBidirectional }
func (m eventMode) public() EventMode { return EventMode(m) + 1 }
func (m eventMode) String() string    { return m.public().String() }

// The counter of an Event that is reset by hand is odd while the Event is set. A wait for a set,
// or for a reset, is a wait for the next count. The count never goes back, so no waiter misses a
// change.
func eventIsSet(counter uint64) bool { return counter&1 != 0 }

// eventState is the word of an Event with automatic reset. It says where the token is. There is
// at most one token, apart from spare ones.
//
//	bits 0..1   place
//	bits 2..63  changes, so that no value comes back
//
//	place  meaning                                          left by
//	unset  there is no token (also all-zero memory)         a waiter, or the granter that handed it out; Reset
//	set    it is there for the next caller of Wait          Set
//	hand   the holder of the queue lock hands it out        the holder of the queue lock
//	taken  set, and the spare tokens will be forgotten      the holder of the queue lock
//
// unset and set change without the queue lock. Set changes unset to set. A caller of Wait, or
// Reset, changes it back. Both check first that no wait is queued, so that no waiter is
// overtaken. When the holder of the queue lock has taken the token in hand, the word changes only
// under the queue lock. So the replay after a death knows that the token was not given to any
// waiter yet.
//
//	writers: Set, Reset, Wait by CAS; the holder of the queue lock
//	readers: the same, IsSet
//	order:   seq-cst, against next
//	futex:   none
//	crash:   set while a wait is queued: the dead setter did not hand the token out, and
//	         reaps and periodic checks do so; hand, taken: the next holder of the queue lock
//	         goes on
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

// to is the word after the token has moved to another place.
func (s eventState) to(place eventState) eventState {
	return (s+eventChange)&^eventPlaceMask | place
}

// String renders the state for messages.
func (s eventState) String() string {
	return fmt.Sprintf("%s, %d changes", [...]string{"unset", "set", "in hand", "taken"}[s.place()], uint64(s)/uint64(eventChange))
}
