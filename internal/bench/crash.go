//go:build linux

package bench

import "time"

// A crash cell has one survivor, process 0, and a new victim for each round; process k is the victim of round k. In a
// round the victim locks, and the survivor queues up and falls asleep. The parent writes the time into the page and
// kills the victim. The survivor takes the time when it owns the lock. The words of the control page count rounds.
//
// No other process has joined the arena: the death would wake it, too, and it would compete with the survivor for the
// CPU.
const (
	crashSlots  = 2                       // the survivor's, and that of the victims
	CrashAsleep = 1500 * time.Microsecond // from the moment when the survivor queues up until the kill
)

// The roles of the victims of a crash cell. If the victim is not the holder, the survivor has two goroutines. The
// first one holds the lock until the victim has been killed; it holds the lock shared if the victim is a reader. The
// second one waits behind the first to own the lock.
const (
	RoleHolder = uint64(iota)
	RoleWaiter // the victim sleeps in Lock, queued before the survivor's second goroutine
	RoleReader // the victim holds the lock shared, together with the survivor's first goroutine
)

// RoleNames are the names that the user gives. Keys of cells omit the first one, which is the default.
var RoleNames = []string{"holder", "waiter", "reader"}
