package prims

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
)

var (
	_ = crashpoint.Register("fairmutex.lock.taken")
	_ = crashpoint.Register("fairmutex.lock.accepted")
	_ = crashpoint.Register("fairmutex.unlock.freed")
	_ = crashpoint.Register("fairmutex.unlock.committed")
)

// FairMutex is a mutual exclusion lock between processes that goroutines lock in the order of
// arrival: no new caller overtakes a waiter, and Unlock hands the lock to the first waiter in the
// queue. If a waiter gives up, or its process dies, its wait leaves the queue and delays no other
// waiter.
//
// The holder of a FairMutex is a process: one goroutine may lock it, and another goroutine of the same process may
// unlock it. If Unlock hands the lock to a waiter, the process of this waiter holds the lock as soon as the waiter
// runs again. If the process dies before that, the next waiter gets the lock.
//
// While goroutines compete for the lock, each hand-over to a waiter costs a wake. A Mutex saves that wake, because
// it lets running goroutines overtake sleeping ones.
//
// In the terminology of the Go memory model, and across processes: for n < m, the n'th call of Unlock synchronizes
// before the return of the m'th call of Lock, or before the end of the Pending of LockAsync. If a holder dies, its
// death releases the lock. This release synchronizes before the call that reports the death, and before the call that
// gets the lock from the dead holder.
//
// Waiters get the lock in the order of their arrival, as with the sequencer of Reed and Kanodia. But they wait
// in a queue instead of taking numbered tickets, so that a waiter can leave.
type FairMutex struct {
	// The compiler inlines the fast paths only if they use plain pointers to their words, and functions of
	// package atomic instead of its types.

	own  *uint32 // the upper half of the owner word, or &closedFair in a handle without fast paths
	held uint32  // the value of *own while this process holds the lock and the owner word is open

	recordLock
	plainRecords
	words   *fairMutexWords
	turns   *park.Turns // orders the waits of this process; nil in the handle of a reaper
	repair  func() error
	opening *opening
}

// FairMutexOptions says how a FairMutex is created, and what this process does
// with it. A nil *FairMutexOptions means the zero value.
type FairMutexOptions struct {
	// Policy says what happens to the lock when its holder dies. 0 means PolicyReport for a new object; an existing
	// object may have any policy. If Policy is set and an existing object has another policy, opening fails.
	Policy Policy
	// Repair, if set, is called by Lock and LockContext of this process when they find that a holder died. The
	// process holds the lock while Repair runs. If Repair returns nil, the call returns with the lock. Otherwise
	// the call fails with ErrNotRecoverable, as Recover does. Repair belongs to this handle and is not stored in
	// the arena. LockAsync does not call Repair.
	Repair func() error
	// Spin bounds how long a waiter spins before it sleeps, if this call creates the object. If Spin is 0, waiters
	// learn the bound from earlier spins; if Spin is negative, they never spin.
	Spin time.Duration
}

var fairMutexKind = arenakernel.KindOf("FAIR")

const fairMutexVersion = 3

// OpenFairMutex finds the FairMutex of that name in the arena or creates it. An empty name makes a new anonymous
// FairMutex. A FairMutex takes 128 bytes, and 192 bytes more for each slot whose participants have opened it. The
// 192 bytes are allocated when a participant of the slot opens the FairMutex for the first time. If the arena has
// not enough room for them, the error Is [shmsync.ErrNoSpace].
func OpenFairMutex(a *arena.Arena, name string, opts *FairMutexOptions) (*FairMutex, error) {
	return openFairMutex((*arenakernel.Arena)(a), name, opts, false)
}

func openFairMutex(a *arenakernel.Arena, name string, opts *FairMutexOptions, attach bool) (*FairMutex, error) {
	var opt FairMutexOptions
	if opts != nil {
		opt = *opts
	}
	opt.Policy.mustBeValid("fair mutex " + strconv.Quote(name))
	if err := opt.Policy.withoutLog("fairmutex.open", name, "a FairMutex"); err != nil {
		return nil, err
	}
	return openAs(a, arenakernel.ObjectSpec{
		Existing: attach, Kind: fairMutexKind, Version: fairMutexVersion, Name: name, Size: fairMutexBytes(a),
		Init: func(body []byte) {
			w := fairMutexBody(body)
			w.policy = opt.Policy.stored()
			w.spin.Store(spinField(opt.Spin))
			if !a.Counted() {
				w.owner.Store(uint64(makeRecorded(uint32(ownerOpened(ownerFree)), 0)))
			}
		},
	}, "fairmutex.open", newFairMutex(&opt), func(f *FairMutex) string { return f.policy.differs(opt.Policy) })
}

// FairMutexAt opens the FairMutex at an offset that another process got from the method Offset.
func FairMutexAt(a *arena.Arena, off arena.Offset) (*FairMutex, error) {
	return handleAt(a, off, "fairmutex.open", fairMutexKind, fairMutexVersion, fairMutexBytes((*arenakernel.Arena)(a)), newFairMutex(&FairMutexOptions{}))
}

func newFairMutex(opt *FairMutexOptions) func(*arenakernel.Arena, arenakernel.Object) (*FairMutex, error) {
	return func(a *arenakernel.Arena, o arenakernel.Object) (*FairMutex, error) {
		return buildFairMutex(a, o, opt, false)
	}
}

// buildFairMutex makes a handle. If bare is set, the handle is for a reaper or a tool, and cannot wait.
func buildFairMutex(a *arenakernel.Arena, o arenakernel.Object, opt *FairMutexOptions, bare bool) (*FairMutex, error) {
	w, counts := fairMutexAt(a, o)
	f := &FairMutex{own: &closedFair, words: w, repair: opt.Repair}
	f.recordLock = recordLock{lockWords: lockWords{&w.owner, &w.accepted}, hooks: f, name: a.Self(), policy: policyOf(w.policy)}
	f.held = uint32(ownerOpened(makeOwner(kindHeld, f.name)))
	f.init(a, o, recordQueueWords{&w.commit, &w.first, &w.last, &w.spin, &w.pays, &w.lastCPU, counts}, f)
	ok, err := f.openRecords(a, o, !bare)
	if err != nil || bare {
		return f, err
	}
	if !ok {
		return nil, f.corrupt("its list of slot records")
	}
	f.opening = newOpening(a, o)
	f.queue = park.NewQueue(park.Config{
		WaitList: park.WaitList{Arena: a, Word: &w.wake, Raw: wordPtr(&w.wake), Poller: &w.poller},
		Object:   o, Word: o.Body + fairMutexWakeOff, All: true, Check: f.check, Torn: f.torn,
	})
	f.opening.waitsIn(f.queue)
	f.opening.end = func() {
		redirect(&f.own, &closedFair)
		f.queue.Close()
	}
	f.turns = common[park.Turns](f.opening)
	if f.mayOpen() && !crashpoint.Enabled {
		f.own = w.value()
	}
	return f, nil
}

// wordAt returns f.words.owner or f.words.died, by the kind that a record has for the word. The recordQueue calls it.
func (f *FairMutex) wordAt(kind uint8, _ uint32) *atomic.Uint64 {
	switch kind {
	case fairOwnerWord:
		return &f.words.owner
	case fairDiedWord:
		return &f.words.died
	}
	return nil
}

func (f *FairMutex) corrupt(detail string) error {
	return f.fail("fairmutex.change", shmsync.ErrCorrupt, nil, detail)
}

// Lock locks f, and waits until that is possible. It panics with an *[shmsync.Error] if the lock is
// owner-dead or not recoverable, if there is no room to wait, or if this process closes the arena
// while the call waits.
func (f *FairMutex) Lock() {
	// sync(fairmutex.owner): acquire
	// lin: the lock is taken here.
	if !atomic.CompareAndSwapUint32(f.own, fairFree, f.held) {
		f.lockOrPanic()
	}
}

func (f *FairMutex) lockOrPanic() {
	if err := f.lockSlow(nil, true); err != nil {
		panic(waysOut(err))
	}
}

// LockContext locks f, and waits until that is possible or ctx ends. An error means that f is not held. The error
// is ctx.Err(), or it Is ErrNoSpace, ErrCorrupt or ErrClosed, or, depending on the policy of f, ErrOwnerDead or
// ErrNotRecoverable. If the lock is free, the call takes it even though ctx has ended.
func (f *FairMutex) LockContext(ctx context.Context) error {
	// sync(fairmutex.owner): acquire
	// lin: the lock is taken here.
	if !atomic.CompareAndSwapUint32(f.own, fairFree, f.held) {
		return f.lockSlow(ctx, true)
	}
	return nil
}

// TryLock locks f if that is possible without waiting, and reports whether it did. It fails while
// there are waiters. State tells why it failed.
func (f *FairMutex) TryLock() bool {
	// sync(fairmutex.owner): acquire
	// lin: the lock is taken here.
	if !atomic.CompareAndSwapUint32(f.own, fairFree, f.held) {
		return f.tryLockSlow()
	}
	return true
}

// tryLockSlow is the part of TryLock that is not inlined. It first carries out the last record of the FairMutex,
// because a process may have been stopped in the middle of an Unlock. So this Unlock takes effect before the try. Then
// tryLockSlow makes a record of its own.
func (f *FairMutex) tryLockSlow() bool {
	defer f.opening.serve(f.queue).end()
	if f.lockFast() {
		return true
	}
	r, err := f.take(nil, nil, nil)
	return r == lockTaken && err == nil
}

// Unlock unlocks f, and hands it to the first waiter in the queue. It panics if this process does not hold f. If a
// peer overwrote the lock, it panics with an error that Is ErrCorrupt.
func (f *FairMutex) Unlock() {
	// sync(fairmutex.owner): release
	// lin: the lock is released here.
	if !atomic.CompareAndSwapUint32(f.own, f.held, fairFree) {
		f.unlockSlow()
	}
}

// unlockSlow is the part of Unlock that is not inlined. It runs after the first compare-and-swap has failed.
func (f *FairMutex) unlockSlow() {
	defer f.opening.serve(f.queue).end()
	if f.unlockFast() {
		return
	}
	switch o, held, err := f.give(); {
	case err != nil:
		panic(err)
	case !held:
		f.badUnlock(o)
	}
	f.turns.HoldEnded()
}

func (f *FairMutex) badUnlock(o ownerWord) {
	if !o.valid() {
		panic(f.refusedCorrupt("fairmutex.unlock", o))
	}
	panic("shmsync: Unlock of fair mutex " + objectName(f.object) + ", which this process does not hold: it is " + o.String())
}

// LockAsync takes a place in the queue before it returns, and does not wait. If this process gets the lock, the
// Pending ends with nil, and this process has to call Unlock. Otherwise the Pending ends with one of the errors
// that LockContext returns.
func (f *FairMutex) LockAsync() *Pending {
	if !f.queue.Enter() {
		return resolved(f.lockClosing())
	}
	s, err := (*park.WaitNode)(nil), error(nil)
	if !f.lockFast() {
		s, err = f.arrive(nil, nil)
	}
	if s == nil {
		f.queue.Exit()
		return resolved(err)
	}
	p := &Pending{done: make(chan struct{}), source: fairPending{f, s}}
	s.Watch(f.queue, p.told)
	return p
}

// Offset is the place of the FairMutex in its arena. Another process can pass it to FairMutexAt.
func (f *FairMutex) Offset() arena.Offset { return f.object.Offset }

// Close closes this handle on the FairMutex, and no other handle. Calls that wait through this
// handle end with an error that Is ErrClosed. If this process holds the lock, it still holds it
// after Close, and can release it through another handle. A second Close returns an error that Is
// ErrClosed.
func (f *FairMutex) Close() error {
	return f.opening.close("fairmutex.close")
}

// Policy says what happens to f when its holder dies.
func (f *FairMutex) Policy() Policy { return f.policy }

// FairMutexState is the result of State.
type FairMutexState struct {
	Held    bool              // a process holds or recovers the lock, or was granted it
	Owner   *shmsync.Identity // the process that Held means, or the dead one that left the lock; nil: none, or not known
	Waiting bool              // there are waiters
	Err     error             // why no call can lock f: nil, ErrOwnerDead, ErrNotRecoverable or ErrCorrupt
	Word    string            // the owner word, rendered for people
}

// State reads f without locking it. The answer may be out of date when it returns.
func (f *FairMutex) State() FairMutexState {
	defer f.opening.serve(f.queue).end()
	f.completeBare() // the last change may be an Unlock by a process that died before it carried the change out
	_, o := f.seen()
	s := FairMutexState{Held: o.holder() != 0, Waiting: valueIn(f.first) != 0, Word: o.String()}
	if n := o.participant(); n != 0 {
		s.Owner = f.a.Who(n)
	}
	switch {
	case !o.valid():
		s.Err = shmsync.ErrCorrupt
	case o.kind() == kindOwnerDead:
		s.Err = shmsync.ErrOwnerDead
	case o == ownerNotRecoverable:
		s.Err = shmsync.ErrNotRecoverable
		s.Owner = f.a.Who(f.diedName())
	}
	return s
}

// seen returns the owner word and the state of f. The state includes deaths that no reaper has recorded yet; see
// stateSeen.
func (f *FairMutex) seen() (fairWord, ownerWord) {
	return f.stateSeen(func() (recordedWord, ownerWord) {
		v := fairWord(f.owner.Load())
		return v, f.stateOf(v)
	})
}

// String renders the state on one line.
func (f *FairMutex) String() string {
	s := f.State()
	return fmt.Sprintf("fair mutex %s: %s, waiting %v", objectName(f.object), s.Word, s.Waiting)
}
