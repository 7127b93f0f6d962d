package arena

import (
	"fmt"
	"strings"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/diagnose"
)

// EventKind says what happened; see [Event].
type EventKind = arenakernel.EventKind

const (
	// EventDeath means that a participant has died. Each process with an OnEvent gets one such
	// event for each death after its Open. OnFirst gets the deaths before an epoch.
	EventDeath = arenakernel.EventDeath
	// EventOwnerDead means that this process has made a lock owner-dead, because its holder has
	// died. Calls that take the lock fail with ErrOwnerDead until it is repaired.
	EventOwnerDead = arenakernel.EventOwnerDead
	// EventTakenBack means that this process has ended the exclusive hold of a dead participant by
	// the policy of the lock: PolicyRelease, or PolicyRollback after it has undone what the dead
	// participant left. Other holds that a death ends, such as those of readers and permits, cause
	// no event.
	EventTakenBack = arenakernel.EventTakenBack
	// EventRepaired means that a repair by this process has succeeded. After Recover the lock is
	// free; after the Repair of the options, the call that ran it holds the lock.
	EventRepaired = arenakernel.EventRepaired
	// EventNotRecoverable means that a repair by this process has failed, that it could not undo
	// what a dead participant left, or that an Update has found or left an undo log that is not
	// usable. Calls that take the lock fail with ErrNotRecoverable.
	EventNotRecoverable = arenakernel.EventNotRecoverable
	// EventCorrupt means that a call on an open handle of this process has found bytes in the
	// object that no correct process writes. Usually there is one such event for each object. A
	// call that opens a damaged object, and Check, return an error and cause no event.
	EventCorrupt = arenakernel.EventCorrupt
)

// Event is something that went wrong in an arena, or was put right, as the function
// [Options].OnEvent gets it. Its values are for logs and alerts: what it says may have changed
// since. Events of one object may come in another order than they happened, because the goroutine
// that makes a change tells it afterwards; the object itself says how it is now. Do not change what
// the pointers refer to: other functions get the same event.
type Event struct {
	Kind EventKind
	Time time.Time // when this process learned of it
	// Object is the object that the event concerns. It is the zero Object for EventDeath.
	Object Object
	// Key is the key of a MultiLock that the event concerns, and nil otherwise.
	Key *uint64
	// Who is the participant that died. It is nil for EventCorrupt, and if it is not known.
	Who *shmsync.Identity
	// Err is the error that EventCorrupt is about, or the error of the repair that has failed. It may be
	// nil for EventNotRecoverable: a repair that panics has no error.
	Err error
	// Missed is how many events were dropped since the last one that was delivered, because
	// OnEvent was too slow or because this process was stopped while the records of deaths were
	// overwritten.
	Missed uint64
}

// String renders the event on one line.
func (e Event) String() string {
	var b strings.Builder
	b.WriteString(e.Kind.String())
	if e.Object.Offset != 0 {
		fmt.Fprintf(&b, ": %v", e.Object)
	}
	if e.Key != nil {
		fmt.Fprintf(&b, " key %d", *e.Key)
	}
	if e.Who != nil {
		fmt.Fprintf(&b, ": %v", *e.Who)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	if e.Missed != 0 {
		fmt.Fprintf(&b, " (%d events were dropped before)", e.Missed)
	}
	return diagnose.Clean(b.String()) // names and labels may contain anything
}

// onEvent gives a function of the options in the form of package arenakernel.
func onEvent(f func(Event)) func(arenakernel.Event) {
	if f == nil {
		return nil
	}
	return func(e arenakernel.Event) {
		f(Event{Kind: e.Kind, Time: e.Time, Object: Object(e.Object), Key: e.Key, Who: e.Who, Err: e.Err, Missed: e.Missed})
	}
}
