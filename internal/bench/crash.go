//go:build linux

package bench

import "time"

// A crash cell measures how long it takes until a lock whose holder was killed has a new owner. Process 0 is the
// survivor. Process k is the victim of round k. In a round the victim locks, and the survivor queues up and falls
// asleep. The parent writes the time into the control page and kills the victim. The survivor reads the clock when it
// owns the lock. The words of the control page count rounds.
//
// No other process has joined the arena. The death would wake such a process, too, and the process would compete
// with the survivor for the CPU.
const (
	crashSlots  = 2                       // one for the survivor, and one that all victims share
	CrashAsleep = 1500 * time.Microsecond // from the moment when the survivor queues up until the kill
)

// These are the roles of a victim, that is, of a process that a crash cell kills. If the victim is not the holder,
// the survivor has two goroutines. The first goroutine holds the lock until the victim has been killed; if the
// victim is a reader, it holds the lock shared. The second goroutine waits to own the lock.
const (
	RoleHolder = uint64(iota)
	RoleWaiter // the victim sleeps in Lock, queued before the survivor's second goroutine
	RoleReader // the victim holds the lock shared, together with the survivor's first goroutine
)

// RoleNames are the names by which the user chooses the role of the killed process. The first name is the default, so
// keys of measurements omit it.
var RoleNames = []string{"holder", "waiter", "reader"}
