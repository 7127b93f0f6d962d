package prims

// eventcountState is what the word of a Future has in common with the words of other objects whose
// waiters all wait for the next change. Every change is one compare-and-swap.
//
//	bits 0..31   sequence   counts the changes that end waits; waiters sleep on this half
//	bit  32      announced  a waiter may sleep, or be on the way to it
//	bits 33..63             of the object
//
// A waiter loads the word, sets announced by a CAS of the whole word, and sleeps while the sequence is what it
// was. A change that ends waits increments the sequence, and clears announced. If the bit was set, the process
// that made the change wakes all waiters. If a waiter and a change meet, one of the two CASes fails, or the
// change finds the announcement.
//
// announced may be set with nobody asleep, which costs one wake. While it is not set, a waiter may sleep only
// if a change was made since it went to sleep. The process that made the change then has to make the wake. If
// it dies or stops first, reaping or the waiters' own periodic check makes the wake.
//
//	writers: waiters, and the calls that change the object, each by CAS
//	readers: the same, tools
//	order:   release by a change, acquire by a waiter that finds it
//	futex:   WAIT on the low half by waiters; WAKE all by the process that changed the sequence,
//	         by reaping and periodic checks
//	crash:   each value is a whole state
type eventcountState uint64

const (
	eventcountSequence  eventcountState = 1<<32 - 1
	eventcountAnnounced eventcountState = 1 << 32
)

func (s eventcountState) sequence() uint32 { return uint32(s) }
func (s eventcountState) announced() bool  { return s&eventcountAnnounced != 0 }

// next is the word after a change that ends waits. The object's own bits stay.
func (s eventcountState) next() eventcountState {
	return s&^(eventcountSequence|eventcountAnnounced) | eventcountState(s.sequence()+1)
}
