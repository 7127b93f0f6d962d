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

// RWSpinLock is a reader/writer lock between processes for short critical sections. In most cases [RWMutex] is
// better. It has the same holds, its readers are faster, and it bounds how long readers and writers wait.
// RWSpinLock is the better choice only where short writes matter most: without contention its writes cost less, and
// the 99th percentile of their duration was lower. See docs/performance.md.
//
// Any number of goroutines of any number of processes can hold the lock for reading, R. One process at a time can
// hold it for writing, W, or for upgrade, U. A process that holds it for upgrade reads now, and may become the
// writer later. This table says which holds can exist at the same time:
//
//	hold  beside R              beside W  beside U         new readers come in
//	R     yes                   no        if R came first  yes
//	W     no                    no        no               no
//	U     if R came first       no        no               no
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
// A hold for reading cannot become another hold. If it could, two readers that both want to write would wait for
// each other.
//
// RWSpinLock is not fair. A writer that waits for readers to leave keeps new readers out, so readers do not starve
// writers. Writers may starve readers. A goroutine that has a read hold must not call RLock again. As with
// sync.RWMutex, a writer that arrived between the two calls would wait for the first hold, and the second RLock
// would wait for the writer.
//
// A hold belongs to a process: a goroutine may lock and another goroutine of the same process may unlock. When a
// process dies, all its holds for reading end. The policy decides about its hold for writing or for upgrade. If a
// process dies in a Lock that still waits for readers to leave, it has no hold yet.
//
// Readers of different processes do not write the same cache lines. Each participant that opens the lock gets 128 bytes
// of the arena for the count of its holds. A writer reads all these counts.
//
// RWSpinLock follows folly's RWSpinLock, which has one count for all readers. Here each participant has a count of
// its own, as in big-reader locks.
//
// In the terminology of the Go memory model, and across processes: for n < m the n'th call of Unlock,
// UnlockUpgradable or a downgrade synchronizes before the m'th call of Lock, Upgrade or LockUpgradable returns. For
// each call of RLock there is an n such that the n'th of those releases synchronizes before the RLock returns, and
// the RUnlock of that hold synchronizes before the next Lock or Upgrade returns. If a holder dies, its death
// synchronizes before the call that reports the death, and before the next call that gets the lock.
type RWSpinLock struct {
	core    spinCore
	readKey race.Key // the race detector's edge from an RUnlock to the next writer

	mine    *atomic.Uint64          // counts the read holds of this process; see rwSpinCount
	state   *uint32                 // the state word; in a closed handle, a private word
	readers recordSlots[rwSpinSlot] // the counts of all participants

	gate       park.WakeWord // the word that readers sleep on
	gateQueue  *park.Queue
	drained    park.WakeWord // the word on which a writer sleeps until readers have left
	drainQueue *park.Queue
}

// RWSpinLockOptions says how an RWSpinLock is created, and what this process does with it. A nil
// *RWSpinLockOptions means the zero value.
type RWSpinLockOptions struct {
	// Policy says what happens to a hold for writing or for upgrade when its process dies. 0 means PolicyReport for
	// a new object, and any policy for an existing object. If Policy is set and an existing object has another
	// policy, opening fails.
	Policy Policy
	// Repair, if set, is run by a call of this process that would otherwise report ErrOwnerDead. The call runs Repair
	// as Recover does, and then goes on. Repair applies to this handle only and is not stored in the arena.
	Repair func() error
	// Spin bounds how long a waiter of a new object spins before it sleeps. If it is 0,
	// waiters learn the bound from earlier spins; if it is negative, they never spin.
	// See RWSpinLock.SetSpin.
	Spin time.Duration
}

var rwSpinKindID = arenakernel.KindOf("RWSP")

const rwSpinVersion = 2

// OpenRWSpinLock finds the RWSpinLock of that name in the arena or creates it. An empty name makes a new anonymous
// RWSpinLock. An RWSpinLock takes 256 bytes in an arena for up to 511 participants, and 128 bytes more for each slot
// whose participants have opened it. These 128 bytes are allocated when a participant of the slot first opens the
// RWSpinLock. If there is no room, the error Is [shmsync.ErrNoSpace]. OpenRWSpinLock panics if opts.Policy is not a
// valid Policy.
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
		Existing: attach, Kind: rwSpinKindID, Version: rwSpinVersion, Name: name, Size: uint64(spinBytes),
		Init: func(body []byte) { initSpin(body, opt.Policy, opt.Spin) },
	}, "rwspinlock.open", newRWSpinLock(&opt), func(m *RWSpinLock) string { return m.core.policy.differs(opt.Policy) })
}

// RWSpinLockAt opens the RWSpinLock at an offset that another process got from the method Offset.
func RWSpinLockAt(a *arena.Arena, off arena.Offset) (*RWSpinLock, error) {
	return handleAt(a, off, "rwspinlock.open", rwSpinKindID, rwSpinVersion, uint64(spinBytes), newRWSpinLock(&RWSpinLockOptions{}))
}

// rwSpinLockToRecover does what RWSpinLockAt does, for a caller that only calls Recover. Such a caller needs no count
// of read holds, so this participant gets no slot record. So Recover works even if the arena has no room for a record.
func rwSpinLockToRecover(a *arena.Arena, off arena.Offset) (*RWSpinLock, error) {
	return handleAt(a, off, "rwspinlock.open", rwSpinKindID, rwSpinVersion, uint64(spinBytes),
		func(a *arenakernel.Arena, o arenakernel.Object) (*RWSpinLock, error) {
			return buildRWSpinLock(a, o, &RWSpinLockOptions{}, false)
		})
}

func newRWSpinLock(opt *RWSpinLockOptions) func(*arenakernel.Arena, arenakernel.Object) (*RWSpinLock, error) {
	return func(a *arenakernel.Arena, o arenakernel.Object) (*RWSpinLock, error) {
		return buildRWSpinLock(a, o, opt, true)
	}
}

// buildRWSpinLock makes a handle. If reads is false, the handle cannot be locked for reading, and this participant gets no
// slot record.
func buildRWSpinLock(a *arenakernel.Arena, o arenakernel.Object, opt *RWSpinLockOptions, reads bool) (*RWSpinLock, error) {
	w, err := arenakernel.TryAt[spinWords](a, o.Body)
	if err != nil {
		return nil, err
	}
	dev, ino := a.Segment().ID()
	l := &RWSpinLock{
		readKey: race.KeyOf(dev, ino, uint64(o.Body)), state: wordPtr(&w.state), readers: rwSpinSlots(a, o),
		gate: rwSpinGate(a, w), drained: rwSpinDrained(a, w),
	}
	if err := l.readers.open(reads); err != nil {
		return nil, err
	}
	l.mine = new(atomic.Uint64) // for a handle without read holds, a private word that stays 0
	if reads {
		l.mine = l.readers.known.Load().all[0].count
	}
	l.core.init(a, o, w, "rwspinlock", "reader/writer spin lock", opt.Repair)
	l.core.rw = l
	l.core.opening.end = l.end
	l.gateQueue = park.NewQueue(park.Config{
		WaitList: l.gate.WaitList, Object: o, Word: o.Body + spinGateOff, All: true,
		Check: func() { l.core.checkFor(&l.gate) },
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

// Lock locks l for writing, and waits until that is possible. It panics with an *[shmsync.Error] if the lock is
// owner-dead or not recoverable, or if this process closes the arena while the call waits.
func (l *RWSpinLock) Lock() {
	if l.tryLockFast() {
		return
	}
	l.core.lockOrPanic()
}

// LockContext locks l for writing, and waits until that is possible or ctx ends. An error means that l is not held.
// The error is ctx.Err(), or it Is ErrCorrupt or ErrClosed. Depending on the policy of l, it may also be one that
// Is ErrOwnerDead or ErrNotRecoverable. If the lock is free, the call takes it even though ctx has ended.
func (l *RWSpinLock) LockContext(ctx context.Context) error {
	if l.tryLockFast() {
		return nil
	}
	return l.core.lock(ctx)
}

// TryLock locks l for writing if that is possible without waiting, and reports whether it did. If it did not, State
// tells why. If another goroutine calls TryRLock at the same moment, TryLock may fail although the lock is free.
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
	if race.Enabled || crashpoint.Enabled || atomic.LoadUint32(l.state) != 0 {
		return false
	}
	// If a participant has opened the lock for the first time, the slow path reads the list of slot records.
	known := l.readers.known.Load()
	if known.head != l.readers.head.Load() || known.err != nil || !noneReads(known.all) {
		return false
	}
	// lin: a Lock takes effect when it sees that nobody reads.
	if !atomic.CompareAndSwapUint32(l.state, 0, uint32(l.core.name)) {
		return false
	}
	if known.head == l.readers.head.Load() && noneReads(known.all) {
		return true
	}
	l.core.giveBack()
	return false
}

// Unlock unlocks l, which this process holds for writing. It panics if this process does not hold l for writing. If
// a peer overwrote the lock, it panics with an error that Is ErrCorrupt.
func (l *RWSpinLock) Unlock() {
	l.core.opening.use()
	l.core.unlock()
}

// Recover makes l usable again after it became owner-dead or not recoverable. It keeps out new readers and writers,
// waits for the readers to leave, runs repair, and releases the lock. If repair returns an error or panics, l
// becomes not recoverable until a later Recover succeeds, and this Recover returns the error. Other callers wait
// while repair runs. If this process dies before repair returns, l is owner-dead again.
//
// If l is neither owner-dead nor not recoverable, Recover waits for the lock, releases it and does not run repair.
// Recover returns the errors of LockContext except ErrOwnerDead. If repair is nil, Recover panics and leaves the
// lock as it is.
func (l *RWSpinLock) Recover(repair func() error) error {
	return l.RecoverContext(context.Background(), repair)
}

// RecoverContext is like Recover, but returns ctx.Err() if ctx ends while it waits. If it need not wait, it calls repair
// even though ctx has ended.
func (l *RWSpinLock) RecoverContext(ctx context.Context, repair func() error) error {
	mustHaveRepair(repair != nil, l.core.what+" "+objectName(l.core.object))
	return l.core.recoverCounted(ctx, repair)
}

// Offset is the place of the RWSpinLock in its arena, for RWSpinLockAt in another process.
func (l *RWSpinLock) Offset() arena.Offset { return l.core.object.Offset }

// Close closes this handle on the RWSpinLock, and no other handle. Calls that wait through this handle end with an
// error that Is ErrClosed. Holds of this process stay, and can be released through another handle. A second Close
// is an error that Is ErrClosed.
func (l *RWSpinLock) Close() error { return l.core.close() }

// end closes the handle. It gives the fast paths a private word that is never free, in place of the state word.
func (l *RWSpinLock) end() {
	l.core.end()
	redirect(&l.state, &closedOwner)
}

// Policy says what happens to l when its holder for writing or upgrade dies.
func (l *RWSpinLock) Policy() Policy { return l.core.policy }

// SetSpin bounds how long waiters of all processes spin before they sleep. If d is 0, waiters learn the bound from
// earlier spins; if d is negative, they never spin.
func (l *RWSpinLock) SetSpin(d time.Duration) {
	l.core.opening.use()
	l.core.words.spin.Store(spinField(d))
}

// Spin returns the duration that the last SetSpin set.
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
	Held     bool              // a process holds the lock for writing, or recovers it
	Upgrade  bool              // a process holds the lock for upgrade
	Draining bool              // the process in Owner waits for readers to leave
	Owner    *shmsync.Identity // the process that holds l for writing or upgrade, or that died with such a hold; nil if there is none or it is not known
	Readers  []RWSpinLockReader
	Waiting  bool   // there may be waiters asleep
	Err      error  // why no call can lock l: nil, ErrOwnerDead, ErrNotRecoverable or ErrCorrupt
	Word     string // the state word, rendered for people
}

// RWSpinLockReader is a process that holds an RWSpinLock for reading.
type RWSpinLockReader struct {
	Who   *shmsync.Identity // nil if unknown
	Holds int               // how many read holds the process has
}

// State reads l without locking it. The answer may be out of date when State returns, and its fields may be from
// different moments.
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
	slots, err := sortedSlots(&l.readers)
	if err != nil {
		s.Err = shmsync.ErrCorrupt
	}
	for _, r := range slots {
		n := rwSpinCount(r.count.Load())
		if n != 0 && n.validIn(r.slot) && c.a.Current(n.participant()) {
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
