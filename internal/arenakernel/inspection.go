package arenakernel

import (
	"cmp"

	"github.com/shmsync/shmsync"
)

// Inspection is the state of an object for people and tools, as [KindOps].Inspect reports it. Its
// parts may be from different moments.
type Inspection struct {
	State  string        // in a few words
	Policy string        // "report", "release" or "rollback"; empty if the object has no policy
	Spin   string        // the spin budget; empty if the object has none
	Err    error         // why no participant can take it: ErrOwnerDead, ErrNotRecoverable, ErrCorrupt; nil otherwise
	Died   ParticipantID // the participant whose death caused Err, or 0
	Key    *uint64       // the key that Err is about, for an object that has several; nil otherwise
	Holds  []Hold
	Waits  []Wait
	Words  []Word
	// Counts are the counters of the object; nil if the arena is not counted.
	Counts *Counts
}

// Values of Hold.Mode.
const (
	HoldExclusive  = "exclusive"  // exclusive
	HoldShared     = "shared"     // shared, for reading
	HoldUpgradable = "upgradable" // a read hold that can become exclusive before any other
	HoldClosing    = "closing"    // a writer that has shut new readers out, and waits for the others to leave
	HoldRecovering = "recovering" // repairs what a dead holder left
	HoldReserved   = "reserved"   // granted to a waiter of this participant that has not taken it yet
	HoldQueueLock  = "queue lock" // the queue lock that guards the object's own state
	HoldPermits    = "permits"    // permits of a semaphore
	HoldOwes       = "owes"       // has claimed work that others wait for, and not done it yet
	HoldParty      = "party"      // has yet to arrive
	HoldRunner     = "runner"     // runs the function that others wait for
	HoldProducer   = "producer"   // will set the result
	HoldLease      = "lease"      // an item of a queue
	HoldClaim      = "claim"      // a claim on a Waitable, by its rules
	HoldExecutor   = "executor"   // examines a queue of a SignalWaker
)

// Hold is a hold of a participant on an object, or on a part of it.
type Hold struct {
	Owner ParticipantID // the participant that holds it
	Mode  string        // one of the constants
	Count uint64        // how many, where a number makes sense
	Key   *uint64       // the key, if the object has several
	Since int64         // CLOCK_MONOTONIC, ns; 0 if it is not known
	Note  string        // more, in words

	AtLeast bool // Since is only when a waiter met the hold, which may have begun earlier
}

// Wait is a wait of a participant's goroutines for an object.
type Wait struct {
	Owner ParticipantID // the participant whose goroutines wait
	For   string        // "lock", "read", "permits" and the like
	Want  *uint64       // the number, key or token that is waited for; nil if there is none
	Stamp uint64        // waits with a lower stamp came before; 0 if the waits have no order
	Since int64         // CLOCK_MONOTONIC, ns; 0 if it is not known
	How   string        // asleep in the kernel, parked in its process, or awake
	Count uint64        // number of goroutines, as far as the arena records it; 0 if it is not known
	// On lists the holds that have to end before this wait can end, as indices of Inspection.Holds.
	// All of them have to end or, if Any is set, enough of them.
	On  []int
	Any bool

	// Class says what the wait node waits for. The kind of the object defines its values.
	Class uint16
	// At distinguishes waits that are not in a queue. It is the offset, within the object's body,
	// of the word that the thread sleeps on, or of the head of the list of poller nodes.
	At Offset
	// Node is the wait node, or 0.
	Node Offset
}

// How a wait waits.
const (
	WaitAsleep = "asleep" // a thread sleeps in the kernel
	WaitParked = "parked" // the goroutine is parked; a wake for it goes to its process
	WaitAwake  = "awake"  // the wait is queued; its goroutine is about to sleep, or about to leave
)

// Word is a word of an object, with its bits explained.
type Word struct {
	Name string // the purpose of the word
	Bits uint64 // the word itself
	Text string // the meaning of its bits
}

// Counts are the counters of an object in a counted arena, from its creation on.
type Counts struct {
	Acquired  uint64 // how often the object was taken, or a wait for it succeeded
	Contended uint64 // how often the object was not free when a call wanted to take it
	SpinsPaid uint64 // waits that spinning ended
	Slept     uint64 // how often a waiter went to sleep
	Woken     uint64 // waiters that were woken
	Recovered uint64 // holds that were taken back from dead participants
}

// WaitsOf returns the waits for o that can be found without knowing its kind: the wait nodes in its
// queues, the threads that have recorded that they sleep on a word of it, and the poller nodes of
// processes with parked goroutines. Kinds that define Inspect add what each waits for. Waits in
// queues come first, in the order of their arrival.
func (a *Arena) WaitsOf(o Object) []Wait {
	if a.waits != nil {
		return a.waits[o.Offset]
	}
	return a.findWaits()[o.Offset]
}

// Now returns the time to which the ages in an Inspection refer, CLOCK_MONOTONIC ns: the present,
// or the time when a dump was made.
func (a *Arena) Now() int64 { return cmp.Or(a.now, shmsync.Monotonic()) }
