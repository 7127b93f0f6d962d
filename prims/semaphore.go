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
	_ = crashpoint.Register("semaphore.take.counted")
	_ = crashpoint.Register("semaphore.give.counted")
	_ = crashpoint.Register("semaphore.acquire.accepted")
)

// Semaphore is a weighted semaphore between processes: goroutines acquire permits, any number at
// a time, and release them. Its methods are those of x/sync/semaphore, and so is its order: first
// come, first served, so that small requests cannot overtake a request for many permits for ever.
//
// Permits belong to the process that acquired them, and come back when it dies. A transferable
// semaphore only counts: when a process dies, only permits come back that were granted to an
// Acquire which had not returned.
//
// While no goroutine waits, Acquire and Release are one instruction each on memory that only this
// process writes. A process keeps the permits that it released until another process wants them.
//
// In the terminology of the Go memory model, and across processes: a Release
// synchronizes before the return of an Acquire that its permits made possible, and
// so does the death that gives permits back.
type Semaphore struct {
	mon   *monitor
	fifo  fifo
	words *semaphoreWords
	own   *semaphoreShare // the share of this process; nil in the handle of a reaper
	known atomic.Pointer[semaphoreShares]
	// records is the latest slot record; each has a share.
	records *atomic.Uint32
	baseOff arenakernel.Offset // of the record that is the base; 0 if there is none
	fast    atomic.Uint32      // how permits are acquired without the queue lock: see fastOff
	a       *arenakernel.Arena
	object  arenakernel.Object
	name    arenakernel.ParticipantID
	size    uint64
	moves   bool          // the semaphore is transferable
	closed  chan struct{} // closed when the handle is closed
}

// SemaphoreOptions says how a Semaphore is created. A nil *SemaphoreOptions means
// the zero value.
type SemaphoreOptions struct {
	// Mode says which permits a process may release; 0 means SemaphoreOwned for a new object, and
	// the mode of an existing one. If it is set and the object has another mode, opening fails.
	Mode SemaphoreMode
	// Initial is how many permits of a new transferable semaphore are free: 0 means all, a
	// negative number means none.
	Initial int64
	// Spin bounds how long a waiter of a new object spins before it sleeps. If it is 0,
	// waiters learn the bound from what has paid off; if it is negative, they never spin.
	Spin time.Duration
}

var semaphoreKind = arenakernel.KindOf("SEMA")

const (
	semaphoreVersion  = 3
	semaphoreTransfer = 1 << 63
)

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: semaphoreKind, Version: semaphoreVersion, Repair: repairSemaphore, Wake: wakeQueue, Check: checkSemaphore, Inspect: inspectSemaphore,
	})
}

// OpenSemaphore finds the Semaphore of that name in the arena or creates it, with n permits. An
// empty name makes a fresh anonymous one. It takes 256 bytes in an arena for up to 511 participants,
// and 256 bytes more for each slot whose participants have opened it. These are allocated when a
// participant of the slot opens it for the first time: without enough room the error Is
// [shmsync.ErrNoSpace]. If an existing Semaphore has another number, the error Is ErrIncompatible.
// If n is below 1, the error Is [fs.ErrInvalid]. A process that does not know the number calls
// AttachSemaphore. It panics if opts.Initial is more than n, or opts.Mode is not a valid
// SemaphoreMode.
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
	w.free.Store(free)
	if opt.Mode == SemaphoreTransferable && !counted {
		w.free.Store(free | uint64(poolOpen))
	}
	w.spin.Store(spinField(opt.Spin))
}

// SemaphoreAt opens the Semaphore at an offset that another process got from the method Offset.
func SemaphoreAt(a *arena.Arena, off arena.Offset) (*Semaphore, error) {
	return handleAt(a, off, "semaphore.open", semaphoreKind, semaphoreVersion, semaphoreBytes((*arenakernel.Arena)(a)), newSemaphore)
}

func newSemaphore(a *arenakernel.Arena, o arenakernel.Object) (*Semaphore, error) {
	return buildSemaphore(a, o, false)
}

// Acquire acquires n permits, and waits until it can. It panics if n is negative or more than the
// semaphore has, and with an *[shmsync.Error] where AcquireContext returns one. An n of 0 only
// waits until the waiters that came before are served.
func (s *Semaphore) Acquire(n int64) {
	if err := s.AcquireContext(context.Background(), n); err != nil {
		panic(err)
	}
}

// AcquireContext acquires n permits, and waits until it can or ctx ends. An error means that none
// were acquired: ctx.Err(), even if ctx had ended before the call, or an error that Is
// ErrNoSpace, ErrCorrupt or ErrClosed. If n is more than the semaphore has, it waits for the end
// of ctx, and panics if ctx cannot end.
func (s *Semaphore) AcquireContext(ctx context.Context, n int64) error {
	if n < 0 {
		s.negative("Acquire", n)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.acquireFast(uint64(n)) {
		return nil
	}
	return s.acquire(ctx, uint64(n))
}

// acquire is the rest of Acquire.
func (s *Semaphore) acquire(ctx context.Context, n uint64) error {
	m := s.mon
	if n > s.size {
		return s.acquireTooMany(ctx, n)
	}
	// Close waits for the call, which may be granted permits, until the call has accepted them.
	if err := m.begin(); err != nil {
		return err
	}
	defer m.finish()
	if err := m.enter(ctx); err != nil {
		return err
	}
	if s.fifo.empty() && s.canTake(n) {
		s.take(n)
		s.leaveOpen()
		return nil
	}
	return s.acquireSlow(ctx, n)
}

// acquireTooMany is Acquire of more permits than the semaphore has.
func (s *Semaphore) acquireTooMany(ctx context.Context, n uint64) error {
	switch {
	case s.mon.opening.ended.Load():
		return s.mon.closed()
	case ctx.Done() == nil:
		panic(fmt.Sprintf("shmsync: Acquire of %d permits of semaphore %s, which has %d, without an end", n, objectName(s.object), s.size))
	}
	return s.awaitEnd(ctx)
}

// acquireSlow is the rest of acquire. The queue lock is held.
func (s *Semaphore) acquireSlow(ctx context.Context, n uint64) error {
	m := s.mon
	b := takeWakes()
	var waitNode *park.WaitNode
	for {
		if s.shares().err != nil {
			s.reopen()
			m.leave(b)
			if waitNode != nil {
				waitNode.Return()
			}
			return s.corruptShares()
		}
		m.reapIfDue(b)
		if s.moves && s.own.name.Load() != uint64(s.name) {
			s.takeBackGrants(s.own, uint64(s.name))
			s.resolve(b)
		}
		if s.fifo.empty() && s.canTake(n) {
			s.take(n)
			s.reopen()
			m.leave(b)
			if waitNode != nil {
				waitNode.Return()
			}
			return nil
		}
		var again bool
		var err error
		if waitNode, again, err = m.waitNode(ctx, waitNode); err != nil {
			m.wake(b)
			return err
		}
		if !again {
			break
		}
	}
	m.join(waitNode, 0, n)
	m.leave(b)
	if _, err := m.await(ctx, waitNode); err != nil {
		return err
	}
	if s.moves {
		s.own.fast.Add(n)
		crashpoint.Hit("semaphore.acquire.accepted")
	}
	if err := ctx.Err(); err != nil {
		// As in x/sync, a cancelled call does not keep permits that it got in the meantime.
		s.Release(int64(n))
		return err
	}
	return nil
}

// TryAcquire acquires n permits if that is possible without waiting, and reports whether it did.
// It fails while there are waiters.
func (s *Semaphore) TryAcquire(n int64) bool {
	if n < 0 {
		s.negative("TryAcquire", n)
	}
	if s.acquireFast(uint64(n)) {
		return true
	}
	m := s.mon
	m.opening.use()
	if !m.tryEnter() {
		return false
	}
	if s.fifo.empty() && s.canTake(uint64(n)) {
		s.take(uint64(n))
		s.leaveOpen()
		return true
	}
	b := takeWakes()
	m.reapIfDue(b)
	ok := s.fifo.empty() && s.canTake(uint64(n))
	if ok {
		s.take(uint64(n))
	}
	s.reopen()
	m.leave(b)
	return ok
}

// Release releases n permits. It panics if n is negative, if this process does not have that
// many, or, for a transferable semaphore, if more permits than its size would be free.
func (s *Semaphore) Release(n int64) {
	if n < 0 {
		s.negative("Release", n)
	}
	if !s.releaseFast(uint64(n)) {
		s.release(uint64(n))
	}
}

// release is the rest of Release.
func (s *Semaphore) release(n uint64) {
	m := s.mon
	if !m.enterAtOnce() {
		if err := m.enter(nil); err != nil {
			panic(err)
		}
	}
	if !s.give(n) {
		s.reopen()
		m.leave(nil)
		panic(fmt.Sprintf("shmsync: Release of %d permits of semaphore %s: more than are held", n, objectName(s.object)))
	}
	if s.fifo.empty() {
		if !s.moves {
			s.openShare(n)
		}
		s.leaveOpen()
		return
	}
	b := takeWakes()
	s.resolve(b)
	m.leave(b)
}

func (s *Semaphore) negative(verb string, n int64) {
	panic(fmt.Sprintf("shmsync: %s of %d permits of semaphore %s", verb, n, objectName(s.object)))
}

// canTake reports whether n permits are free. If so, they are in the word free afterwards.
func (s *Semaphore) canTake(n uint64) bool {
	if s.pool() >= n {
		return true
	}
	s.gather()
	return s.words.free.Load() >= n
}

// pool returns the permits that any process may take. From here on only the holder of the queue
// lock changes them.
func (s *Semaphore) pool() uint64 {
	if s.moves {
		return s.closePool()
	}
	return s.words.free.Load()
}

// take takes n free permits for this process. After a death during take, the share and the number
// of free permits may disagree: a replay computes the free permits anew from the shares.
func (s *Semaphore) take(n uint64) {
	s.mon.counts.took()
	free := s.words.free.Load() - n
	if !s.moves {
		h := s.own
		if h.name.Load() != uint64(s.name) {
			free += s.inheritShare(h)
		}
		if fastWord(h.fast.Load()).open() {
			h.fast.Add(n)
		} else {
			storeWord(&h.permits, h.permits.Load()+n)
		}
		crashpoint.Hit("semaphore.take.counted")
	}
	storeWord(&s.words.free, free)
}

// inheritShare makes h, the share of this process's slot, this process's own. It returns how many
// permits the slot's previous participant left there.
func (s *Semaphore) inheritShare(h *semaphoreShare) (left uint64) {
	left = shut(h).permits() + h.permits.Load()
	storeWord(&h.permits, 0)
	storeWord(&h.fast, 0)
	storeWord(&h.name, uint64(s.name))
	return left
}

// give returns n permits of this process to the free ones, and reports false if the process has
// fewer.
func (s *Semaphore) give(n uint64) bool {
	if s.moves {
		free := s.pool()
		if n > s.size-min(free, s.size) {
			return false
		}
		storeWord(&s.words.free, free+n)
		return true
	}
	h := s.own
	if h.name.Load() != uint64(s.name) {
		return n == 0
	}
	s.closeShare(h)
	if h.permits.Load() < n {
		return false
	}
	storeWord(&h.permits, h.permits.Load()-n)
	crashpoint.Hit("semaphore.give.counted")
	storeWord(&s.words.free, s.words.free.Load()+n)
	return true
}

// Offset is the place of the Semaphore in its arena, for SemaphoreAt in another process.
func (s *Semaphore) Offset() arena.Offset { return s.object.Offset }

// SemaphoreState is the result of State.
type SemaphoreState struct {
	Size    int64 // the total number of permits
	Free    int64 // permits that can be acquired
	Mine    int64 // permits of this process
	Waiting bool  // there are waiters
}

// State reads s without locking it. The answer may be out of date when it returns.
func (s *Semaphore) State() SemaphoreState {
	s.mon.opening.use()
	free := poolWord(s.words.free.Load()).permits() + s.spares()
	st := SemaphoreState{Size: int64(s.size), Free: permits(free), Waiting: !s.fifo.empty()}
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
