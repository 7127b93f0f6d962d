package prims

import "fmt"

// EventMode says what a Set of an Event lets go, and what can be waited for. It is stored in
// the object when it is created.
type EventMode uint32

const (
	// EventManualReset: a Set lets all waiters go, and the Event stays set until Reset. It is
	// the mode of an Event that is created without one.
	EventManualReset EventMode = iota + 1
	// EventAutoReset: each Set lets one waiter go.
	EventAutoReset
	// EventBidirectional is EventManualReset, and goroutines can wait for a Reset, too.
	EventBidirectional
)

// stored is the mode as the bytes of an object have it.
func (m EventMode) stored() eventMode {
	if m == 0 {
		return eventManual
	}
	return eventMode(m - 1)
}

// String names the mode.
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

// eventMode is the stored mode of an Event. All-zero bytes are an Event with the default.
type eventMode uint32

const (
	eventManual eventMode = iota
	eventAuto
	eventBidirectional
)

func (m eventMode) valid() bool       { return m <= eventBidirectional }
func (m eventMode) public() EventMode { return EventMode(m) + 1 }
func (m eventMode) String() string    { return m.public().String() }

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
//	unset  there is none (also all-zero memory)             a waiter, or the granter that handed it out; Reset
//	set    it is there for the next comer                   Set
//	hand   the holder of the queue lock hands it out        the holder of the queue lock
//	taken  set, and the spare ones are to be forgotten      the holder of the queue lock
//
// unset and set change without the queue lock. Set changes unset to set. A comer that waits, or
// Reset, changes it back, and both check first that no wait is queued, so that no waiter is
// overtaken. A token that the holder of the queue lock has taken in hand changes only with the
// queue lock: so the replay after a death knows that the token was not given to any waiter yet.
//
//	writers: Set, Reset, Wait by CAS; the holder of the queue lock
//	readers: the same, IsSet
//	order:   seq-cst, against next
//	futex:   none
//	crash:   set while a wait is queued: the setter owes the handing out, as
//	         reaps and periodic checks do; hand, taken: the next holder of the queue lock
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

// to is the word with the token in another place.
func (s eventState) to(place eventState) eventState {
	return (s+eventChange)&^eventPlaceMask | place
}

// String renders the state for people.
func (s eventState) String() string {
	return fmt.Sprintf("%s, %d changes", [...]string{"unset", "set", "in hand", "taken"}[s.place()], uint64(s)/uint64(eventChange))
}
