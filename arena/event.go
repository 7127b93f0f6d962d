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
	// EventDeath means that a participant has died. Each process with an OnEvent gets one such event
	// for each death after its Open. Deaths before the epoch began are passed to OnFirst.
	EventDeath = arenakernel.EventDeath
	// EventOwnerDead means that this process has made a lock owner-dead, because its holder has
	// died. Calls that take the lock fail with ErrOwnerDead until the lock is repaired.
	EventOwnerDead = arenakernel.EventOwnerDead
	// EventTakenBack means that this process has ended the exclusive hold of a dead participant, as
	// the policy of the lock says. With PolicyRollback, this process has first undone what the dead
	// participant left. With PolicyRelease, nothing is undone. When a death ends other holds, such
	// as read holds and permits, there is no event.
	EventTakenBack = arenakernel.EventTakenBack
	// EventRepaired means that a repair by this process has succeeded. If Recover made the repair,
	// the lock is free. If the Repair of the options made it, the call that ran the Repair holds the
	// lock.
	EventRepaired = arenakernel.EventRepaired
	// EventNotRecoverable means that no process can take a lock any more. One of three things has happened in this
	// process: a repair has failed, the rollback of a dead participant's changes has failed, or an Update has found or
	// left an unusable undo log. Calls that take the lock fail with ErrNotRecoverable.
	EventNotRecoverable = arenakernel.EventNotRecoverable
	// EventCorrupt means that a call on an open handle of this process has found bytes in the
	// object that no correct process writes. Usually there is one such event for each object. If
	// Check, or a call that opens the object, finds the damage, it returns an error, and there is
	// no event.
	EventCorrupt = arenakernel.EventCorrupt
)

// Event describes a death, damage or a repair in an arena. The function [Options].OnEvent gets it, for logs and alerts.
//
// A goroutine first makes a change and then reports it. So the object may have changed again before
// the event arrives, and two events of one object may arrive in the wrong order. Read the state
// from the object itself. Do not change what the pointers of an Event refer to, because other
// functions get the same event.
type Event struct {
	Kind EventKind
	Time time.Time // when this process learned of it
	// Object is the object that the event concerns. It is the zero Object for EventDeath.
	Object Object
	// Key is the key of a MultiLock that the event concerns, and nil otherwise.
	Key *uint64
	// Who names the participant that died. It is nil for EventCorrupt, and if the participant is not
	// known.
	Who *shmsync.Identity
	// Err is the error that EventCorrupt reports, or the error of the repair that failed. It may be nil
	// for EventNotRecoverable, because a repair that panics has no error.
	Err error
	// Missed counts the events that were dropped since the last event that was delivered. Events are
	// dropped if OnEvent is too slow, or if this process was stopped while death records were
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

// onEvent returns f as a function that takes an event of package arenakernel.
func onEvent(f func(Event)) func(arenakernel.Event) {
	if f == nil {
		return nil
	}
	return func(e arenakernel.Event) {
		f(Event{Kind: e.Kind, Time: e.Time, Object: Object(e.Object), Key: e.Key, Who: e.Who, Err: e.Err, Missed: e.Missed})
	}
}
