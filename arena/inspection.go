package arena

import "github.com/shmsync/shmsync/internal/arenakernel"

// Inspection is the state of an object, for people and tools. Its parts may have been read at different
// moments.
type Inspection struct {
	State  string        // the state in a few words
	Policy string        // "report", "release" or "rollback"; empty if the object has no policy
	Spin   string        // how long waiters spin before they sleep; empty if they do not spin
	Err    error         // why no participant can take the object: ErrOwnerDead, ErrNotRecoverable, ErrCorrupt; or nil
	Died   ParticipantID // the participant whose death caused Err, or 0
	Key    *uint64       // the key to which Err applies, for an object with several keys; nil otherwise
	Holds  []Hold        // the holds that participants have on the object
	Waits  []Wait        // the waits for the object
	Counts *Counts       // the counters of the object; nil if the arena is not counted
}

// Hold is a hold that a participant has on an object, or on a part of it.
type Hold struct {
	Owner ParticipantID // the participant that has the hold
	Mode  string        // one of the Hold constants below
	Count uint64        // how many units are held, such as permits, if the object has units
	Key   *uint64       // the key, if the object has several
	Since int64         // CLOCK_MONOTONIC, ns; 0 if unknown
	Note  string        // further details, in words

	AtLeast bool // the hold may have begun earlier: Since is only the time when a waiter first saw the hold
}

// The values of Hold.Mode.
const (
	HoldExclusive  = "exclusive"  // one process holds the object, and no other process does
	HoldShared     = "shared"     // a read hold
	HoldUpgradable = "upgradable" // a read hold that can become exclusive without being released
	HoldClosing    = "closing"    // a writer that keeps new readers out, and waits for the present readers to unlock
	HoldRecovering = "recovering" // a process repairs what a dead holder left
	HoldReserved   = "reserved"   // granted to a waiter of this participant that has not accepted it yet
	HoldPermits    = "permits"    // permits of a semaphore
	HoldOwes       = "owes"       // the participant has claimed work that others wait for, and has not done it yet
	HoldParty      = "party"      // the participant belongs to a Barrier, and has not arrived yet
	HoldRunner     = "runner"     // the participant runs the function that others wait for
	HoldProducer   = "producer"   // the participant will set the result that others wait for
	HoldLease      = "lease"      // the participant has taken an item of a queue, and has not finished with it
	HoldClaim      = "claim"      // a claim on a Waitable, according to its rules
	HoldExecutor   = "executor"   // the participant examines a queue of a SignalWaker
)

// Wait is a wait of goroutines of one participant for an object.
type Wait struct {
	Owner ParticipantID // the participant that the goroutines belong to
	For   string        // what the wait is for: "lock", "read", "permits" and the like
	Want  *uint64       // the number, key or token that the wait is for; nil if none
	Stamp uint64        // a wait with a lower stamp began earlier; 0 if the waits have no order
	Since int64         // CLOCK_MONOTONIC, ns; 0 if unknown
	How   string        // one of the constants below
	Count uint64        // number of goroutines, as far as the arena records it; 0 if unknown
	// On lists the holds that block this wait, as indices of Inspection.Holds. If Any is false, the wait
	// ends only when all these holds have ended. If Any is true, the end of fewer holds may be enough.
	On  []int
	Any bool
}

// The values of Wait.How.
const (
	WaitAsleep = "asleep" // a thread sleeps in the kernel
	WaitParked = "parked" // the goroutine is parked; a wake for it goes to its process
	WaitAwake  = "awake"  // the wait is queued; its goroutine is about to sleep, or about to leave
)

// Counts are the counters of an object in a counted arena. They start when the object is created.
type Counts struct {
	Acquired  uint64 // how often the object was taken, or a wait for it succeeded
	Contended uint64 // how often the object was not free when a call wanted to take it
	SpinsPaid uint64 // waits that ended while the waiter was spinning, before it slept
	Slept     uint64 // how often a waiter went to sleep
	Woken     uint64 // waiters that were woken
	Recovered uint64 // holds that were taken back from dead participants
}

// Inspect returns the state of the object o: its holds, its waits, and whether it needs a repair
// after a death.
func (a *Arena) Inspect(o Object) Inspection {
	return inspectionOf(a.kernel().Inspect(arenakernel.Object(o)))
}

// inspectionOf converts an Inspection of package arenakernel. It leaves out the words of the object,
// because only the tools of this module read them.
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
