//go:build linux

package bench

import "time"

// A crash cell has one survivor, process 0, and a fresh victim for each round:
// the victim locks, the survivor queues up and falls asleep, the parent stamps
// the page and kills the victim, the survivor stamps when it owns. Process k is
// the victim of round k. The words of the control page count rounds.
//
// There is no other participant: the death would wake it too, and it would run beside the
// survivor.
const (
	crashSlots  = 2                       // of the survivor and of the victim
	CrashAsleep = 1500 * time.Microsecond // from queueing up until the kill
)

// The roles of the victims of a crash cell. If the victim is no holder, the survivor has
// two goroutines: the first holds the lock, shared if the victims read, until the victim
// has been killed, and the second waits behind it to own the lock.
const (
	RoleHolder = uint64(iota)
	RoleWaiter // it sleeps in Lock, before the second of the survivor
	RoleReader // it has the lock shared, as the first of the survivor has
)

// RoleNames are as the user says them; keys of cells leave the first one out.
var RoleNames = []string{"holder", "waiter", "reader"}
