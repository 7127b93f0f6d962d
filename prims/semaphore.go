package prims

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
)

var (
	_ = crashpoint.Register("semaphore.acquire.accepted")
)

// Semaphore is a weighted semaphore between processes: goroutines acquire permits, any number at a time, and
// release them. It has the methods of x/sync/semaphore. As there, requests are served in the order in which they
// are queued, so small requests cannot overtake a request for many permits for ever. A request may spin before it
// is queued, for a millisecond at most.
//
// Permits belong to the process that acquired them. When the process dies, its permits become free. A transferable
// semaphore only counts permits and does not know which process has them. So when a process dies, its permits stay
// taken, except permits that were granted to an Acquire that had not returned.
//
// While no goroutine waits, Acquire and Release are one instruction each on memory that only this
// process writes. A process keeps the permits that it released until another process wants them.
//
// In the terminology of the Go memory model, and across processes: a Release synchronizes before the return of an
// Acquire that its permits made possible. If a process dies, its death synchronizes before the return of an Acquire
// that the permits of the dead process made possible.
type Semaphore struct {
	recordQueue
	words   *semaphoreWords
	own     slotShare // the permits that this process has; empty in the handle of a reaper or a tool
	slots   recordSlots[slotShare]
	fast    atomic.Uint32 // where this process may acquire permits without a record; see fastOff
	name    arenakernel.ParticipantID
	size    uint64
	moves   bool          // the semaphore is transferable
	closed  chan struct{} // closed when the handle is closed
	opening *opening
	tried   tryCheck
}

// SemaphoreOptions says how a Semaphore is created. A nil *SemaphoreOptions means
// the zero value.
type SemaphoreOptions struct {
	// Mode says which permits a process may release. 0 means SemaphoreOwned for a new object, and any mode for an
	// existing one. If Mode is set and an existing object has another mode, opening fails.
	Mode SemaphoreMode
	// Initial is the number of free permits of a new transferable semaphore. 0 means that all are free, a
	// negative number that none is.
	Initial int64
	// Spin bounds how long a waiter of a new object spins before it sleeps. If it is 0, waiters learn the bound
	// from earlier spins; if it is negative, they never spin.
	Spin time.Duration
}

var semaphoreKind = arenakernel.KindOf("SEMA")

const (
	semaphoreVersion  = 4
	semaphoreTransfer = 1 << 63
)

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: semaphoreKind, Version: semaphoreVersion, Repair: repairSemaphore, Complete: completeSemaphore, Wake: wakeFirstOfSemaphore,
		Check: checkSemaphore, Inspect: inspectSemaphore,
	})
}

// OpenSemaphore finds the Semaphore of that name in the arena or creates it, with n permits. An empty name makes a
// fresh anonymous one. In an arena for up to 511 participants a Semaphore takes 256 bytes, and 256 bytes more for
// each slot whose processes have opened it. A slot is the place of one process in the arena. These bytes are
// allocated when a process in the slot opens the Semaphore for the first time. If there is no room for them, the
// error Is [shmsync.ErrNoSpace]. If an existing Semaphore has another number of permits, the error Is
// ErrIncompatible. If n is below 1, the error Is [fs.ErrInvalid]. A process that does not know the number calls
// AttachSemaphore. OpenSemaphore panics if opts.Initial is more than n, or opts.Mode is not a valid SemaphoreMode.
func OpenSemaphore(a *arena.Arena, name string, n int64, opts *SemaphoreOptions) (*Semaphore, error) {
	if err := needs("Semaphore", name, "a number of permits", n); err != nil {
		return nil, err
	}
	return openSemaphore((*arenakernel.Arena)(a), name, n, opts, false)
}

func openSemaphore(a *arenakernel.Arena, name string, n int64, opts *SemaphoreOptions, attach bool) (*Semaphore, error) {
	opt := *cmp.Or(opts, &SemaphoreOptions{})
	if opt.Mode > SemaphoreTransferable {
		panic(fmt.Sprintf("shmsync: OpenSemaphore %q: there is no mode %d", name, uint32(opt.Mode)))
	}
	if !attach && opt.Initial > n {
		panic(fmt.Sprintf("shmsync: OpenSemaphore %q of %d permits, %d at first", name, n, opt.Initial))
	}
	return openAs(a, arenakernel.ObjectSpec{
		Existing: attach, Kind: semaphoreKind, Version: semaphoreVersion, Name: name, Size: semaphoreBytes(a),
		Init: func(body []byte) { initSemaphore(semaphoreBody(body), uint64(n), &opt, a.Counted()) },
	}, "semaphore.open", newSemaphore, func(s *Semaphore) string {
		if (attach || uint64(n) == s.size) && (opt.Mode == 0 || opt.Mode == s.mode()) {
			return ""
		}
		return fmt.Sprintf("it has %d permits and is %v; asked for %d, %v", s.size, s.mode(), n, opt.Mode)
	})
}

func initSemaphore(w *semaphoreWords, n uint64, opt *SemaphoreOptions, counted bool) {
	size, free := n, n
	if opt.Mode == SemaphoreTransferable {
		size |= semaphoreTransfer
		switch {
		case opt.Initial < 0:
			free = 0
		case opt.Initial > 0:
			free = uint64(opt.Initial)
		}
	}
	w.size.Store(size)
	low := uint32(free & fastMost)
	if opt.Mode == SemaphoreTransferable && !counted && n <= fastMost {
		low |= fastOpenValue
	}
	w.free.Store(uint64(makeRecorded(low, 0)))
	w.freeHigh.Store(uint64(makeRecorded(uint32(free>>31), 0)))
	w.spin.Store(spinField(opt.Spin))
}

// SemaphoreAt opens the Semaphore at an offset that another process got from the method Offset.
func SemaphoreAt(a *arena.Arena, off arena.Offset) (*Semaphore, error) {
	return handleAt(a, off, "semaphore.open", semaphoreKind, semaphoreVersion, semaphoreBytes((*arenakernel.Arena)(a)), newSemaphore)
}

func newSemaphore(a *arenakernel.Arena, o arenakernel.Object) (*Semaphore, error) {
	return buildSemaphore(a, o, false)
}

// Acquire acquires n permits, and waits until it can. It panics if n is negative or more than the semaphore has. If
// AcquireContext would return an *[shmsync.Error], Acquire panics with that error. If n is 0, Acquire only waits
// until the earlier waiters have got their permits.
func (s *Semaphore) Acquire(n int64) {
	if err := s.AcquireContext(context.Background(), n); err != nil {
		panic(err)
	}
}

// AcquireContext acquires n permits, and waits until it can or ctx ends. An error means that no permits were
// acquired. The error is ctx.Err(), even if ctx had ended before the call, or an error that Is ErrNoSpace,
// ErrCorrupt or ErrClosed. If n is more than the total number of permits, AcquireContext waits for the end of ctx,
// and panics if ctx cannot end.
func (s *Semaphore) AcquireContext(ctx context.Context, n int64) error {
	if n < 0 {
		s.negative("Acquire", n)
	}
	ctx = orEndless(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.acquireFast(uint64(n)) {
		return nil
	}
	return s.acquire(ctx, uint64(n))
}

// acquire is the common part of Acquire and AcquireContext.
func (s *Semaphore) acquire(ctx context.Context, n uint64) error {
	if n > s.size {
		return s.acquireTooMany(ctx, n)
	}
	// After Enter, Close waits for this call until the call has accepted the permits that it may be granted.
	if !s.queue.Enter() {
		return s.closedError()
	}
	defer s.queue.Exit()
	waitNode, spun, err := s.takeOrJoin(n)
	if err == nil && waitNode != nil {
		err = s.awaitGrant(ctx, waitNode, n, !spun)
	}
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return s.giveBack(n, err)
	}
	return nil
}

// giveBack ends a call that was granted n permits although its context has ended. The parameter canceled is the error
// of the context. As in x/sync, such a call does not keep its permits. So giveBack releases them, and returns canceled
// or the error of the release.
//
// In a transferable Semaphore, the release fails if more permits would then be free than the semaphore has. That
// happens only if others have released permits since this call took its permits. In that case the call succeeds and
// keeps its permits: giveBack returns nil.
func (s *Semaphore) giveBack(n uint64, canceled error) error {
	ok := s.releaseFast(n)
	if !ok {
		var err error
		if ok, err = s.give(n); err != nil {
			return err
		}
	}
	switch {
	case ok:
		return canceled
	case s.moves:
		return nil
	}
	panic(s.moreThanHeld(n)) // another goroutine of this process has released permits that it did not have
}

// awaitGrant waits until a queued wait is granted, and accepts the permits.
func (s *Semaphore) awaitGrant(ctx context.Context, waitNode *park.WaitNode, n uint64, spin bool) error {
	switch r, err := s.await(ctx, waitNode, spin, (*semaphoreWaits)(s)); r {
	case park.Canceled:
		crashpoint.Hit("record.await.withdrawn")
		return err
	case park.Closed:
		crashpoint.Hit("record.await.withdrawn")
		return s.closedError()
	case park.Torn:
		return s.corrupt(tornQueue)
	}
	if !s.collect(waitNode) {
		if s.withdraw(waitNode) {
			return s.corrupt("a wait node, which ended a wait that was not granted")
		}
		s.collect(waitNode)
	}
	if s.moves {
		s.own.accepted.Add(n)
		crashpoint.Hit("semaphore.acquire.accepted")
	}
	return nil
}

// acquireTooMany continues an AcquireContext for more permits than the semaphore has.
func (s *Semaphore) acquireTooMany(ctx context.Context, n uint64) error {
	switch {
	case s.opening.ended.Load():
		return s.closedError()
	case ctx.Done() == nil:
		panic(fmt.Sprintf("shmsync: Acquire of %d permits of semaphore %s, which has %d, without an end", n, objectName(s.object), s.size))
	}
	return s.awaitEnd(ctx)
}

// TryAcquire acquires n permits if that is possible without waiting, and reports whether it did. It acquires
// nothing while there are waiters.
func (s *Semaphore) TryAcquire(n int64) bool {
	if n < 0 {
		s.negative("TryAcquire", n)
	}
	if s.acquireFast(uint64(n)) {
		return true
	}
	defer s.opening.serve(s.queue).end()
	r, err := s.take(uint64(n), nil)
	if r != semTaken && err == nil && s.tried.due() {
		s.check()
		r, err = s.take(uint64(n), nil)
	}
	return r == semTaken && err == nil
}

// Release releases n permits. It panics if n is negative, or if this process has fewer than n permits. For a
// transferable semaphore, it panics if more permits would be free than the semaphore has.
func (s *Semaphore) Release(n int64) {
	if n < 0 {
		s.negative("Release", n)
	}
	if !s.releaseFast(uint64(n)) {
		s.release(uint64(n))
	}
}

// release does what Release does, for an n that is not negative.
func (s *Semaphore) release(n uint64) {
	defer s.opening.serve(s.queue).end()
	switch ok, err := s.give(n); {
	case err != nil:
		panic(err)
	case !ok:
		panic(s.moreThanHeld(n))
	}
}

func (s *Semaphore) moreThanHeld(n uint64) string {
	return fmt.Sprintf("shmsync: Release of %d permits of semaphore %s: more than are held", n, objectName(s.object))
}

func (s *Semaphore) negative(verb string, n int64) {
	panic(fmt.Sprintf("shmsync: %s of %d permits of semaphore %s", verb, n, objectName(s.object)))
}

// Offset returns the place of the Semaphore in its arena, for SemaphoreAt in another process.
func (s *Semaphore) Offset() arena.Offset { return s.object.Offset }

// SemaphoreState is the result of State.
type SemaphoreState struct {
	Size    int64 // the total number of permits
	Free    int64 // permits that can be acquired
	Mine    int64 // permits of this process; 0 for a transferable semaphore
	Waiting bool  // there are waiters
}

// State reads s without locking it. The result may be out of date when State returns.
func (s *Semaphore) State() SemaphoreState {
	s.opening.use()
	st := SemaphoreState{Size: int64(s.size), Free: permits(s.seenFree()), Waiting: valueIn(s.first) != 0}
	if !s.moves {
		st.Mine = permits(s.own.ownIn(s.name))
	}
	return st
}

func permits(v uint64) int64 { return int64(min(v, math.MaxInt64)) }

// String renders the state on one line.
func (s *Semaphore) String() string {
	st := s.State()
	return fmt.Sprintf("semaphore %s: %d of %d permits free, %d held by this process, waiting %v",
		objectName(s.object), st.Free, st.Size, st.Mine, st.Waiting)
}
