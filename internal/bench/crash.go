//go:build linux

package bench

import "time"

// A crash cell has one survivor, process 0, and a fresh victim for each round:
// the victim locks, the survivor queues up and falls asleep, the parent stamps
// the page and kills the victim, the survivor stamps when it owns. Process k is
// the victim of round k. The words of the control page count rounds.
//
// There is no other participant: the death would wake it, too, and it would compete with the
// survivor for the CPU.
const (
	crashSlots  = 2                       // one for the survivor and one for the victim
	CrashAsleep = 1500 * time.Microsecond // time from the survivor's queueing until the kill
)

// The roles of the victims of a crash cell. If the victim is no holder, the survivor has two
// goroutines. The first holds the lock, shared if the victims read, until the victim has been
// killed. The second waits behind it to own the lock.
const (
	RoleHolder = uint64(iota)
	RoleWaiter // it sleeps in Lock, before the survivor's second goroutine
	RoleReader // it holds the lock shared, as the survivor's first goroutine does
)

// RoleNames are the names that the user gives; keys of cells leave the first one out.
var RoleNames = []string{"holder", "waiter", "reader"}
