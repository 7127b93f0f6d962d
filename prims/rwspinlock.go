package prims

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

// RWSpinLock is a reader/writer lock between processes for short critical sections. Prefer [RWMutex], which has
// the same holds: the readers of an RWMutex are faster, and it bounds how long readers and writers wait.
// RWSpinLock is the better choice only where short writes matter most. Without contention its writes cost less,
// and their 99th percentile was lower. See docs/performance.md.
//
// Any number of goroutines of any number of processes can hold it for reading. One process
// at a time can hold it for writing, W, or for upgrade, U: to read now and perhaps to write
// later.
//
//	            beside readers  beside W  beside U  new readers come in
//	reading, R  yes             no        yes       yes
//	W           no              no        no        no
//	U           earlier ones    no        no        no
//
// These calls change one hold into another. No other process gets the lock in between:
//
//	from  to  call
//	none  R   RLock, RLockContext, TryRLock
//	none  U   LockUpgradable, LockUpgradableContext, TryLockUpgradable
//	none  W   Lock, LockContext, TryLock
//	R     -   RUnlock
//	U     -   UnlockUpgradable
//	W     -   Unlock
//	U     W   Upgrade and UpgradeContext, which wait for the readers to leave; TryUpgrade
//	W     U   DowngradeToUpgradable
//	W     R   Downgrade
//	U     R   DowngradeToRead
//
// A hold for reading cannot become another hold: two readers that both want to write would wait
// for each other.
//
// RWSpinLock is not fair. A writer that waits for readers to leave keeps new readers out, so readers do not
// starve writers. Writers may starve readers. A goroutine that has a read hold must not call RLock again, as
// with sync.RWMutex: a writer that came in between would keep it out and wait for it.
//
// A hold belongs to a process: a goroutine may lock and another goroutine of the same process unlock. When a
// process dies, all its holds for reading end. The policy decides about its hold for writing or for upgrade. A
// Lock that still waits for readers to leave has no hold yet.
//
// Readers of different processes do not write the same cache lines. Therefore the lock takes 128 bytes for each
// participant that the arena can have, and a writer reads the counts of all slots up to the highest slot that
// has ever had readers.
//
// RWSpinLock follows folly's RWSpinLock, which has one count for all readers. A separate count for each
// participant comes from big-reader locks.
//
// In the terminology of the Go memory model, and across processes: for n < m the n'th call of
// Unlock, UnlockUpgradable or a downgrade synchronizes before the m'th call of Lock, Upgrade or
// LockUpgradable returns. For each call of RLock there is an n such that the n'th of those
// releases synchronizes before the RLock returns, and the RUnlock of that hold synchronizes
// before the next Lock or Upgrade returns. A release by a death synchronizes before the call that
// reports it, and before the call that gets the lock because of it.
type RWSpinLock struct {
	core    spinCore
	readKey race.Key // edge of readers, for the race detector

	mine   *atomic.Uint64 // our rwSpinCount
	state  *uint32        // the state word, as in core
	slots  []rwSpinSlot   // the counts of all participants, from slot 1 on
	ranked atomic.Bool    // the word top is not below our slot

	gate       park.WakeWord // the word that readers sleep on
	gateQueue  *park.Queue
	drained    park.WakeWord // the word on which a writer sleeps until readers have left
	drainQueue *park.Queue
}

// RWSpinLockOptions says how an RWSpinLock is created, and what this process does with it. A nil
// *RWSpinLockOptions means the zero value.
type RWSpinLockOptions struct {
	// Policy says what happens to a hold for writing or for upgrade when its process dies; 0
	// means PolicyReport for a new object, and any policy for an existing one. If it is set and
	// the object has another policy, opening fails.
	Policy Policy
	// Repair, if set, is run by calls of this process that would otherwise report ErrOwnerDead. They run it as
	// Recover does, and then go on. Repair belongs to this handle and is not stored.
	Repair func() error
	// Spin bounds how long a waiter of a new object spins before it sleeps. If it is 0,
	// waiters learn the bound from earlier spins; if it is negative, they never spin.
	// See RWSpinLock.SetSpin.
	Spin time.Duration
}

var rwSpinKindID = arenakernel.KindOf("RWSP")

const rwSpinVersion = 1

// OpenRWSpinLock finds the RWSpinLock of that name in the arena or creates it. An
// empty name makes a fresh anonymous one. It panics if opts.Policy is not a valid
// Policy.
func OpenRWSpinLock(a *arena.Arena, name string, opts *RWSpinLockOptions) (*RWSpinLock, error) {
	return openRWSpinLock((*arenakernel.Arena)(a), name, opts, false)
}

func openRWSpinLock(a *arenakernel.Arena, name string, opts *RWSpinLockOptions, attach bool) (*RWSpinLock, error) {
	var opt RWSpinLockOptions
	if opts != nil {
		opt = *opts
	}
	opt.Policy.mustBeValid("reader/writer spin lock " + strconv.Quote(name))
	if err := opt.Policy.withoutLog("rwspinlock.open", name, "an RWSpinLock"); err != nil {
		return nil, err
	}
	return openAs(a, arenakernel.ObjectSpec{
		Existing: attach, Kind: rwSpinKindID, Version: rwSpinVersion, Name: name, Size: rwSpinBytes(a),
		Init: func(body []byte) { initSpin(body, opt.Policy, opt.Spin) },
	}, "rwspinlock.open", newRWSpinLock(&opt), func(m *RWSpinLock) string { return m.core.policy.differs(opt.Policy) })
}

// RWSpinLockAt opens the RWSpinLock at an offset that another process got from the method Offset.
func RWSpinLockAt(a *arena.Arena, off arena.Offset) (*RWSpinLock, error) {
	return handleAt(a, off, "rwspinlock.open", rwSpinKindID, rwSpinVersion, rwSpinBytes((*arenakernel.Arena)(a)), newRWSpinLock(&RWSpinLockOptions{}))
}

func newRWSpinLock(opt *RWSpinLockOptions) func(*arenakernel.Arena, arenakernel.Object) (*RWSpinLock, error) {
	return func(a *arenakernel.Arena, o arenakernel.Object) (*RWSpinLock, error) {
		return buildRWSpinLock(a, o, opt)
	}
}

func buildRWSpinLock(a *arenakernel.Arena, o arenakernel.Object, opt *RWSpinLockOptions) (*RWSpinLock, error) {
	w, err := arenakernel.TryAt[spinWords](a, o.Body)
	if err != nil {
		return nil, err
	}
	slots, err := rwSpinSlots(a, o.Body)
	if err != nil {
		return nil, err
	}
	dev, ino := a.Segment().ID()
	l := &RWSpinLock{
		readKey: race.KeyOf(dev, ino, uint64(o.Body)), mine: &slots[a.Self().Slot()-1].count, state: wordPtr(&w.state), slots: slots,
		gate: rwSpinGate(a, w), drained: rwSpinDrained(a, w),
	}
	l.core.init(a, o, w, "rwspinlock", "reader/writer spin lock", opt.Repair)
	l.core.rw = l
	l.core.opening.end = l.end
	l.gateQueue = park.NewQueue(park.Config{
		WaitList: l.gate.WaitList, Object: o, Word: o.Body + spinGateOff, All: true, Check: l.core.check,
	})
	l.drainQueue = park.NewQueue(park.Config{
		WaitList: l.drained.WaitList, Object: o, Word: o.Body + spinDrainOff, All: true, Check: l.checkDrained,
	})
	return l, nil
}

func rwSpinGate(a *arenakernel.Arena, w *spinWords) park.WakeWord {
	return park.WakeWord{WaitList: park.WaitList{Arena: a, Word: &w.gate, Raw: wordPtr(&w.gate), Poller: &w.gatePoller}}
}

func rwSpinDrained(a *arenakernel.Arena, w *spinWords) park.WakeWord {
	return park.WakeWord{WaitList: park.WaitList{Arena: a, Word: &w.drain, Raw: wordPtr(&w.drain), Poller: &w.drainPoller}}
}

// Lock locks l for writing, and waits until it can. It panics with an
// *[shmsync.Error] when the lock is owner-dead or not recoverable, or when this
// process closes the arena meanwhile.
func (l *RWSpinLock) Lock() {
	if l.tryLockFast() {
		return
	}
	l.core.lockOrPanic()
}

// LockContext locks l for writing, and waits until it can or ctx ends. An error means that l is
// not held: ctx.Err(), or an error that Is ErrOwnerDead or ErrNotRecoverable by the policy of l,
// ErrCorrupt, or ErrClosed. If the lock is free, the call takes it even though ctx has ended.
func (l *RWSpinLock) LockContext(ctx context.Context) error {
	if l.tryLockFast() {
		return nil
	}
	return l.core.lock(ctx)
}

// TryLock locks l for writing if that is possible without waiting, and reports whether it did.
// State tells why it failed. It may fail although the lock is free if another goroutine calls
// TryRLock at the same moment.
func (l *RWSpinLock) TryLock() bool {
	l.core.opening.use()
	if l.tryLockFast() {
		return true
	}
	if who, err := l.reader(); who != 0 || err != nil || !l.core.try(spinDraining) {
		return false
	}
	d := drainForLock(l.core.name)
	if who, err := l.reader(); who != 0 || err != nil || l.turn(d.from, d.to) != nil {
		l.giveUp(d)
		return false
	}
	l.core.acquired()
	return true
}

// tryLockFast locks l for writing if it is free and has no reader. Otherwise it leaves l as it was.
func (l *RWSpinLock) tryLockFast() bool {
	if race.Enabled || crashpoint.Enabled || atomic.LoadUint32(l.state) != 0 || !l.nobodyReads() {
		return false
	}
	// lin: a Lock takes effect when it sees that nobody reads.
	if !atomic.CompareAndSwapUint32(l.state, 0, uint32(l.core.name)) {
		return false
	}
	if l.nobodyReads() {
		return true
	}
	l.core.release("Lock", spinHeld, spinFree)
	return false
}

// Unlock unlocks l, which this process holds for writing. It panics if this process does not hold
// it, and with an error that Is ErrCorrupt if a peer overwrote the lock.
func (l *RWSpinLock) Unlock() {
	l.core.opening.use()
	l.core.unlock()
}

// Recover makes an owner-dead or not recoverable l usable again: it keeps out new readers and writers, waits
// for the readers to leave, runs repair, and releases the lock. If repair returns an error or panics, l becomes
// not recoverable until a later Recover succeeds, and Recover returns the error. Other callers wait while
// repair runs. If this process dies before repair returns, l is owner-dead again.
//
// If the lock is healthy, Recover waits for it, releases it and does not run repair. Its own
// errors are those of LockContext except ErrOwnerDead. It panics if repair is nil, and leaves the
// lock as it is.
func (l *RWSpinLock) Recover(repair func() error) error {
	return l.RecoverContext(context.Background(), repair)
}

// RecoverContext is Recover that ends with ctx.Err() when ctx ends before repair is called.
func (l *RWSpinLock) RecoverContext(ctx context.Context, repair func() error) error {
	mustHaveRepair(repair != nil, l.core.what+" "+objectName(l.core.object))
	return l.core.recover(ctx, repair)
}

// Offset is the place of the RWSpinLock in its arena, for RWSpinLockAt in another process.
func (l *RWSpinLock) Offset() arena.Offset { return l.core.object.Offset }

// Close closes this handle on the RWSpinLock, and no other. Calls that wait through it end with
// an error that Is ErrClosed. Holds of this process stay; release them through another handle. A
// second Close is an error that Is ErrClosed.
func (l *RWSpinLock) Close() error { return l.core.close() }

// end closes the handle, and redirects the fast paths from the state word to a word that is never free.
func (l *RWSpinLock) end() {
	l.core.end()
	redirect(&l.state, &closedOwner)
}

// Policy says what happens to l when its holder for writing or upgrade dies.
func (l *RWSpinLock) Policy() Policy { return l.core.policy }

// SetSpin bounds how long waiters of all processes spin before they sleep. If d is 0, waiters
// learn the bound from experience; if d is negative, they never spin.
func (l *RWSpinLock) SetSpin(d time.Duration) {
	l.core.opening.use()
	l.core.words.spin.Store(spinField(d))
}

// Spin is the value of the last SetSpin.
func (l *RWSpinLock) Spin() time.Duration {
	l.core.opening.use()
	return spinOf(l.core.words.spin.Load())
}

// RLocker returns a Locker whose Lock and Unlock are RLock and RUnlock of l.
func (l *RWSpinLock) RLocker() sync.Locker { return (*rwSpinReader)(l) }

type rwSpinReader RWSpinLock

func (r *rwSpinReader) Lock()   { (*RWSpinLock)(r).RLock() }
func (r *rwSpinReader) Unlock() { (*RWSpinLock)(r).RUnlock() }

// RWSpinLockState is the result of State.
type RWSpinLockState struct {
	Held     bool              // held for writing, or by a process that recovers it
	Upgrade  bool              // held for upgrade
	Draining bool              // its owner waits for readers to leave
	Owner    *shmsync.Identity // the process that holds it for writing or upgrade, or whose death left it behind; nil if there is none or it is not known
	Readers  []RWSpinLockReader
	Waiting  bool   // there may be waiters asleep
	Err      error  // why it cannot be locked: nil, ErrOwnerDead, ErrNotRecoverable or ErrCorrupt
	Word     string // the state word, rendered for people
}

// RWSpinLockReader is a process that holds an RWSpinLock for reading.
type RWSpinLockReader struct {
	Who   *shmsync.Identity // nil if unknown
	Holds int               // number of its holds
}

// State reads l without locking it. The answer may be out of date when it returns, and its parts
// may be from different moments.
func (l *RWSpinLock) State() RWSpinLockState {
	l.core.opening.use()
	c := &l.core
	w := spinWord(c.state.Load())
	s := RWSpinLockState{Word: w.String(), Waiting: c.next.Announced() || l.gate.Announced() || l.drained.Announced()}
	s.Owner, s.Err = c.verdict(w)
	if s.Err == nil && w.held() {
		switch w.kind() {
		case spinHeld, spinRecovering:
			s.Held = true
		case spinUpgrade, spinUpgrading:
			s.Upgrade = true
		}
		s.Draining = w.kind() == spinDraining || w.kind() == spinUpgrading
	}
	for i := range l.slots {
		n := rwSpinCount(l.slots[i].count.Load())
		if n != 0 && n.validIn(i+1) && c.a.Current(n.participant()) {
			s.Readers = append(s.Readers, RWSpinLockReader{Who: c.a.Who(n.participant()), Holds: int(n.holds())})
		}
	}
	return s
}

// String renders the state on one line.
func (l *RWSpinLock) String() string {
	s, holds := l.State(), 0
	for _, r := range s.Readers {
		holds += r.Holds
	}
	return fmt.Sprintf("reader/writer spin lock %s: %s, %d holds for reading by %d processes",
		objectName(l.core.object), s.Word, holds, len(s.Readers))
}
