package arena

import "github.com/shmsync/shmsync/internal/arenakernel"

// Inspection is the state of an object, for people and tools. Its parts may have been read at
// different moments.
type Inspection struct {
	State  string        // in a few words
	Policy string        // "report", "release" or "rollback"; empty if the object has no policy
	Spin   string        // the spin budget; empty if the object has none
	Err    error         // why no participant can take it: ErrOwnerDead, ErrNotRecoverable, ErrCorrupt; nil otherwise
	Died   ParticipantID // the participant whose death caused Err, or 0
	Key    *uint64       // the key that Err is about, for an object that has several; nil otherwise
	Holds  []Hold        // the holds that participants have on it
	Waits  []Wait        // the waits for it
	Counts *Counts       // its counters; nil if the arena is not counted
}

// Hold is a hold of a participant on an object, or a part of one.
type Hold struct {
	Owner ParticipantID // whose it is
	Mode  string        // one of the constants
	Count uint64        // how many, such as permits, if that means anything
	Key   *uint64       // the key, if the object has several
	Since int64         // CLOCK_MONOTONIC, ns; 0 if unknown
	Note  string        // more, in words

	AtLeast bool // Since is only when a waiter met the hold, which may have begun earlier
}

// The values of Hold.Mode.
const (
	HoldExclusive  = "exclusive"  // one process has it exclusively
	HoldShared     = "shared"     // for reading
	HoldUpgradable = "upgradable" // a read hold that can become exclusive before any other
	HoldClosing    = "closing"    // a writer that has shut new readers out, and waits for the others to leave
	HoldRecovering = "recovering" // repairs what a dead holder left
	HoldReserved   = "reserved"   // granted to a waiter of this participant that has not taken it yet
	HoldQueueLock  = "queue lock" // the queue lock that guards the object's own state
	HoldPermits    = "permits"    // of a semaphore
	HoldOwes       = "owes"       // has claimed work that others wait for, and not done it yet
	HoldParty      = "party"      // has yet to arrive
	HoldRunner     = "runner"     // runs the function that others wait for
	HoldProducer   = "producer"   // will set the result
	HoldLease      = "lease"      // an item of a queue
	HoldClaim      = "claim"      // a claim on a Waitable, by its rules
	HoldExecutor   = "executor"   // examines a queue of a SignalWaker
)

// Wait is a wait of a participant's goroutines for an object.
type Wait struct {
	Owner ParticipantID // whose goroutines
	For   string        // what the wait is for: "lock", "read", "permits" and the like
	Want  *uint64       // how many, which key or which token; nil if that does not apply
	Stamp uint64        // waits with a lower stamp came before; 0 if the waits have no order
	Since int64         // CLOCK_MONOTONIC, ns; 0 if unknown
	How   string        // asleep in the kernel, parked in its process, or awake
	Count uint64        // how many goroutines, as far as known; 0 if unknown
	// On are the holds that have to end before this wait can end, as indices of Inspection.Holds.
	// All of them have to end or, if Any is set, enough of them.
	On  []int
	Any bool
}

// The values of Wait.How.
const (
	WaitAsleep = "asleep" // a thread sleeps in the kernel
	WaitParked = "parked" // the goroutine is parked; a wake for it has reached its process
	WaitAwake  = "awake"  // the wait is queued; its goroutine is about to sleep, or about to leave
)

// Counts are the counters of an object in a counted arena, from its creation on.
type Counts struct {
	Acquired  uint64 // how often the object was taken, or a wait for it succeeded
	Contended uint64 // how often the object was not free when a call wanted to take it
	SpinsPaid uint64 // waits that spinning ended
	Slept     uint64 // how often a waiter went to sleep
	Woken     uint64 // waiters that were woken
	Recovered uint64 // holds that were taken back from dead participants
}

// Inspect returns the state of the object o: its holds, its waits, and whether it needs a repair
// after a death.
func (a *Arena) Inspect(o Object) Inspection {
	return inspectionOf(a.kernel().Inspect(arenakernel.Object(o)))
}

// inspectionOf converts an Inspection of package arenakernel. It leaves out the words of the
// object, which only the tools of this module read.
func inspectionOf(k arenakernel.Inspection) Inspection {
	i := Inspection{
		State: k.State, Policy: k.Policy, Spin: k.Spin, Err: k.Err, Died: k.Died, Key: k.Key, Counts: (*Counts)(k.Counts),
	}
	for _, h := range k.Holds {
		i.Holds = append(i.Holds, Hold(h))
	}
	for _, w := range k.Waits {
		i.Waits = append(i.Waits, Wait{
			Owner: w.Owner, For: w.For, Want: w.Want, Stamp: w.Stamp, Since: w.Since, How: w.How, Count: w.Count, On: w.On, Any: w.Any,
		})
	}
	return i
}
