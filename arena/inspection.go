package arena

import "github.com/shmsync/shmsync/internal/arenakernel"

// Inspection is the state of an object, for people and tools. Its parts may be of different
// moments.
type Inspection struct {
	State  string        // in a few words
	Policy string        // "report" or "release"; empty where there is none
	Spin   string        // the spin budget; empty where there is none
	Err    error         // why no participant can have it: ErrOwnerDead, ErrNotRecoverable, ErrCorrupt; nil otherwise
	Died   ParticipantID // whose death that is, or 0
	Key    *uint64       // the key that Err is about, for an object that has several; nil otherwise
	Holds  []Hold        // the holds that participants have of it
	Waits  []Wait        // the waits for it
	Counts *Counts       // its counters; nil in an arena that does not count
}

// Hold is a hold of a participant on an object, or a part of one.
type Hold struct {
	Owner ParticipantID // whose it is
	Mode  string        // one of the constants
	Count uint64        // how many, where that says something
	Key   *uint64       // the key, in an object that has several
	Since int64         // CLOCK_MONOTONIC, ns; 0 where it is unknown
	Note  string        // more, in words

	AtLeast bool // the hold began at Since, when a waiter met it, or earlier
}

// The values of Hold.Mode.
const (
	HoldExclusive  = "exclusive"  // one process has it exclusively
	HoldShared     = "shared"     // for reading
	HoldUpgradable = "upgradable" // a read hold that can become exclusive next
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

// Wait is a wait of a participant's goroutines for an object.
type Wait struct {
	Owner ParticipantID // whose goroutines
	For   string        // what the wait is for: "lock", "read", "permits" and the like
	Want  *uint64       // how many, which key, which token; nil where that says nothing
	Stamp uint64        // waits of an object with a lower one came before; 0 where there is no order
	Since int64         // CLOCK_MONOTONIC, ns; 0 where it is unknown
	How   string        // asleep in the kernel, parked in its process, or awake
	Count uint64        // goroutines, as far as can be told; 0 where that is not known
	// On are the holds that have to end before this wait can, as indices of
	// Inspection.Holds: all of them or, if Any is set, enough of them.
	On  []int
	Any bool
}

// The values of Wait.How.
const (
	WaitAsleep = "asleep" // a thread sleeps in the kernel
	WaitParked = "parked" // the goroutine is parked, and a wake for it has reached its process
	WaitAwake  = "awake"  // it is in a queue, and on its way to sleep or away
)

// Counts are the counters of an object in a counted arena, from its creation on.
type Counts struct {
	Acquired  uint64 // how often it was taken, or a wait ended well
	Contended uint64 // acquisitions that found it not free
	SpinsPaid uint64 // waits that spinning ended
	Slept     uint64 // times that a waiter went to sleep
	Woken     uint64 // waiters that were woken
	Recovered uint64 // holds of the dead that were taken back
}

// Inspect tells the state of an object: its holds, its waits, and whether it needs a repair
// after a death.
func (a *Arena) Inspect(o Object) Inspection {
	return inspectionOf(a.kernel().Inspect(arenakernel.Object(o)))
}

// inspectionOf leaves out the words of the object, which only the tools of this module read.
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
