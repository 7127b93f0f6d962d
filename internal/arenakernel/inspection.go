package arenakernel

// Inspection is the state of an object for people and tools: what [KindOps].Inspect tells.
// Its parts may be of different moments.
type Inspection struct {
	State  string        // in a few words
	Policy string        // "report" or "release"; empty where there is none
	Spin   string        // the spin budget; empty where there is none
	Err    error         // why it cannot be taken: ErrOwnerDead, ErrNotRecoverable, ErrCorrupt; nil otherwise
	Died   ParticipantID // whose death that is, or 0
	Key    *uint64       // the key that Err is about, for an object that has several; nil otherwise
	Holds  []Hold
	Waits  []Wait
	Words  []Word
	// Counts are the counters of the object, where the arena has them.
	Counts *Counts
}

// Values of Hold.Mode.
const (
	HoldExclusive  = "exclusive"  // one process alone has it
	HoldShared     = "shared"     // for reading
	HoldUpgradable = "upgradable" // for reading, and for writing next
	HoldClosing    = "closing"    // has shut others out, and waits for readers to leave
	HoldRecovering = "recovering" // repairs what a death left
	HoldReserved   = "reserved"   // it is on its way to a waiter of this participant
	HoldQueueLock  = "queue lock" // the queue lock that guards the object's own state
	HoldPermits    = "permits"    // of a semaphore
	HoldOwes       = "owes"       // has claimed work that others wait for
	HoldParty      = "party"      // has yet to arrive
	HoldRunner     = "runner"     // runs the function that others wait for
	HoldProducer   = "producer"   // will set the result
	HoldLease      = "lease"      // an item of a queue
	HoldClaim      = "claim"      // on a Waitable, by its rules
	HoldExecutor   = "executor"   // looks at a queue of a waker
)

// Hold is a hold of a participant on an object, or a part of one.
type Hold struct {
	Owner ParticipantID // whose it is
	Mode  string        // one of the constants
	Count uint64        // how many, where that says something
	Key   *uint64       // which one, where there are several
	Since int64         // CLOCK_MONOTONIC, ns; 0 where it is unknown
	Note  string        // more, in words
}

// Wait is a wait of a participant's goroutines for an object.
type Wait struct {
	Owner ParticipantID // whose goroutines
	For   string        // what for: "lock", "read", "permits" and the like
	Want  *uint64       // how many, which key, which token; nil where that says nothing
	Stamp uint64        // waits of an object with a lower one came before; 0 where there is no order
	Since int64         // CLOCK_MONOTONIC, ns; 0 where it is unknown
	How   string        // asleep in the kernel, parked in its process, or awake
	Count uint64        // goroutines, as far as can be told; 0 where that is not known
	// On are the holds that have to end before this wait can, as indices of
	// Inspection.Holds: all of them or, if Any is set, enough of them.
	On  []int
	Any bool

	// Class is what a wait node says that it waits for, by the kind.
	Class uint16
	// At tells waits apart that are not in a queue: the offset within the object's
	// body of the word slept on, or of the head of the list of poller nodes.
	At Offset
	// Node is the wait node, or 0.
	Node Offset
}

// How a wait waits.
const (
	WaitAsleep = "asleep" // a thread sleeps in the kernel
	WaitParked = "parked" // the goroutine is parked, its process is told
	WaitAwake  = "awake"  // it is in a queue, and on its way to sleep or away
)

// Word is a word of an object: its bits by their names.
type Word struct {
	Name string // what it is for
	Bits uint64 // the word itself
	Text string // what its bits say
}

// Counts are the counters of an object in a counted arena, from its creation on.
type Counts struct {
	Acquired  uint64 // how often it was taken, or a wait ended well
	Contended uint64 // of those, how often it was not free at once
	SpinsPaid uint64 // waits that spinning ended
	Slept     uint64 // times that a waiter went to sleep
	Woken     uint64 // waiters that were woken
	Recovered uint64 // holds of the dead that were taken back
}

// WaitsOf gives what is known of the waits for o from outside of its kind: the wait
// nodes in its queues, the threads that have recorded that they sleep on a word of
// it, and the poller nodes behind which goroutines are parked. Kinds that define
// Inspect add what each waits for. Those in queues come first, in the order of their
// arrival.
func (a *Arena) WaitsOf(o Object) []Wait {
	if a.waits != nil {
		return a.waits[o.Offset]
	}
	return a.findWaits()[o.Offset]
}
