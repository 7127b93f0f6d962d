package arenakernel

import (
	"cmp"

	"github.com/shmsync/shmsync"
)

// An Inspection is the state of an object for people and tools, as returned by [KindOps].Inspect.
// Its parts may be from different moments.
type Inspection struct {
	State  string        // the state in a few words
	Policy string        // "report", "release" or "rollback"; empty if the object has no policy
	Spin   string        // how long waiters spin before they sleep; empty if they do not spin
	Err    error         // why no participant can take the object: ErrOwnerDead, ErrNotRecoverable, ErrCorrupt; or nil
	Died   ParticipantID // the participant whose death caused Err, or 0
	Key    *uint64       // the first key to which Err applies, for an object with several keys; nil otherwise
	Keys   []uint64      // all keys like Key
	Holds  []Hold
	Waits  []Wait
	Words  []Word
	// Counts are the counters of the object. They are nil if the objects of the arena do not count
	// their operations.
	Counts *Counts
}

// Values of Hold.Mode.
const (
	HoldExclusive  = "exclusive"  // no other participant can hold the object
	HoldShared     = "shared"     // shared, for reading
	HoldUpgradable = "upgradable" // a read hold that can become exclusive without being released
	HoldClosing    = "closing"    // a writer that keeps new readers out, and waits for the present readers to unlock
	HoldRecovering = "recovering" // the participant repairs what a dead holder left behind
	HoldReserved   = "reserved"   // the object was granted to a waiter of the participant; the waiter has not taken it yet
	HoldPermits    = "permits"    // permits of a semaphore
	HoldOwes       = "owes"       // the participant has claimed work that others wait for, and has not done it yet
	HoldParty      = "party"      // a Barrier waits for the participant, which has not arrived yet
	HoldRunner     = "runner"     // the participant runs the function that others wait for
	HoldProducer   = "producer"   // the participant will set the result that others wait for
	HoldLease      = "lease"      // an item of a Queue that the participant has taken and not yet acknowledged
	HoldClaim      = "claim"      // a claim on a Waitable, according to its rules
	HoldExecutor   = "executor"   // the participant examines a queue of a SignalWaker
)

// A Hold says that a participant holds an object or a part of it.
type Hold struct {
	Owner ParticipantID // the participant that holds the object
	Mode  string        // one of the constants
	Count uint64        // how many units the participant holds, such as permits; 0 if there are no units
	Key   *uint64       // the key, if the object has several
	Since int64         // CLOCK_MONOTONIC, ns; 0 if unknown
	Note  string        // further facts, in words

	AtLeast bool // the time in Since is when a waiter found the hold, which may have begun earlier
}

// A Wait is a wait of goroutines of a participant for an object.
type Wait struct {
	Owner ParticipantID // the participant whose goroutines wait
	For   string        // "lock", "read", "permits" and the like
	Want  *uint64       // the number, key or token that the wait is for; nil if none
	Stamp uint64        // a wait with a lower stamp came earlier; 0 if the waits have no order
	Since int64         // CLOCK_MONOTONIC, ns; 0 if unknown
	How   string        // asleep in the kernel, parked in its process, or awake
	Count uint64        // number of goroutines, as far as the arena records it; 0 if unknown
	// On lists the holds that have to end before this wait can end, as indices into
	// Inspection.Holds. If Any is set, it is enough that some of them end. Otherwise all of them
	// have to end.
	On  []int
	Any bool

	// At distinguishes waits that are not in a queue. It is the offset, in the object's body, of
	// the word on which the thread sleeps, or of the head of the list of poller nodes.
	At Offset
	// Node is the offset of the wait node, or 0 if there is none.
	Node Offset
}

// Values of Wait.How.
const (
	WaitAsleep = "asleep" // a thread sleeps in the kernel
	WaitParked = "parked" // the goroutine is parked; a releaser wakes its process
	WaitAwake  = "awake"  // the wait is queued; its goroutine is about to sleep, or about to leave
)

// A Word is a word of an object, with an explanation of its bits.
type Word struct {
	Name string // the purpose of the word
	Bits uint64 // the word itself
	Text string // the meaning of its bits
}

// Counts are the counters of an object in a counted arena. They start when the object is created.
type Counts struct {
	Acquired  uint64 // how often the object was taken, or a wait for it succeeded
	Contended uint64 // how often a call found the object not free
	SpinsPaid uint64 // waits that ended while the waiter was spinning, before it slept
	Slept     uint64 // how often a waiter went to sleep
	Woken     uint64 // waiters that were woken
	Recovered uint64 // holds that were recovered from dead participants
}

// WaitsOf returns the waits for o that can be found without knowledge of its kind: the wait nodes
// in its queues, the threads that have recorded that they sleep on one of its words, and the poller
// nodes of processes with parked goroutines. Kinds that define Inspect add what each wait is for.
// Waits in queues come first, in the order of arrival.
func (a *Arena) WaitsOf(o Object) []Wait {
	if a.waits != nil {
		return a.waits[o.Offset]
	}
	return a.findWaits()[o.Offset]
}

// Now returns the time to which the ages in an Inspection refer, CLOCK_MONOTONIC ns. It is the
// present or, for a dump, the time when the dump was made.
func (a *Arena) Now() int64 { return cmp.Or(a.now, shmsync.Monotonic()) }
