package prims

import (
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// For each kind of object X there are two functions. OpenX finds an object or creates it. AttachX only finds an
// object, and its error Is [fs.ErrNotExist] if there is no object of that name. For an existing object, options mean
// the same in both functions.

// needs returns an error if n is not positive. n is a number that only the creation of an object uses, such as the
// number of parties of a Barrier. An OpenX calls needs even if it finds the object. Otherwise a bad n would be an
// error only if no other process has created the object before.
func needs(kind, name, what string, n int64) error {
	if n > 0 {
		return nil
	}
	return &shmsync.Error{
		Op: strings.ToLower(kind) + ".open", Object: name, Err: fs.ErrInvalid,
		Detail: fmt.Sprintf("it takes %s of at least 1, not %d; Attach%s opens one that exists", what, n, kind),
	}
}

// AttachBarrier opens the existing Barrier called name. If there is none, the error Is [fs.ErrNotExist].
func AttachBarrier(a *arena.Arena, name string, opts *BarrierOptions) (*Barrier, error) {
	return openBarrier((*arenakernel.Arena)(a), name, 0, opts, true)
}

// AttachCohortMutex opens the existing CohortMutex called name. If there is none, the error Is [fs.ErrNotExist].
func AttachCohortMutex(a *arena.Arena, name string, opts *CohortMutexOptions) (*CohortMutex, error) {
	return openCohortMutex((*arenakernel.Arena)(a), name, opts, true)
}

// AttachCond opens the existing Cond called name. If there is none, the error Is [fs.ErrNotExist].
func AttachCond(a *arena.Arena, name string, l sync.Locker, opts *CondOptions) (*Cond, error) {
	return openCond((*arenakernel.Arena)(a), name, l, opts, true)
}

// AttachEvent opens the existing Event called name. If there is none, the error Is [fs.ErrNotExist].
func AttachEvent(a *arena.Arena, name string, opts *EventOptions) (*Event, error) {
	return openEvent((*arenakernel.Arena)(a), name, opts, true)
}

// AttachFairMutex opens the existing FairMutex called name. If there is none, the error Is [fs.ErrNotExist].
func AttachFairMutex(a *arena.Arena, name string, opts *FairMutexOptions) (*FairMutex, error) {
	return openFairMutex((*arenakernel.Arena)(a), name, opts, true)
}

// AttachFutex opens the existing Futex called name. If there is none, the error Is [fs.ErrNotExist].
func AttachFutex(a *arena.Arena, name string, opts *FutexOptions) (*Futex, error) {
	return openFutex((*arenakernel.Arena)(a), name, opts, true)
}

// AttachFuture opens the existing Future called name. If there is none, the error Is [fs.ErrNotExist].
func AttachFuture(a *arena.Arena, name string, opts *FutureOptions) (*Future, error) {
	return openFuture((*arenakernel.Arena)(a), name, opts, true)
}

// AttachLatch opens the existing Latch called name. If there is none, the error Is [fs.ErrNotExist].
func AttachLatch(a *arena.Arena, name string, opts *LatchOptions) (*Latch, error) {
	return openLatch((*arenakernel.Arena)(a), name, 0, opts, true)
}

// AttachMultiLock opens the existing MultiLock called name. If there is none, the error Is [fs.ErrNotExist].
func AttachMultiLock(a *arena.Arena, name string, opts *MultiLockOptions) (*MultiLock, error) {
	return openMultiLock((*arenakernel.Arena)(a), name, opts, true)
}

// AttachMutex opens the existing Mutex called name. If there is none, the error Is [fs.ErrNotExist].
func AttachMutex(a *arena.Arena, name string, opts *MutexOptions) (*Mutex, error) {
	return openMutex((*arenakernel.Arena)(a), name, opts, true)
}

// AttachOnce opens the existing Once called name. If there is none, the error Is [fs.ErrNotExist].
func AttachOnce(a *arena.Arena, name string, opts *OnceOptions) (*Once, error) {
	return openOnce((*arenakernel.Arena)(a), name, opts, true)
}

// AttachQueue opens the existing Queue called name. If there is none, the error Is [fs.ErrNotExist].
func AttachQueue[T any](a *arena.Arena, name string, opts *QueueOptions) (*Queue[T], error) {
	return openQueue[T]((*arenakernel.Arena)(a), name, 0, opts, true)
}

// AttachRWMutex opens the existing RWMutex called name. If there is none, the error Is [fs.ErrNotExist].
func AttachRWMutex(a *arena.Arena, name string, opts *RWMutexOptions) (*RWMutex, error) {
	return openRWMutex((*arenakernel.Arena)(a), name, opts, true)
}

// AttachRWSpinLock opens the existing RWSpinLock called name. If there is none, the error Is [fs.ErrNotExist].
func AttachRWSpinLock(a *arena.Arena, name string, opts *RWSpinLockOptions) (*RWSpinLock, error) {
	return openRWSpinLock((*arenakernel.Arena)(a), name, opts, true)
}

// AttachSemaphore opens the existing Semaphore called name. If there is none, the error Is [fs.ErrNotExist].
func AttachSemaphore(a *arena.Arena, name string, opts *SemaphoreOptions) (*Semaphore, error) {
	return openSemaphore((*arenakernel.Arena)(a), name, 0, opts, true)
}

// AttachSequencer opens the existing Sequencer called name. If there is none, the error Is [fs.ErrNotExist].
func AttachSequencer(a *arena.Arena, name string, opts *SequencerOptions) (*Sequencer, error) {
	return openSequencer((*arenakernel.Arena)(a), name, opts, true)
}

// AttachSignalWaker opens the existing SignalWaker called name. If there is none, the error Is [fs.ErrNotExist].
func AttachSignalWaker(a *arena.Arena, name string, opts *SignalWakerOptions) (*SignalWaker, error) {
	return openSignalWaker((*arenakernel.Arena)(a), name, opts, true)
}

// AttachSpinLock opens the existing SpinLock called name. If there is none, the error Is [fs.ErrNotExist].
func AttachSpinLock(a *arena.Arena, name string, opts *SpinLockOptions) (*SpinLock, error) {
	return openSpinLock((*arenakernel.Arena)(a), name, opts, true)
}

// AttachSynchronized opens the existing Synchronized called name. If there is none, the error Is [fs.ErrNotExist].
func AttachSynchronized[T any](a *arena.Arena, name string, opts *SynchronizedOptions) (*Synchronized[T], error) {
	return openSynchronized((*arenakernel.Arena)(a), name, *new(T), opts, true)
}

// AttachWaitGroup opens the existing WaitGroup called name. If there is none, the error Is [fs.ErrNotExist].
func AttachWaitGroup(a *arena.Arena, name string, opts *WaitGroupOptions) (*WaitGroup, error) {
	return openWaitGroup((*arenakernel.Arena)(a), name, opts, true)
}

// AttachWaitable opens the existing Waitable called name. If there is none, the error Is [fs.ErrNotExist].
func AttachWaitable[S, E any](a *arena.Arena, name string, rules Rules[S, E], opts *WaitableOptions) (*Waitable[S, E], error) {
	return openWaitable[S, E]((*arenakernel.Arena)(a), name, *new(S), rules, opts, true)
}
