package prims

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
)

var (
	_ = crashpoint.Register("fairmutex.lock.taken")
	_ = crashpoint.Register("fairmutex.unlock.freed")
	_ = crashpoint.Register("fairmutex.lock.accepted")
	_ = crashpoint.Register("fairmutex.grant.granted")
)

// FairMutex is a mutual exclusion lock between processes that goroutines lock in the order of
// arrival: no new caller overtakes a waiter, and Unlock hands the lock to the first waiter in the
// queue. A wait that is given up, or whose process dies, leaves the queue and delays no other
// waiter.
//
// A process holds it: a goroutine may lock it and another goroutine of the same process unlock
// it. A process that was handed the lock holds it as soon as its waiter runs again. If the
// process dies before that, the next waiter gets the lock. Under contention each hand-over costs
// a wake. A Mutex saves that by letting running goroutines overtake sleeping ones.
//
// In the terminology of the Go memory model, and across processes: for n < m the n'th call
// of Unlock synchronizes before the m'th call of Lock returns, or its Pending ends. A
// release by the death of its holder synchronizes before the call that reports it, and
// before the call that gets the lock because of it.
//
// Waiters get the lock in the order of Reed and Kanodia's sequencer. They wait in a queue instead
// of taking numbered tickets, so that a waiter can leave.
type FairMutex struct {
	mon    *monitor
	fifo   fifo
	turns  *park.Turns // nil in a reaper's handle
	words  *fairMutexWords
	a      *arenakernel.Arena
	object arenakernel.Object
	name   arenakernel.ParticipantID
	policy Policy
	repair func() error
}

// FairMutexOptions says how a FairMutex is created, and what this process does
// with it. A nil *FairMutexOptions means the zero value.
type FairMutexOptions struct {
	// Policy says what happens to the lock when its holder dies; 0 means PolicyReport for a new
	// object, and any policy for an existing one. If it is set and the object has another policy,
	// opening fails.
	Policy Policy
	// Repair, if set, is called by this process's Lock and LockContext when they find that a
	// holder died. They hold the lock while it runs. If it returns nil, they return with the
	// lock; otherwise they fail with ErrNotRecoverable, as Recover does. It belongs to this
	// handle and is not stored. LockAsync does not call it.
	Repair func() error
	// Spin bounds how long a waiter of a new object spins before it sleeps. If it is 0,
	// waiters learn the bound from what has paid off; if it is negative, they never spin.
	Spin time.Duration
}

var fairMutexKind = arenakernel.KindOf("FAIR")

const fairMutexVersion = 2

// OpenFairMutex finds the FairMutex of that name in the arena or creates it. An
// empty name makes a fresh anonymous one.
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
		Existing: attach, Kind: fairMutexKind, Version: fairMutexVersion, Name: name, Size: uint64(fairMutexBytes),
		Init: func(body []byte) {
			w := fairMutexBody(body)
			w.policy = opt.Policy.stored()
			w.mon.spin.Store(spinField(opt.Spin))
		},
	}, "fairmutex.open", newFairMutex(&opt), func(f *FairMutex) string { return f.policy.differs(opt.Policy) })
}

// FairMutexAt opens the FairMutex at an offset that another process got from the method Offset.
func FairMutexAt(a *arena.Arena, off arena.Offset) (*FairMutex, error) {
	return handleAt(a, off, "fairmutex.open", fairMutexKind, fairMutexVersion, uint64(fairMutexBytes), newFairMutex(&FairMutexOptions{}))
}

func newFairMutex(opt *FairMutexOptions) func(*arenakernel.Arena, arenakernel.Object) (*FairMutex, error) {
	return func(a *arenakernel.Arena, o arenakernel.Object) (*FairMutex, error) {
		return buildFairMutex(a, o, opt, false), nil
	}
}

func buildFairMutex(a *arenakernel.Arena, o arenakernel.Object, opt *FairMutexOptions, bare bool) *FairMutex {
	w := fairMutexAt(a, o)
	f := &FairMutex{words: w, a: a, object: o, name: a.Self(), policy: policyOf(w.policy), repair: opt.Repair}
	f.mon = buildMonitor(a, o, o.Body, f, bare)
	f.fifo = fifo{f.mon, &w.queue}
	if !bare {
		f.turns = common[park.Turns](f.mon.opening)
	}
	return f
}

// Lock locks f, and waits until it can. It panics with an *[shmsync.Error] when
// the lock is owner-dead or not recoverable, when there is no room to wait, or
// when this process closes the arena meanwhile.
func (f *FairMutex) Lock() {
	if err := f.lock(nil); err != nil {
		panic(waysOut(err))
	}
}

// LockContext locks f, and waits until it can or ctx ends. An error means that f is not held:
// ctx.Err(), or an error that Is ErrOwnerDead or ErrNotRecoverable by the policy of f,
// ErrNoSpace, ErrCorrupt, or ErrClosed. If the lock is free, the call takes it even though ctx
// has ended.
func (f *FairMutex) LockContext(ctx context.Context) error { return f.lock(ctx) }

// lock is LockContext; ctx may be nil.
func (f *FairMutex) lock(ctx context.Context) error {
	if err := f.mon.enter(ctx); err != nil {
		return err
	}
	if f.free() {
		f.take()
		f.mon.leave(nil)
		return nil
	}
	return f.lockSlow(ctx, true)
}

// TryLock locks f if that is possible without waiting, and reports whether it did. It fails while
// there are waiters. State tells why it failed.
func (f *FairMutex) TryLock() bool {
	f.mon.opening.use()
	if !f.mon.tryEnter() {
		return false
	}
	if f.free() {
		f.take()
		f.mon.leave(nil)
		return true
	}
	return f.tryLockSlow()
}

// Unlock unlocks f, and hands it to the first waiter in the queue. It panics when this
// process does not hold f, and with an error that Is ErrCorrupt when a peer overwrote the
// lock.
func (f *FairMutex) Unlock() {
	m := f.mon
	if err := m.enter(nil); err != nil {
		panic(err)
	}
	o := f.ownerWord()
	if o != makeOwner(kindHeld, f.name) {
		m.leave(nil)
		f.badUnlock(o)
	}
	storeWord(&f.words.owner, 0)
	if f.fifo.empty() {
		m.leave(nil)
		f.turns.HoldEnded()
		return
	}
	crashpoint.Hit("fairmutex.unlock.freed")
	b := takeWakes()
	f.resolve(b)
	m.leave(b)
	f.turns.HoldEnded()
}

func (f *FairMutex) badUnlock(o ownerWord) {
	if !fairOwner(o) {
		panic(f.corrupt("fairmutex.unlock", o))
	}
	panic("shmsync: Unlock of fair mutex " + objectName(f.object) + ", which this process does not hold: it is " + o.String())
}

// LockAsync takes a place in the queue now. The Pending ends with nil when this process holds f
// and has to Unlock it, and otherwise with an error of LockContext.
func (f *FairMutex) LockAsync() *Pending {
	if err := f.mon.begin(); err != nil {
		return resolved(err)
	}
	defer f.mon.finish() // when it runs, the wait node keeps the handle open
	if err := f.mon.enter(nil); err != nil {
		return resolved(err)
	}
	waitNode, err := f.arrive(nil, nil)
	if waitNode == nil {
		return resolved(err)
	}
	p := f.mon.newPending("fairmutex.lock", waitNode, f.judge)
	p.accept, p.acceptAtOnce = f.accept, f.acceptAtOnce
	p.begin()
	return p
}

// Offset is the place of the FairMutex in its arena, for FairMutexAt in another process.
func (f *FairMutex) Offset() arena.Offset { return f.object.Offset }

// Close closes this handle on the FairMutex, and no other. Calls that wait through it end with an
// error that Is ErrClosed. A hold of this process stays; release it through another handle. A
// second Close is an error that Is ErrClosed.
func (f *FairMutex) Close() error {
	return f.mon.opening.close("fairmutex.close")
}

// Policy says what happens to f when its holder dies.
func (f *FairMutex) Policy() Policy { return f.policy }

// FairMutexState is the result of State.
type FairMutexState struct {
	Held    bool              // it is held, perhaps by a process that recovers it or by a waiter that it was handed to
	Owner   *shmsync.Identity // its holder, or the process whose death left it behind; nil if it is free or the holder is not known
	Waiting bool              // there are waiters
	Err     error             // why it cannot be locked: nil, ErrOwnerDead, ErrNotRecoverable or ErrCorrupt
	Word    string            // the owner word, rendered for people
}

// State reads f without locking it. The answer may be out of date when it returns.
func (f *FairMutex) State() FairMutexState {
	f.mon.opening.use()
	o := f.ownerWord()
	s := FairMutexState{Held: o.held() || o.granted(), Waiting: !f.fifo.empty(), Word: o.String()}
	if n := o.participant(); n != 0 {
		s.Owner = f.a.Who(n)
	}
	switch {
	case !fairOwner(o):
		s.Err = shmsync.ErrCorrupt
	case o.kind() == kindOwnerDead:
		s.Err = shmsync.ErrOwnerDead
	case o == ownerNotRecoverable:
		s.Err = shmsync.ErrNotRecoverable
		s.Owner = f.a.Who(f.diedName())
	}
	return s
}

// String renders the state on one line.
func (f *FairMutex) String() string {
	f.mon.opening.use()
	return fmt.Sprintf("fair mutex %s: %v, waiting %v", objectName(f.object), f.ownerWord(), !f.fifo.empty())
}

func (f *FairMutex) fail(op string, err error, who *shmsync.Identity, detail string) error {
	return f.mon.fail(op, err, who, detail)
}
