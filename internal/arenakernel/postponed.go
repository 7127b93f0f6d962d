package arenakernel

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/shmsync/shmsync"
)

// fillIdentity stores the identity of this process, from /proc, in the slot. To read /proc takes as long as the rest of
// the join, so Open does not wait for it. Until the identity is stored, only the byte lock can show that this
// participant is gone.
//
// If a shortage hides the identity, for example because this process has too many files open, fillIdentity stores nothing
// and asks for a further call.
func (a *Arena) fillIdentity() (again time.Duration) {
	id, err := selfIdentity()
	if err != nil {
		return identifyAgain
	}
	s := a.slot(a.mySlot)
	shmsync.FeatureThreads.Have() // the first probe takes long, so do it now and not during a death
	a.u64(s + slotPIDNS).Store(id.pidNS)
	copyBytes(a.slice(s+slotBootID, 16), id.bootID[:])
	a.u64(s + slotIdentitySum).Store(id.sum(a.self.Generation(), uint32(os.Getpid())))
	a.u64(s + slotStart).Store(id.startTime) // stored last: a process that reads it can read the other fields, too
	return 0
}

// fenceAfter is how long after its join a participant registers its process for fences, that is, for memory barriers
// that other processes make its threads execute. The registration takes milliseconds. A process that is killed during
// the registration ends only after the registration. A participant that leaves before this time never registers.
const fenceAfter = 50 * time.Millisecond

// fenceRegistration registers this process for fences of other processes. If the registration succeeds, or the system
// has no fences, this result is final. After any other failure, such as a lack of memory, the next call tries again.
type fenceRegistration struct {
	mu       sync.Mutex
	known    bool
	err      error
	register func() error
}

var fenceRegistered = &fenceRegistration{register: shmsync.RegisterFence}

func (f *fenceRegistration) do() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.known {
		f.err = f.register()
		f.known = f.err == nil || errors.Is(f.err, shmsync.ErrNotSupported)
	}
	return f.err
}

// becomeFenceTarget registers this process for fences, and then records that in its slot. Close does not wait for the
// registration.
func (a *Arena) becomeFenceTarget() (again time.Duration) {
	registered := fenceRegistered
	go func() {
		err := registered.do()
		for ; err != nil && !errors.Is(err, shmsync.ErrNotSupported) && !a.closing.Load(); err = registered.do() {
			pauseFencing(fenceAgain)
		}
		if err != nil {
			return
		}
		a.inBackground(func() {
			a.u32(a.slot(a.mySlot) + slotCaps).Or(capFence)
			a.fenced.Store(true)
		})
	}()
	return 0
}

// fenceAgain is the pause after an attempt that failed because of a shortage, such as a lack of memory.
const fenceAgain = time.Second

// pauseFencing waits between two attempts. It is a variable so that tests need not wait.
var pauseFencing = time.Sleep

const (
	// identifyAfter is how long after its join a participant reads its identity from /proc.
	identifyAfter = time.Millisecond
	// identifyAgain is the pause after an attempt that failed. It is longer than fenceAfter, so that the list
	// of postponed work stays ordered by time.
	identifyAgain = time.Second
)

// postponed is work that a participant does some time after it has joined. If do returns a time other than 0, it has to
// be called again after that time.
type postponed struct {
	at int64 // CLOCK_MONOTONIC ns
	do func() (again time.Duration)
}

// afterJoining returns the postponed work, in the order of the times. The death watcher does this work. The watcher
// does not use a timer, because the first timer of a Go program initializes the poller of the runtime, for which Open
// would have to wait.
func (a *Arena) afterJoining() []postponed {
	now := shmsync.Monotonic()
	return []postponed{
		{now + int64(identifyAfter), a.fillIdentity},
		{now + int64(fenceAfter), a.becomeFenceTarget},
	}
}
