package prims

import "fmt"

// EventMode says which waiters a Set of an Event releases, and whether goroutines can wait for a
// Reset. The mode is stored in the object when the object is created.
type EventMode uint32

const (
	// EventManualReset: a Set releases all waiters, and the Event stays set until Reset. It is
	// the default mode.
	EventManualReset EventMode = iota + 1
	// EventAutoReset: each Set releases one waiter.
	EventAutoReset
	// EventBidirectional is like EventManualReset, and goroutines can also wait for a Reset.
	EventBidirectional
)

// stored returns the mode as the object stores it.
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

// eventMode is the mode of an Event as the object stores it. All-zero bytes mean the default mode.
type eventMode uint32

const (
	eventManual eventMode = iota
	eventAuto
	eventBidirectional
)

func (m eventMode) public() EventMode { return EventMode(m) + 1 }
func (m eventMode) String() string    { return m.public().String() }

// eventState is the word of an Event that is not auto-reset. It is an eventcountState.
//
//	bits 0..31   sequence   odd while the Event is set; waiters sleep on it
//	bit  32      announced  a waiter may sleep, or be on the way to it
//	bits 33..34  mode       0 manual-reset, 2 bidirectional; never changes
//	bits 35..63  0
//
//	sequence  meaning                                                          left by
//	even      not set (also all-zero memory); goroutines may wait for a Set    Reset
//	odd       set; if it is bidirectional, goroutines may wait for a Reset     Set
//
// A wait ends when the sequence is no longer the value with which the wait began, however often the Event was
// set and reset since then. After 2^32 changes the sequence has the same value again. If a waiter does not run
// during exactly 2^32 changes, it goes on waiting.
//
//	writers: Set, Reset, and waiters, by CAS
//	readers: the same, IsSet, tools
//	order:   release by the change, acquire by a process that sees it
//	futex:   WAIT on the low half by waiters; WAKE all by the process that set or reset the
//	         Event, by reaping and periodic checks
//	crash:   each value is a whole state. If a process has set or reset the Event, and dies or stops before
//	         the wake, reaping or a periodic check makes the wake
type eventState eventcountState

const (
	eventModeShift            = 33
	eventModeMask  eventState = 3 << eventModeShift
)

func (s eventState) sequence() uint32 { return eventcountState(s).sequence() }
func (s eventState) announced() bool  { return eventcountState(s).announced() }
func (s eventState) set() bool        { return s&1 != 0 }
func (s eventState) mode() eventMode  { return eventMode(s & eventModeMask >> eventModeShift) }

// String renders the state for messages.
func (s eventState) String() string {
	if s.set() {
		return fmt.Sprintf("set, sequence %d", s.sequence())
	}
	return fmt.Sprintf("not set, sequence %d", s.sequence())
}
