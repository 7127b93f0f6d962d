package prims

// eventcountState is the word of an object whose waiters all wait for the same thing: the next change of the
// object. The fields sequence and announced are the same for all such objects. Every change of the word is one
// compare-and-swap.
//
//	bits 0..31   sequence   counts the changes that end waits; waiters sleep on this half
//	bit  32      announced  a waiter may sleep, or be on the way to it
//	bits 33..63             depend on the kind of the object
//
// A waiter loads the word, sets the bit announced by a CAS of the whole word, and sleeps while the sequence is
// the value that it loaded. A change that ends waits increments the sequence and clears announced. If announced
// was set, the process that made the change wakes all waiters. If a waiter and a change happen at the same
// time, either one of the two CASes fails, or the change finds announced set.
//
// The bit announced may be set while no waiter sleeps, which costs one wake. While a waiter sleeps, the bit is
// clear only if a change was made after the waiter set the bit. The process that made the change then has to wake
// the waiter. If that process dies or stops first, a reaper or the waiter's own periodic check wakes the waiter.
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

// next returns the word after a change that ends waits. Bits 33..63 stay as they are.
func (s eventcountState) next() eventcountState {
	return s&^(eventcountSequence|eventcountAnnounced) | eventcountState(s.sequence()+1)
}
